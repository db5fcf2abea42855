"""Functions that the tests run as tasks in other processes."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from joblib import cpu_count

from oodzoo.core.errors import InputError
from oodzoo.extraction.engines import Work, Worker


def work(name: str, shared: bytes | Path = b"") -> Work:
    """Describe tasks that run a function of this module."""
    return Work(f"{__name__}:{name}", shared if isinstance(shared, bytes) else os.fsencode(shared))


def tell(shared: bytes, task: bytes, worker: Worker) -> bytes:
    """The device, the number of cores, and the bytes that were sent; prints as libraries do."""
    print("x" * 100_000, flush=True)
    os.write(1, b"y" * 100_000)
    return f"{worker.device} {worker.cores} {cpu_count()} ".encode() + shared + b" " + task


def count_bytes(shared: bytes, task: bytes, _: Worker) -> bytes:
    return f"{len(shared)} {len(task)}".encode()


def process_id(_: bytes, __: bytes, ___: Worker) -> bytes:
    return str(os.getpid()).encode()


def meet(shared: bytes, task: bytes, _: Worker) -> bytes:
    """Wait until two tasks run at the same time."""
    folder = Path(os.fsdecode(shared))
    (folder / task.decode()).touch()
    _wait(lambda: len(list(folder.iterdir())) >= 2)
    return task


def die_at_two(shared: bytes, task: bytes, _: Worker) -> bytes:
    """Always die at the task "2", and count the attempts."""
    with (Path(os.fsdecode(shared)) / "attempts").open("a") as attempts:
        attempts.write(task.decode())
    if task == b"2":
        print("no memory for", task.decode(), file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def fail(_: bytes, task: bytes, __: Worker) -> bytes:
    raise ValueError(f"bad\ntask {task.decode()}")


def refuse(_: bytes, task: bytes, __: Worker) -> bytes:
    raise InputError(f"bad input: {task.decode()!r}")


def _wait(condition: object) -> None:
    assert callable(condition)
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, "nothing happens"
        time.sleep(0.005)
