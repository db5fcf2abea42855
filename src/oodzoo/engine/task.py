"""Tasks: small descriptions of work that another process can do.

A task is the name of a function and bytes. Its result is bytes too: keys, checksums and counts.
What it computes is written to disk by the process that computes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import msgspec

from oodzoo.errors import InputError

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


def required_result(reply: Reply) -> bytes:
    """Return the result of a task; raise an InputError if it failed."""
    if reply.result is None:
        raise InputError(f"a task failed on {reply.machine or 'a worker'}: {reply.error}")
    return reply.result
