"""Tasks: small descriptions of work that another process can do, and the process that does it.

A task is the name of a function and bytes. Its result is bytes too: keys, checksums and counts.
What it computes is written to disk by the process that computes it.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any, Protocol

import msgspec

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
