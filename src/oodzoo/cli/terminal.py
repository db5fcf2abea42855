"""Terminal output: results on stdout in tables that fit; messages and progress on stderr."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any, ClassVar, NamedTuple, Self

from oodzoo.core.events import Log, TimeLeft, share_done
from oodzoo.core.text import count, duration, printable, wrapped

_INDENT = "  "


class Part(NamedTuple):
    """A table, or the part of one, whose first `left` columns are text."""

    columns: list[str]
    rows: list[list[str]]
    left: int


class Fitted(NamedTuple):
    """What is printed of a table.

    Attributes
    ----------
    parts : list of Part
        Tables one below the other; empty if no table fits.
    lines : list of str
        Instead, two or more lines for each row.
    dropped : list of str
        Columns that are left out.
    """

    parts: list[Part]
    lines: list[str]
    dropped: list[str]


def fit_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    left: int,
    width: int,
    least: Sequence[str] = (),
) -> Fitted:
    """Fit a table into a width.

    The columns `least` are left out, the first one first, until the others fit. If they never do,
    the other columns come back in several tables, each with the first `left` ones; if these take
    all the width, each row becomes lines.

    Examples
    --------
    >>> rows = [["net", 93.1, 512]]
    >>> fitted = fit_table(["model", "acc.", "d"], rows, left=1, width=10, least=["d"])
    >>> fitted.parts[0].columns, fitted.dropped
    (['model', 'acc.'], ['d'])
    """
    names = [printable(column) for column in columns]
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    dropped: list[str] = []
    n_text = left
    for name in (None, *least):
        if name is not None and name in names:
            at = names.index(name)
            n_text -= at < n_text
            dropped.append(names.pop(at))
            cells = [row[:at] + row[at + 1 :] for row in cells]
        if needed_width(names, cells, n_text) <= width:
            return Fitted([Part(names, cells, n_text)], [], dropped)
    names = [printable(column) for column in columns]
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    parts = _split(names, cells, left, width, whole=True) or _split(names, cells, left, width)
    return Fitted(parts, [] if parts else _folded(names, cells, left, width), [])


def needed_width(columns: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> int:
    """Width of a table in which text is broken between words, and nothing else."""
    return sum(narrowest(columns, rows, left)) + len(columns) - 1


def narrowest(columns: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> list[int]:
    """The smallest width of each column; text may be broken between words."""
    from rich.cells import cell_len

    def width(cell: str, is_text: bool) -> int:
        return (
            max((cell_len(word) for word in cell.split()), default=0) if is_text else cell_len(cell)
        )

    return [
        max(width(cell, at < left) for cell in (name, *(row[at] for row in rows)))
        for at, name in enumerate(columns)
    ]


def column_widths(part: Part, width: int) -> list[int]:
    """The width of each column: text that is too wide is broken between words."""
    from rich.cells import cell_len

    least = narrowest(*part)
    widths = [
        max(cell_len(cell) for cell in (name, *(row[at] for row in part.rows)))
        for at, name in enumerate(part.columns)
    ]
    while sum(widths) + len(widths) - 1 > width:
        slack = [each - low for each, low in zip(widths, least, strict=True)]
        if not any(slack):
            break
        widths[slack.index(max(slack))] -= 1
    return widths


def _split(
    columns: list[str], rows: list[list[str]], left: int, width: int, *, whole: bool = False
) -> list[Part]:
    """Several tables, each with the first columns; none if another column does not fit there.

    With `whole`, text is not broken, not even between words.
    """
    parts: list[Part] = []
    rest = list(range(left, len(columns)))
    while rest:
        chosen = list(range(left))
        while rest and _fits(columns, rows, 0 if whole else left, [*chosen, rest[0]], width):
            chosen.append(rest.pop(0))
        if len(chosen) == left:
            return []
        parts.append(
            Part([columns[at] for at in chosen], [[r[a] for a in chosen] for r in rows], left)
        )
    return parts


def _fits(
    columns: list[str], rows: list[list[str]], left: int, chosen: list[int], width: int
) -> bool:
    some = [[row[at] for at in chosen] for row in rows]
    return needed_width([columns[at] for at in chosen], some, left) <= width


def _folded(columns: list[str], rows: list[list[str]], left: int, width: int) -> list[str]:
    """For each row a line of its text, then its numbers with their names, as many as fit."""
    lines = []
    for row in rows:
        lines.append("  ".join(filter(None, row[:left])))
        line = ""
        for name, cell in zip(columns[left:], row[left:], strict=True):
            pair = f"{name} {cell}".strip()
            if line and len(_INDENT + line) + 2 + len(pair) > width:
                lines.append(_INDENT + line)
                line = ""
            line = f"{line}  {pair}" if line else pair
        if line:
            lines.append(_INDENT + line)
    return lines


# --- progress -------------------------------------------------------------------------------------

SECONDS = 30.0
"""Time between two lines of progress."""


class Meter:
    """How far the work is that a bar or a line shows, called with what is done and the total.

    Parameters
    ----------
    changed : callable
        Called with the meter when more is done.
    """

    def __init__(self, changed: Callable[[Meter], None] = lambda _: None) -> None:
        self._changed = changed
        self.restart()

    def restart(self) -> None:
        """Other work begins."""
        self.done = self.total = 0
        self.left = TimeLeft()

    def __call__(self, done: int, total: int, share: float | None = None) -> None:
        """So much is done; the share of the work, if it is better known than by these numbers."""
        self.done, self.total = done, total
        self.left.reach(share_done(done, total, {} if share is None else {"share": share}))
        self._changed(self)

    @property
    def words(self) -> str:
        """What is done, and the time left, for a line."""
        if not self.total:
            return f"running for {duration(self.left.elapsed)}"
        what = f"{self.done:,} of {self.total:,} ({100 * self.left.share:.0f} %)"
        if self.left.share == 1.0:
            return f"{what}, finishing"
        return f"{what}, {self.left.words or f'running for {duration(self.left.elapsed)}'}"


class Bars:
    """Bars of rich on a console.

    Parameters
    ----------
    console : rich.console.Console
    columns : str
        Shown before the time left.
    """

    def __init__(self, console: Any, *columns: str) -> None:
        from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
        from rich.table import Column
        from rich.text import Text

        class Left(ProgressColumn):
            """The time left, which runs down while nothing is reported."""

            def render(self, task: Task) -> Text:
                words = task.fields["meter"].left.words
                return Text(words, style="progress.remaining", no_wrap=True)

        self._rich = Progress(
            "{task.description}",
            BarColumn(bar_width=None, table_column=Column(ratio=1, max_width=40)),
            TextColumn("{task.fields[numbers]}", table_column=Column(no_wrap=True)),
            *columns,
            Left(table_column=Column(no_wrap=True)),  # the bar gets shorter instead
            console=console,
            transient=True,
        )
        self._tasks: dict[Meter, Any] = {}

    def __enter__(self) -> Self:
        self._rich.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._rich.stop()

    def add(self, title: str, **fields: Any) -> Meter:
        """Add a bar."""
        meter = Meter(self._show)
        self._tasks[meter] = self._rich.add_task(
            title, total=None, meter=meter, numbers="", **fields
        )
        return meter

    def _show(self, meter: Meter) -> None:
        share = meter.left.share if meter.total else None
        numbers = f"{meter.done}/{meter.total}" if meter.total else ""
        total = None if share is None else 1.0
        self.change(meter, completed=share or 0.0, total=total, numbers=numbers)

    def change(self, meter: Meter, **fields: Any) -> None:
        """Change the title of a bar, its columns, or whether it is visible."""
        self._rich.update(self._tasks[meter], **fields)


@contextmanager
def progress_lines(say: Log, title: str) -> Iterator[Meter]:
    """Say about every `SECONDS` how far work is."""
    meter, ended = Meter(), Event()

    def report() -> None:
        while not ended.wait(SECONDS):
            say(f"{title}: {meter.words}")

    thread = Thread(target=report, daemon=True)
    thread.start()
    try:
        yield meter
    finally:
        ended.set()
        thread.join()


# --- the terminal ---------------------------------------------------------------------------------

Document = dict[str, Any]

WIDTH = 80
"""Longest lines of prose."""

_MOST_OF_A_KIND = 20
_QUOTED = re.compile(r"""(?<!\w)('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")(?!\w)""")


class Output(io.FileIO):
    """stdout or stderr; the null device after its reader has left, as `head` does.

    A closed pipe is not an error, and does not end the work.
    """

    unread: ClassVar[set[int]] = set()
    """File descriptors (1, 2) whose reader has left."""

    def write(self, content: Any, /) -> int:
        try:
            return super().write(content)
        except BrokenPipeError:
            self.unread.add(self.fileno())
            discard(self.fileno())
            return memoryview(content).nbytes

    @classmethod
    def install(cls) -> None:
        """Replace stdout and stderr, unless they are terminals or not those of the process."""
        for name in ("stdout", "stderr"):
            old = getattr(sys, name)
            if old is not getattr(sys, f"__{name}__") or old.isatty():
                continue
            raw = cls(old.fileno(), "w", closefd=False)
            new = io.TextIOWrapper(
                raw if old.write_through else io.BufferedWriter(raw),
                old.encoding,
                old.errors,
                line_buffering=old.line_buffering,
                write_through=old.write_through,
            )
            setattr(sys, name, new)


def discard(descriptor: int) -> None:
    """Open the null device in place of a file that cannot be written."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)


def paragraph_on(console: Any, text: str) -> list[str]:
    """A text as lines that break between words on a terminal; one line elsewhere."""
    one = printable(text)
    return wrapped(one, console.width) if console.is_terminal else [one]


class Terminal:
    """Where a command writes.

    With `json`, stdout gets one JSON document instead of tables. With `quiet`, messages, progress
    and warnings are left out; the number of warnings is written at the end. Otherwise at most 20
    warnings that differ only in quoted parts are written, and the number of the others at the end.
    With `verbose`, all of them are, with their origin, and details of the work and its results.
    Used as a context manager, which ends with these numbers.
    """

    def __init__(self, *, json: bool = False, quiet: bool = False, verbose: bool = False) -> None:
        from rich.console import Console

        self.json = json
        self.quiet = quiet
        self.verbose = verbose
        # Lines are neither cut nor wrapped unless stdout is a terminal.
        width = None if sys.stdout.isatty() else 10_000
        self._results = Console(highlight=False, emoji=False, width=width)
        self.messages = Console(stderr=True, highlight=False, emoji=False)
        self._warnings: Counter[str] = Counter()  # by kind

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.quiet:
            if n := self._warnings.total():
                see = "it" if n == 1 else "them"
                self._write(f"{count(n, 'warning')}; run without -q to see {see}")
            return
        for kind, n in self._warnings.items():
            if n > _MOST_OF_A_KIND and not self.verbose:
                self._write_warning(f"{n - _MOST_OF_A_KIND:,} more: {kind}")

    @property
    def shows_progress(self) -> bool:
        return not self.quiet and self.messages.is_terminal

    def say(self, message: str) -> None:
        """Write a message about the current step."""
        if not self.quiet:
            self._write(message)

    def detail(self, message: str) -> None:
        """Write a message that only `--verbose` shows."""
        if self.verbose:
            self.say(message)

    def warn(self, message: str) -> None:
        kind = _QUOTED.sub("'…'", message)
        self._warnings[kind] += 1
        if not self.quiet and (self.verbose or self._warnings[kind] <= _MOST_OF_A_KIND):
            self._write_warning(message)

    def show_warning(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        *_: object,
        **__: object,
    ) -> None:
        """Write a warning of Python, as :func:`warnings.showwarning`."""
        text = " ".join(str(message).split())
        if self.verbose:
            text += f" ({category.__name__} of {filename}:{lineno})"
        self.warn(text)

    def _write(self, message: str, style: str | None = None) -> None:
        self.messages.print(printable(message), style=style, markup=False, soft_wrap=True)

    def _write_warning(self, message: str) -> None:
        for line in paragraph_on(self.messages, f"warning: {message}"):
            self._write(line, style="yellow")

    def document(self, document: Document) -> None:
        """Write the result as one JSON document, with `--json` only."""
        if self.json:
            json.dump(document, sys.stdout, indent=1, allow_nan=False)
            sys.stdout.write("\n")
            sys.stdout.flush()  # an error is raised here rather than at exit

    def line(self, text: str) -> None:
        """Write a line of the result, without `--json` only."""
        if not self.json:
            for line in wrapped(printable(text), self._results.width) or [""]:
                self._results.print(line, markup=False, soft_wrap=True)

    @property
    def prose_width(self) -> int:
        """Width of the lines of a paragraph."""
        return min(WIDTH, self._results.width)

    def paragraph(self, text: str) -> None:
        """Write prose of the result in lines that are easy to read, without `--json` only."""
        for line in wrapped(printable(text), self.prose_width):
            self.line(line)

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[object]],
        *,
        title: str | None = None,
        left: int = 1,
        least: Sequence[str] = (),
    ) -> list[str]:
        """Write a table, without `--json` only; the first `left` columns are left-aligned text.

        On a terminal that is too narrow, the columns `least` are left out, the first one first; see
        :func:`~oodzoo.cli.terminal.fit_table`. Returns the columns that were left out.
        """
        if self.json:
            return []
        fitted = fit_table(columns, rows, left=left, width=self._results.width, least=least)
        for number, part in enumerate(fitted.parts):
            self._print_table(part, None if number else title)
        if fitted.lines and title is not None:
            self.line(title)
        for line in fitted.lines:
            self._results.print(line, markup=False, soft_wrap=True)
        if fitted.dropped:
            self.line(f"Not shown at this width: {', '.join(fitted.dropped).removesuffix('.')}.")
        return fitted.dropped

    def _print_table(self, part: Part, title: str | None) -> None:
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
        widths = column_widths(part, self._results.width)
        for index, (column, width) in enumerate(zip(part.columns, widths, strict=True)):
            number = index >= part.left
            table.add_column(
                Text(column),
                justify="right" if number else "left",
                no_wrap=number,
                width=width,
                overflow="fold",  # a truncated name could not be copied
            )
        for row in part.rows:
            table.add_row(*map(Text, row))
        self._results.print(table)

    @contextmanager
    def progress(self, title: str) -> Iterator[Meter | None]:
        """Show a bar on a terminal, else a line now and then; None if quiet."""
        if self.quiet:
            yield None
        elif not self.shows_progress:
            with progress_lines(self.say, title) as meter:
                yield meter
        else:
            with Bars(self.messages) as bars:
                yield bars.add(title)
