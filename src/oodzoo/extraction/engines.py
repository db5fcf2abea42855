"""Engines, which run tasks elsewhere: in processes of this machine, or on a Ray cluster.

A task is the name of a function and bytes. Its result is bytes too: keys, checksums and counts.
What it computes is written to disk by the process that computes it.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from queue import SimpleQueue
from types import TracebackType
from typing import IO, Any, Protocol, Self

import msgspec
from joblib import cpu_count

from oodzoo.core.errors import InputError
from oodzoo.core.events.progress import Part, current_part
from oodzoo.core.options import Compute
from oodzoo.core.packages import optional_package
from oodzoo.core.text import one_line

ATTEMPTS = 3
"""How often a task is started whose process or machine dies."""


@dataclass(frozen=True)
class Work:
    """What the tasks of a job have in common.

    Attributes
    ----------
    function : str
        `module:name` of a function of (shared, task, worker) that returns bytes.
    shared : bytes
        The part of the description that is the same for all tasks. It is sent to each machine once.
    check : str, optional
        `module:name` of a function of `shared` that lists what a machine lacks for the work.
    """

    function: str
    shared: bytes
    check: str | None = None


class Worker(msgspec.Struct, frozen=True):
    """The process that runs a task: the device for models, and its number of cores.

    `machine` is empty for a process of this machine.
    """

    machine: str = ""
    device: str = "auto"
    cores: int = 1


class Reply(msgspec.Struct, frozen=True):
    """The outcome of a task: its result, or one line about what went wrong.

    After a `fatal` error the other tasks would fail too, and the job stops. With a `share`, it is
    no outcome yet: so much of the task is done.
    """

    result: bytes | None = None
    error: str | None = None
    fatal: bool = False
    machine: str = ""
    share: float | None = None


TaskProgress = Callable[[int, float], None]


class Engine(Protocol):
    """Runs tasks in other processes."""

    name: str

    @property
    def slots(self) -> int:
        """How many tasks can run at the same time."""
        ...

    @property
    def uses_gpu(self) -> bool:
        """Whether models run on GPUs."""
        ...

    def run(
        self, work: Work, tasks: Iterable[bytes], progress: TaskProgress | None = None
    ) -> Iterator[tuple[int, Reply]]:
        """Run tasks and yield the number and the outcome of each as it ends.

        A task whose process or machine dies is started again, at most three times in all.
        `progress` is called with the number of a task and the share of it that is done, if the
        engine knows it.
        """
        ...


def run_task(function: str, shared: bytes, task: bytes, worker: Worker) -> Reply:
    """Run a task in this process; an exception becomes a reply."""
    limit_threads(worker.cores)
    try:
        return Reply(find(function)(shared, task, worker), machine=worker.machine)
    except InputError as error:
        return Reply(error=str(error), fatal=True, machine=worker.machine)
    except Exception as error:
        reason = f"{type(error).__name__}: {one_line(error)}"
        return Reply(error=reason, machine=worker.machine)


def find(function: str) -> Callable[..., Any]:
    """Import a function by `module:name`."""
    module, _, name = function.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def limit_threads(cores: int) -> None:
    """Let everything that this process does from now on use some cores."""
    os.environ["LOKY_MAX_CPU_COUNT"] = str(cores)  # joblib.cpu_count, which all of oodzoo asks
    os.environ["OMP_NUM_THREADS"] = str(cores)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(cores)


class Hello(msgspec.Struct, frozen=True):
    """The first message to a worker process: what all of its tasks have in common."""

    function: str
    worker: Worker


def main() -> None:
    """Run tasks that arrive on stdin, and write the replies to stdout, until stdin is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is not a reply
    inbox = _Inbox(sys.stdin.buffer)
    hello = msgspec.json.decode(inbox.take(), type=Hello)
    shared = inbox.take()
    last = 0.0

    def report(share: float) -> None:
        nonlocal last
        if time.monotonic() - last >= _EVERY:
            last = time.monotonic()
            write_message(replies, msgspec.json.encode(Reply(share=share)))

    while True:
        task = inbox.take()
        current_part.set(Part(report))
        reply = run_task(hello.function, shared, task, hello.worker)
        write_message(replies, msgspec.json.encode(reply))


_EVERY = 0.5
"""Seconds between two messages of how far a task is."""


class _Inbox:
    """Messages of the parent. When the parent dies, this process ends, whatever it is doing."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._messages: list[bytes] = []
        self._arrived = threading.Semaphore(0)
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream: IO[bytes]) -> None:
        while (message := read_message(stream)) is not None:
            self._messages.append(message)
            self._arrived.release()
        os._exit(0)  # shards are atomic: nothing is lost

    def take(self) -> bytes:
        self._arrived.acquire()
        return self._messages.pop(0)


def write_message(stream: IO[bytes], message: bytes) -> None:
    stream.write(len(message).to_bytes(8, "little") + message)
    stream.flush()


def read_message(stream: IO[bytes]) -> bytes | None:
    """Read a message; None at the end of the stream, also in the middle of a message."""
    head = stream.read(8)
    size = int.from_bytes(head, "little")
    message = stream.read(size) if len(head) == 8 else b""
    return message if len(head) == 8 and len(message) == size else None


# The same modules as here, and none of the current folder.
_PROGRAM = """
import sys
sys.path[:] = sys.argv[1:]
from oodzoo.extraction.engines import main
main()
"""


class Processes:
    """Runs tasks in new processes, each with a device of its own and its part of the cores.

    Parameters
    ----------
    devices : sequence of str
        A device may be named more than once: models that do not fill a GPU can share it.
    """

    name = "processes"

    def __init__(self, devices: Sequence[str]) -> None:
        self.devices = list(devices)

    @property
    def slots(self) -> int:
        return len(self.devices)

    @property
    def uses_gpu(self) -> bool:
        return any(device.startswith("cuda") for device in self.devices)

    def run(
        self, work: Work, tasks: Iterable[bytes], progress: TaskProgress | None = None
    ) -> Iterator[tuple[int, Reply]]:
        """Run tasks; the processes end with the iterator, also if it is not exhausted."""
        todo = _Queue(tasks)
        done: SimpleQueue[tuple[int, Reply] | None] = SimpleQueue()
        cores = max(1, int(cpu_count()) // len(self.devices))
        lines = [_Line(work, Worker(device=d, cores=cores), todo, done) for d in self.devices]
        try:
            running = len(lines)
            while running:
                item = done.get()
                if item is None:
                    running -= 1
                elif item[1].share is None:
                    yield item
                elif progress is not None:
                    progress(item[0], item[1].share)
        finally:
            todo.close()
            for line in lines:
                line.stop()
        if todo.problem is not None:
            raise todo.problem


class _Queue:
    """Tasks with their numbers, taken by several threads."""

    def __init__(self, tasks: Iterable[bytes]) -> None:
        self._tasks = enumerate(tasks)
        self._lock = threading.Lock()
        self._closed = False
        self.problem: Exception | None = None

    def take(self) -> tuple[int, bytes] | None:
        with self._lock:
            if self._closed:
                return None
            try:
                return next(self._tasks, None)
            except Exception as error:  # of the iterable that makes the tasks
                self.problem, self._closed = error, True
                return None

    def close(self, problem: Exception | None = None) -> None:
        """Give out no more tasks."""
        with self._lock:
            self._closed = True
            self.problem = self.problem or problem


class _Line:
    """A thread that gives tasks to one process after another, a new one where the old has died."""

    def __init__(
        self,
        work: Work,
        worker: Worker,
        todo: _Queue,
        done: SimpleQueue[tuple[int, Reply] | None],
    ) -> None:
        self._work, self._worker, self._todo, self._done = work, worker, todo, done
        self._process: _Process | None = None
        self._stopped = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.kill()
        self._thread.join()

    def _serve(self) -> None:
        try:
            while (task := self._todo.take()) is not None:
                number, content = task
                self._done.put((number, self._reply(number, content)))
        except Exception as error:  # for example no memory for another process
            self._todo.close(error)
        finally:
            if self._process is not None:
                self._process.close()
            self._done.put(None)

    def _reply(self, number: int, task: bytes) -> Reply:
        error = "stopped"
        for _ in range(ATTEMPTS):
            with self._lock:
                if self._stopped:
                    break
                if self._process is None:
                    self._process = _Process(self._work, self._worker)
                process = self._process
            reply = process.ask(task, lambda reply: self._done.put((number, reply)))
            if reply is not None:
                return reply
            error = process.last_words()
            with self._lock:
                self._process = None
            process.close()
        return Reply(error=f"the worker process for {self._worker.device} {error}")


class _Process:
    """A worker process and the pipes to it."""

    def __init__(self, work: Work, worker: Worker) -> None:
        self._printed: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - see close
        cores = str(worker.cores)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, *sys.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._printed,
                env=os.environ | {"OMP_NUM_THREADS": cores, "OPENBLAS_NUM_THREADS": cores},
            )
        except OSError:
            self._printed.close()
            raise
        self._first = [msgspec.json.encode(Hello(work.function, worker)), work.shared]

    def ask(self, task: bytes, report: Callable[[Reply], None]) -> Reply | None:
        """Send a task and wait for the reply; None if the process has died.

        `report` gets what comes before it.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            for message in [*self._first, task]:
                write_message(self._process.stdin, message)
        except (BrokenPipeError, ValueError):  # dead, or stopped by us
            return None
        self._first = []
        while (answer := read_message(self._process.stdout)) is not None:
            reply = msgspec.json.decode(answer, type=Reply)
            if reply.share is None:
                return reply
            report(reply)
        return None

    def last_words(self) -> str:
        """Say how the process died, with the last line that it printed."""
        status = self._process.wait()
        self._printed.seek(0, os.SEEK_END)
        self._printed.seek(max(0, self._printed.tell() - 4096))
        printed = self._printed.read().decode(errors="replace").strip().splitlines()
        how = f"ended with exit status {status}"
        if status < 0:
            how = f"was killed by {signal.Signals(-status).name}"
            if status == -signal.SIGKILL:
                how += " (often for lack of memory)"
        return how + (f"; it printed: {printed[-1][:200]}" if printed else "")

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()

    def close(self) -> None:
        """End the process and close what belongs to it."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
        self._printed.close()


ANSWER_SECONDS = 20
"""How long to wait for a cluster to answer."""

_WAIT_SECONDS = 30
"""How often to check, while no task ends, whether there are machines left."""

_CHECK_SECONDS = 120
"""How long the machines of a cluster may take to check what they have."""


class RayCluster:
    """Runs tasks on a Ray cluster, each with one core, or one GPU and its share of the cores.

    Parameters
    ----------
    address : str, optional
        `host:port` of a cluster, or "auto" for the one on this machine. By default the cluster
        named by the environment variable RAY_ADDRESS; without it, one is started on this machine
        and ends with the `with` block. A cluster that the program has connected to is used as it
        is.
    device : str
        Where models run: "cpu", "cuda", or "auto" for GPUs if the cluster has any.
    version : str
        The version of oodzoo that all machines must have.
    """

    name = "ray"

    def __init__(self, address: str | None, device: str, version: str) -> None:
        if device not in ("auto", "cpu", "cuda"):
            raise InputError(
                f"the engine ray takes the device auto, cpu or cuda, got {device!r}: Ray chooses "
                "the GPU of each task"
            )
        self._ray = optional_package("ray", extra="ray", purpose="the engine ray")
        self._version = version
        self._stack = ExitStack()
        with self._stack:
            if not self._ray.is_initialized():
                self._connect(address)
            self._device = self._choose_device(device)
            self._stack = self._stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _connect(self, address: str | None) -> None:
        address = address or os.environ.get("RAY_ADDRESS") or "local"
        if address != "local":
            _require_answer(address)
        options: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
        if address == "local":
            options["include_dashboard"] = False
        self._stack.enter_context(_quiet())
        try:
            self._ray.init(address=address, **options)
        except Exception as error:
            raise InputError(
                f"cannot connect to the Ray cluster {address!r}: {one_line(error)}"
            ) from error
        self._stack.callback(self._ray.shutdown)

    def _choose_device(self, device: str) -> str:
        gpus = int(self._ray.cluster_resources().get("GPU", 0))
        if device == "auto":
            return "cuda" if gpus else "cpu"
        if device == "cuda" and not gpus:
            raise InputError("the device is 'cuda', but the Ray cluster has no GPU; use cpu")
        return device

    @property
    def slots(self) -> int:
        resources = self._ray.cluster_resources()
        return max(1, int(resources.get("GPU" if self._device == "cuda" else "CPU", 0)))

    @property
    def uses_gpu(self) -> bool:
        return self._device == "cuda"

    def run(
        self, work: Work, tasks: Iterable[bytes], progress: TaskProgress | None = None
    ) -> Iterator[tuple[int, Reply]]:
        """Run tasks; those that have not started are cancelled if the iterator is closed."""
        ray = self._ray
        nodes = self._nodes()
        if not nodes:
            what = "a CPU and a GPU" if self._device == "cuda" else "a CPU"
            raise InputError(f"the Ray cluster has no machine with {what} to run tasks on")
        needs = {"num_cpus": 1}
        if self._device == "cuda":
            cores = min(int(n["Resources"].get("CPU", 0) // n["Resources"]["GPU"]) for n in nodes)
            needs = {"num_cpus": max(1, cores), "num_gpus": 1}
        shared = ray.put(work.shared)
        self._check(nodes, work, shared)
        worker = Worker(device=self._device, cores=needs["num_cpus"])
        remote = ray.remote(_run).options(
            **needs, max_retries=ATTEMPTS - 1, name=work.function.partition(":")[2]
        )
        waiting: dict[Any, int] = {}
        todo = enumerate(tasks)
        try:
            while True:
                # Enough tasks to keep all workers busy; more would only take memory.
                while len(waiting) < max(8, 3 * self.slots):
                    item = next(todo, None)
                    if item is None:
                        break
                    number, task = item
                    reference = remote.remote(
                        work.function, shared, task, msgspec.json.encode(worker), self._version
                    )
                    waiting[reference] = number
                if not waiting:
                    return
                ready, _ = ray.wait(list(waiting), num_returns=1, timeout=_WAIT_SECONDS)
                if not ready and not self._nodes():
                    raise InputError(
                        "the Ray cluster has lost all machines that run tasks; what they finished "
                        "is kept: start machines again and rerun"
                    )
                for reference in ready:
                    yield waiting.pop(reference), self._reply(reference)
        finally:
            for reference in waiting:
                ray.cancel(reference, force=True)

    def _reply(self, reference: Any) -> Reply:
        try:
            return msgspec.json.decode(self._ray.get(reference), type=Reply)
        except Exception as error:  # Ray's classes of errors differ between versions
            # What a task itself raises is a reply: anything else would happen to all tasks.
            return Reply(error=_explained(error), fatal=not _has_died(error))

    def _nodes(self) -> list[dict[str, Any]]:
        """List the machines that can run tasks."""
        needed = ("CPU", "GPU") if self._device == "cuda" else ("CPU",)
        return [
            node
            for node in self._ray.nodes()
            if node["Alive"] and all(node["Resources"].get(what, 0) >= 1 for what in needed)
        ]

    def _check(self, nodes: Iterable[dict[str, Any]], work: Work, shared: Any) -> None:
        """Ask every machine whether it has what the work needs."""
        ray = self._ray
        affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy

        # Nested, so that it is sent by value: a machine may have no oodzoo, or another version.
        def check(version: str, function: str | None, shared: bytes) -> list[str]:
            try:
                import oodzoo
            except ImportError as error:
                return [f"cannot import oodzoo ({error}); install oodzoo {version} there"]
            if oodzoo.__version__ != version:
                here = oodzoo.__version__
                same = "install the same version on all machines"
                return [f"has oodzoo {here}, this process {version}; {same}"]
            from oodzoo.extraction.engines import find

            return [] if function is None else list(find(function)(shared))

        checks = {
            _machine(node): ray.remote(check)
            .options(
                num_cpus=0, max_retries=0, scheduling_strategy=affinity(node["NodeID"], soft=False)
            )
            .remote(self._version, work.check, shared)
            for node in nodes
        }
        for machine, reference in checks.items():
            try:
                problems = ray.get(reference, timeout=_CHECK_SECONDS)
            except ray.exceptions.GetTimeoutError as error:
                raise InputError(
                    f"the machine {machine} of the Ray cluster did not answer within "
                    f"{_CHECK_SECONDS} s"
                ) from error
            except Exception as error:
                if _has_died(error):
                    continue  # the others do its work
                problems = [f"cannot run tasks: {_explained(error)}"]
            if problems:
                raise InputError(f"the machine {machine} of the Ray cluster {problems[0]}")


def _run(function: str, shared: bytes, task: bytes, worker: bytes, version: str) -> bytes:
    """Run a task in a Ray worker."""
    import oodzoo

    ray: Any = import_module("ray")
    machine = str(ray.util.get_node_ip_address())
    if oodzoo.__version__ != version:
        error = (
            f"the machine {machine} of the Ray cluster has oodzoo {oodzoo.__version__}, the "
            f"driver {version}; install the same version on all machines"
        )
        return msgspec.json.encode(Reply(error=error, fatal=True, machine=machine))
    described = msgspec.json.decode(worker, type=Worker)
    described = msgspec.structs.replace(described, machine=machine)
    return msgspec.json.encode(run_task(function, shared, task, described))


def _machine(node: dict[str, Any]) -> str:
    name, address = node.get("NodeManagerHostname"), node["NodeManagerAddress"]
    return f"{name} ({address})" if name and name != address else str(address)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what Ray reports about itself out of the output of this program."""
    logger = logging.getLogger("ray")
    level = logger.level
    # A thread of Ray prints the errors of workers and machines; it asks this variable.
    printer: Any = sys.modules["ray._private.worker"]
    prints = getattr(printer, "_worker_logs_enabled", True)
    logger.setLevel(logging.CRITICAL)
    printer._worker_logs_enabled = False
    try:
        yield
    finally:
        logger.setLevel(level)
        printer._worker_logs_enabled = prints


def _require_answer(address: str) -> None:
    """Reject an address where no cluster answers; Ray itself would try for minutes."""
    start = "start one with `ray start --head`, or leave the address out to use this machine"
    if "://" not in address and address != "auto":
        host, _, port = address.rpartition(":")
        if not host or not re.fullmatch("[0-9]{1,5}", port):
            raise InputError(
                f"the address of a Ray cluster must be HOST:PORT or auto, got {address!r}"
            )
        try:
            socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS).close()
        except (OSError, OverflowError) as error:
            raise InputError(
                f"no Ray cluster answers at {address!r} ({one_line(error)}); {start}"
            ) from error
    code = "import ray, sys; ray.init(address=sys.argv[1], log_to_driver=False)"
    try:
        tried = subprocess.run(
            [sys.executable, "-c", code, address],
            capture_output=True,
            timeout=ANSWER_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        if b"InvalidAuthToken" in (error.stderr or b""):
            raise _token_error(address) from error
        raise InputError(
            f"no Ray cluster answers at {address!r} within {ANSWER_SECONDS} s; {start}"
        ) from error
    if tried.returncode:
        if b"InvalidAuthToken" in tried.stderr:
            raise _token_error(address)
        printed = tried.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise InputError(f"cannot connect to the Ray cluster {address!r}: {printed[-1][:300]}")


def _token_error(address: str) -> InputError:
    return InputError(
        f"the Ray cluster {address!r} rejects the token of this process; set RAY_AUTH_MODE=token, "
        "and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH to the token of the cluster"
    )


_DEATHS = {
    "WorkerCrashedError",
    "NodeDiedError",
    "OutOfMemoryError",
    "RayActorError",
    "TaskUnschedulableError",  # its machine
}


def _has_died(error: Exception) -> bool:
    return not _DEATHS.isdisjoint(kind.__name__ for kind in type(error).__mro__)


def _explained(error: Exception) -> str:
    """Say in one line why a task has no result."""
    if _has_died(error):
        return f"its worker died {ATTEMPTS} times ({one_line(error)})"
    cause = getattr(error, "cause", None) or error
    return f"{type(cause).__name__}: {one_line(cause)}"


@dataclass(frozen=True)
class WorkPart:
    """One of several equal parts of the work; `number` counts from 1."""

    number: int = 1
    of: int = 1

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def parse_part(text: str) -> WorkPart:
    """Read `3/8`, the third of eight parts.

    Examples
    --------
    >>> parse_part("3/8")
    WorkPart(number=3, of=8)
    """
    found = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    if found is None:
        raise InputError(f"the shard must be I/N, such as 3/8, got {text!r}")
    number, of = int(found[1]), int(found[2])
    if not 1 <= number <= of:
        raise InputError(
            f"the shard {text!r} does not exist: I/N counts from 1/{max(of, 1)} to "
            f"{max(of, 1)}/{max(of, 1)}"
        )
    return WorkPart(number, of)


@contextmanager
def open_engine(compute: Compute, part: WorkPart | None = None) -> Iterator[Engine | None]:
    """Open an engine; None for this process.

    `part` is what is done here; only this process can do a part.
    """
    ray, devices = compute.engine == "ray", compute.devices
    if part is not None and (ray or len(devices) > 1):
        how = "the engine ray" if ray else f"the devices {compute.device}"
        raise InputError(f"shard {part} and {how} both spread the work; use one of them")
    if ray:
        from oodzoo import __version__

        with RayCluster(compute.address, compute.device or "cpu", __version__) as cluster:
            yield cluster
        return
    if len(devices) == 1:
        yield None
        return
    yield Processes(devices)
