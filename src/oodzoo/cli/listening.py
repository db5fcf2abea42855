"""What listens to a command: a progress bar, a log file, MLflow, TensorBoard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oodzoo.cli.terminal import Terminal
from oodzoo.core.events import Listener, Log, Progress
from oodzoo.core.text import duration


def listeners(
    log_file: Path | None = None, mlflow: str | None = None, tensorboard: Path | None = None
) -> list[Listener]:
    """Return the listeners of `--log-file`, `--mlflow` and `--tensorboard`."""
    from oodzoo.core.events import LogFile, MLflowListener, TensorBoardListener

    found: list[Listener] = []
    if log_file is not None:
        found.append(LogFile(log_file))
    if mlflow is not None:
        found.append(MLflowListener(mlflow))
    if tensorboard is not None:
        found.append(TensorBoardListener(tensorboard))
    return found


@contextmanager
def listening(
    terminal: Terminal, title: str, others: Sequence[Listener] = ()
) -> Iterator[list[Listener]]:
    """Show the progress of work; yields its listener, unless the terminal is quiet, and others."""
    with terminal.progress(title) as advance:
        yield [*([] if advance is None else [Bar(advance, terminal.detail)]), *others]


class Bar(Listener):
    """Shows the progress of a stage, and of those within it, in one bar.

    Stages within a stage that counts its own steps are part of such a step.
    """

    def __init__(self, advance: Progress, say: Log = lambda _: None) -> None:
        self._advance = advance
        self._say = say
        self._counting: str | None = None

    def progress(self, stage: str, done: int, total: int, **facts: Any) -> None:
        if "message" in facts:
            self._say(facts["message"])
        if total and self._counting in (None, stage):
            self._counting = stage
            self._advance(done, total)

    def end(self, stage: str, **facts: Any) -> None:
        if "seconds" in facts:
            self._say(f"{stage}: {duration(facts['seconds'])}")
        if stage == self._counting:
            self._counting = None
