"""What listens to a command: a progress bar, a log file, MLflow, TensorBoard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oodzoo.cli.terminal import Terminal
from oodzoo.events import Listener, Progress


def listeners(
    log_file: Path | None = None, mlflow: str | None = None, tensorboard: Path | None = None
) -> list[Listener]:
    """Return the listeners of `--log-file`, `--mlflow` and `--tensorboard`."""
    from oodzoo.events import LogFile, MLflowListener, TensorBoardListener

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
    """Show a progress bar; yields its listener, if progress is shown, and the others."""
    with terminal.progress(title) as advance:
        yield [*([] if advance is None else [Bar(advance)]), *others]


class Bar(Listener):
    """Shows the progress of a stage, and of those within it, in one bar."""

    def __init__(self, advance: Progress) -> None:
        self._advance = advance

    def progress(self, stage: str, done: int, total: int, **facts: Any) -> None:
        if total:
            self._advance(done, total)
