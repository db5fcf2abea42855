"""Tasks, small descriptions of work that another process can do; processes, one per device.

A task is the name of a function and bytes. Its result is bytes too: keys, checksums and counts.
What it computes is written to disk by the process that computes it.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import IO, Any, Protocol

import msgspec
from joblib import cpu_count

from oodzoo.core.errors import InputError
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

    After a `fatal` error the other tasks would fail too, and the job stops.
    """

    result: bytes | None = None
    error: str | None = None
    fatal: bool = False
    machine: str = ""


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

    def run(self, work: Work, tasks: Iterable[bytes]) -> Iterator[tuple[int, Reply]]:
        """Run tasks and yield the number and the outcome of each as it ends.

        A task whose process or machine dies is started again, at most three times in all.
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
    while True:
        reply = run_task(hello.function, shared, inbox.take(), hello.worker)
        write_message(replies, msgspec.json.encode(reply))


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
from oodzoo.extraction.engines.task import main
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

    def run(self, work: Work, tasks: Iterable[bytes]) -> Iterator[tuple[int, Reply]]:
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
                else:
                    yield item
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
                self._done.put((number, self._reply(content)))
        except Exception as error:  # for example no memory for another process
            self._todo.close(error)
        finally:
            if self._process is not None:
                self._process.close()
            self._done.put(None)

    def _reply(self, task: bytes) -> Reply:
        error = "stopped"
        for _ in range(ATTEMPTS):
            with self._lock:
                if self._stopped:
                    break
                if self._process is None:
                    self._process = _Process(self._work, self._worker)
                process = self._process
            reply = process.ask(task)
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

    def ask(self, task: bytes) -> Reply | None:
        """Send a task and wait for the reply; None if the process has died."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            for message in [*self._first, task]:
                write_message(self._process.stdin, message)
        except (BrokenPipeError, ValueError):  # dead, or stopped by us
            return None
        self._first = []
        answer = read_message(self._process.stdout)
        return None if answer is None else msgspec.json.decode(answer, type=Reply)

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
