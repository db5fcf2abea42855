"""Workers that die, hang or are elsewhere; the environment says when."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from oodzoo.extraction import distributed as real
from oodzoo.extraction.engines import Processes, Reply, TaskProgress, Work, Worker
from oodzoo.store.writer import StoreWriter

FOLDER = "OODZOO_TEST_FOLDER"
CULPRIT = "OODZOO_TEST_CULPRIT"


class Troubled(Processes):
    """Processes that run tasks with a function of this module; keeps what they return."""

    def __init__(self, function: str, n: int = 2) -> None:
        super().__init__(["cpu"] * n)
        self._function = f"{__name__}:{function}"
        self.replies: list[Reply] = []

    def run(
        self, work: Work, tasks: Iterable[bytes], progress: TaskProgress | None = None
    ) -> Iterator[tuple[int, Reply]]:
        for number, reply in super().run(replace(work, function=self._function), tasks, progress):
            self.replies.append(reply)
            yield number, reply


def run(shared: bytes, task: bytes, worker: Worker) -> bytes:
    return real.run_task(shared, task, worker)


def die_of_culprit(shared: bytes, task: bytes, worker: Worker) -> bytes:
    """Die before any shard of one model."""

    def die(name: str, written: int) -> None:
        if name == os.environ[CULPRIT]:
            os.kill(os.getpid(), signal.SIGKILL)

    _before_shards(die)
    return real.run_task(shared, task, worker)


def hang(shared: bytes, task: bytes, worker: Worker) -> bytes:
    """Write one shard, then a file with the number of this process, and wait forever."""

    def wait(name: str, written: int) -> None:
        if written:
            (_folder() / str(os.getpid())).touch()
            time.sleep(600)

    _before_shards(wait)
    return real.run_task(shared, task, worker)


def _before_shards(action: Callable[[str, int], None]) -> None:
    """Call a function of the model and the number of shards written before each shard."""
    written = 0

    def write_shard(self: StoreWriter, name: str, *arguments: Any) -> Any:
        nonlocal written
        action(name, written)
        written += 1
        return _WRITE_SHARD(self, name, *arguments)

    StoreWriter.write_shard = write_shard  # type: ignore[method-assign, assignment]


_WRITE_SHARD = StoreWriter.write_shard


def _folder() -> Path:
    return Path(os.environ[FOLDER])
