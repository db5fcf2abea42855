"""What a person sees: results on stdout; messages, warnings and progress on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

Document = dict[str, Any]


class Terminal:
    """Where a command writes.

    With `json` the one document of the command goes to stdout and its tables are not shown; with
    `quiet` messages and progress are left out. Warnings and errors are always shown, on stderr.
    """

    def __init__(self, *, json: bool = False, quiet: bool = False) -> None:
        from rich.console import Console

        self.json = json
        self.quiet = quiet
        # Where nobody looks at lines of a certain width, none is cut or wrapped.
        width = None if sys.stdout.isatty() else 10_000
        self._results = Console(highlight=False, emoji=False, width=width)
        self.messages = Console(stderr=True, highlight=False, emoji=False)

    @property
    def shows_progress(self) -> bool:
        return not self.quiet and self.messages.is_terminal

    def say(self, message: str) -> None:
        """A line about what is going on."""
        if not self.quiet:
            self.messages.print(message, markup=False, soft_wrap=True)

    def warn(self, message: str) -> None:
        self.messages.print(f"warning: {message}", style="yellow", markup=False, soft_wrap=True)

    def document(self, document: Document) -> None:
        """The result for machines: one JSON document, shown with `--json`."""
        if self.json:
            json.dump(document, sys.stdout, indent=1, allow_nan=False)
            sys.stdout.write("\n")
            sys.stdout.flush()  # a reader that has left is noticed here, not at the very end

    def line(self, text: str) -> None:
        """A line of the result for people."""
        if not self.json:
            self._results.print(text, markup=False)

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[object]],
        *,
        title: str | None = None,
        left: int = 1,
    ) -> None:
        """A result as a table; the first `left` columns are text, the others numbers."""
        if self.json:
            return
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(
            title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 0)
        )
        for index, column in enumerate(columns):
            number = index >= left
            table.add_column(
                Text(column),
                justify="right" if number else "left",
                no_wrap=number,
                overflow="fold",  # a name that is cut cannot be copied
            )
        for row in rows:
            table.add_row(*(Text(str(cell)) for cell in row))
        self._results.print(table)

    @contextmanager
    def progress(self, what: str) -> Iterator[Callable[[int, int], None] | None]:
        """Show a bar while work goes on; gives a function to call with (done, total)."""
        if not self.shows_progress:
            yield None
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

        bar = Progress(
            "{task.description}",
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self.messages,
            transient=True,
        )
        with bar:
            task = bar.add_task(what, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
