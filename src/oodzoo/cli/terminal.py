"""Terminal output: results on stdout; messages, warnings and progress on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from oodzoo._text import printable
from oodzoo.events import Progress

Document = dict[str, Any]


class Terminal:
    """Where a command writes.

    With `json`, stdout gets one JSON document instead of tables. With `quiet`, messages and
    progress are left out. Warnings and errors are always written, to stderr.
    """

    def __init__(self, *, json: bool = False, quiet: bool = False) -> None:
        from rich.console import Console

        self.json = json
        self.quiet = quiet
        # Lines are neither cut nor wrapped unless stdout is a terminal.
        width = None if sys.stdout.isatty() else 10_000
        self._results = Console(highlight=False, emoji=False, width=width)
        self.messages = Console(stderr=True, highlight=False, emoji=False)

    @property
    def shows_progress(self) -> bool:
        return not self.quiet and self.messages.is_terminal

    def say(self, message: str) -> None:
        """Write a message about the current step."""
        if not self.quiet:
            self.messages.print(printable(message), markup=False, soft_wrap=True)

    def warn(self, message: str) -> None:
        text = f"warning: {printable(message)}"
        self.messages.print(text, style="yellow", markup=False, soft_wrap=True)

    def document(self, document: Document) -> None:
        """Write the result as one JSON document, with `--json` only."""
        if self.json:
            json.dump(document, sys.stdout, indent=1, allow_nan=False)
            sys.stdout.write("\n")
            sys.stdout.flush()  # raises BrokenPipeError here rather than at exit

    def line(self, text: str) -> None:
        """Write a line of the result, without `--json` only."""
        if not self.json:
            self._results.print(printable(text), markup=False)

    def lines(self, text: str) -> None:
        """Write several lines of the result, without `--json` only."""
        for line in text.splitlines():
            self.line(line)

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[object]],
        *,
        title: str | None = None,
        left: int = 1,
    ) -> None:
        """Write a table, without `--json` only; the first `left` columns are left-aligned text."""
        if self.json:
            return
        from rich import box
        from rich.table import Table
        from rich.text import Text

        heading = None if title is None else Text(printable(title), style="table.title")
        table = Table(
            title=heading,
            title_justify="left",
            box=box.SIMPLE_HEAD,
            show_edge=False,
            padding=(0, 0),
        )
        for index, column in enumerate(columns):
            number = index >= left
            table.add_column(
                Text(printable(column)),
                justify="right" if number else "left",
                no_wrap=number,
                overflow="fold",  # a truncated name could not be copied
            )
        for row in rows:
            table.add_row(*(Text(printable(str(cell))) for cell in row))
        self._results.print(table)

    @contextmanager
    def progress(self, title: str) -> Iterator[Progress | None]:
        """Show a progress bar; yields a callback, or None if progress is not shown."""
        if not self.shows_progress:
            yield None
            return
        with self.bars() as bar:
            task = bar.add_task(title, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)

    def bars(self, *columns: str) -> Any:
        """Create progress bars on stderr, with additional columns before the remaining time."""
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

        return Progress(
            "{task.description}",
            BarColumn(),
            MofNCompleteColumn(),
            *columns,
            TimeRemainingColumn(),
            console=self.messages,
            transient=True,
        )
