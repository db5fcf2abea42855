"""Tasks on a Ray cluster: an existing one, or one that is started on this machine."""

from __future__ import annotations

import logging
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from types import TracebackType
from typing import Any, Self

import msgspec

from oodzoo.core.errors import InputError
from oodzoo.core.packages import optional_package
from oodzoo.core.text import one_line
from oodzoo.extraction.engines.task import ATTEMPTS, Reply, Work, Worker

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

    def run(self, work: Work, tasks: Iterable[bytes]) -> Iterator[tuple[int, Reply]]:
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
            from oodzoo.extraction.engines.task import find

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
    from oodzoo.extraction.engines.task import run_task

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
