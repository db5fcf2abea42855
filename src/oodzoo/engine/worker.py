"""The other side of an engine: a process that runs tasks."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import IO, Any

import msgspec

from oodzoo._text import one_line
from oodzoo.engine.task import Reply, Worker
from oodzoo.errors import InputError


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
