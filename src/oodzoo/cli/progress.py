"""Progress of long work: bars on a terminal, elsewhere a line now and then; with the time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

from oodzoo._text import duration
from oodzoo.events import Log, Progress

SECONDS = 30.0
"""Time between two lines of progress."""


def time_left(done: int, total: int | None, elapsed: float) -> float | None:
    """Seconds until all is done, at the mean speed so far; None if that is not known.

    Examples
    --------
    >>> time_left(3, 12, elapsed=6.0)
    18.0
    """
    return None if not done or not total else elapsed * max(total - done, 0) / done


def left_in_words(seconds: float | None) -> str:
    """The time left in whole seconds; nothing if it is not known.

    Examples
    --------
    >>> left_in_words(18.2), left_in_words(200.0)
    ('18 s left', '3 min 20 s left')
    """
    if seconds is None:
        return ""
    whole = round(seconds)
    return f"{whole} s left" if whole < 60 else f"{duration(whole)} left"


def progress_bars(console: Any, *columns: str) -> Any:
    """Create bars of rich on a console, with additional columns before the time left."""
    from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task
    from rich.progress import Progress as Bars
    from rich.table import Column
    from rich.text import Text

    class Left(ProgressColumn):
        """The time left at the mean speed so far: steps may be few, and take long."""

        def render(self, task: Task) -> Text:
            total = None if task.total is None else int(task.total)
            left = time_left(int(task.completed), total, task.elapsed or 0.0)
            return Text(left_in_words(left), style="progress.remaining", no_wrap=True)

    return Bars(
        "{task.description}",
        BarColumn(bar_width=None, table_column=Column(ratio=1, max_width=40)),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        *columns,
        Left(table_column=Column(no_wrap=True)),  # the bar gets shorter instead
        console=console,
        transient=True,
    )


@contextmanager
def progress_lines(say: Log, title: str | Callable[[], str]) -> Iterator[Progress]:
    """Say about every `SECONDS` how far work is; yields a callback that takes done and total."""
    start, at = time.monotonic(), [0, 0]
    ended = Event()

    def advance(done: int, total: int) -> None:
        at[:] = done, total

    def report() -> None:
        while not ended.wait(SECONDS):
            done, total = at
            left = left_in_words(time_left(done, total, time.monotonic() - start))
            parts = [f"{done:,} of {total:,}" if total else "", left]
            name = title if isinstance(title, str) else title()
            known = ", ".join(filter(None, parts)) or (
                f"running for {duration(time.monotonic() - start)}"
            )
            say(f"{name}: {known}")

    thread = Thread(target=report, daemon=True)
    thread.start()
    try:
        yield advance
    finally:
        ended.set()
        thread.join()
