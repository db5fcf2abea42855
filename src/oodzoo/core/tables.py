"""Tables of results: columns and rows, as text, HTML, CSV and Markdown."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import chain
from typing import Any, Self

from oodzoo.core.text import (
    MISSING,
    count,
    csv_cell,
    is_number,
    number,
    printable,
    significant,
    span,
    wrapped,
)

LONG = 30
"""Tables with more rows than this are not shown as a whole at first."""

MOST_COLUMNS = 20


@dataclass(frozen=True)
class Column:
    """A column of a table; `title` is what people read, `key` its name in the CSV file."""

    title: str
    key: str
    digits: int | None = None
    """Decimals of a number; None for three significant figures."""
    text: bool = False
    """Whether it is text, aligned left."""
    interval: bool = False
    """Whether values are pairs (low, high); the CSV file has a column for each."""
    shown: bool = True
    """False for a column of the CSV file only."""
    of: Callable[[Any], Any] | None = None
    """The value of an item; by default, its attribute named `key`."""

    def order(self, value: Any) -> float | None:
        """The number that a cell is sorted by, if there is one."""
        first = value[0] if self.interval and value else value
        return float(first) if not self.text and is_number(first) else None

    def show(self, value: Any) -> str:
        """A cell as text."""
        if value is None:
            return MISSING
        if isinstance(value, bool):
            return "yes" if value else "no"
        if self.interval:
            return span(*value, digits=self.digits or 0)
        if isinstance(value, tuple):
            return ", ".join(map(str, value))
        if self.text or isinstance(value, str):
            return str(value)
        return significant(value) if self.digits is None else number(value, self.digits)


@dataclass(frozen=True)
class Table:
    """A table; `ident` is also the name of its CSV file.

    Examples
    --------
    >>> table = Table.of(["model", "%"], [["resnet50", "71.2"], ["vit", "9.0"]])
    >>> print(table.text())
    model        %
    resnet50  71.2
    vit        9.0
    >>> print(table.markdown())
    | model | % |
    | --- | --- |
    | resnet50 | 71.2 |
    | vit | 9.0 |
    """

    ident: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    head: int = 0
    """The column that names each row."""
    notes: Sequence[str] = ()
    """Paragraphs below it, in HTML."""

    @classmethod
    def of(
        cls,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        caption: str = "",
        notes: Sequence[str] = (),
        left: Collection[str] = (),
    ) -> Self:
        """A table of texts; the first column and those of `left` are aligned left."""
        kinds = [Column(name, name, text=not at or name in left) for at, name in enumerate(columns)]
        return cls("", caption, kinds, rows, notes=notes)

    @classmethod
    def over(
        cls,
        ident: str,
        caption: str,
        columns: Sequence[Column],
        items: Iterable[Any],
        head: int = 0,
    ) -> Self:
        """A table with a row for each item."""
        rows = [
            [column.of(each) if column.of else getattr(each, column.key) for column in columns]
            for each in items
        ]
        return cls(ident, caption, columns, rows, head)

    @property
    def shown(self) -> list[tuple[int, Column]]:
        return [(at, column) for at, column in enumerate(self.columns) if column.shown]

    @property
    def long(self) -> bool:
        return len(self.rows) > LONG

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """The titles of the columns, and what is shown in each row."""
        titles = [column.title for _, column in self.shown]
        return titles, [[column.show(row[at]) for at, column in self.shown] for row in self.rows]

    def text(self) -> str:
        """Aligned lines."""
        titles, rows = self.cells()
        lines = [titles, *rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        sides = ["<" if column.text else ">" for _, column in self.shown]
        return "\n".join(
            "  ".join(
                f"{cell:{side}{width}}"
                for cell, side, width in zip(line, sides, widths, strict=True)
            ).rstrip()
            for line in lines
        )

    def markdown(self) -> str:
        """A table of Markdown; texts must have been escaped."""
        titles, rows = self.cells()
        lines = [titles, ["---"] * len(titles), *rows]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)

    def html(self, *, most_rows: int = LONG, most_columns: int = MOST_COLUMNS) -> str:
        """A table that notebooks show like a data frame of pandas; the rest of it is counted.

        It sets no colours, so that it follows the theme of the notebook, light or dark.

        Examples
        --------
        >>> rows = [["a", "90.1"], ["b", "75.0"], ["c", "9.9"]]
        >>> print(Table.of(["model", "%"], rows).html(most_rows=2))
        <table border="1" class="dataframe">
        <thead>
        <tr><th style="text-align: left">model</th><th style="text-align: right">%</th></tr>
        </thead>
        <tbody>
        <tr><th style="text-align: left">a</th><td style="text-align: right">90.1</td></tr>
        <tr><th style="text-align: left">b</th><td style="text-align: right">75.0</td></tr>
        <tr><td colspan="2" style="text-align: left">… 1 more row</td></tr>
        </tbody>
        </table>
        """

        def line(cells: Sequence[str], more: str, tag: str = "td") -> str:
            tags = ["th", *[tag] * len(sides)]
            shown = [
                f'<{tag} style="text-align: {side}">{html_text(cell)}</{tag}>'
                for tag, side, cell in zip(tags, sides, cells, strict=False)
            ]
            rest = f'<{tag} style="text-align: left">{more}</{tag}>' if more else ""
            return f"<tr>{''.join(shown)}{rest}</tr>"

        titles, rows = self.cells()
        sides = ["left" if column.text else "right" for _, column in self.shown[:most_columns]]
        hidden = len(titles) - len(sides)
        body = [line(row, "…" if hidden else "") for row in rows[:most_rows]]
        if len(rows) > most_rows:
            text = f"… {count(len(rows) - most_rows, 'more row')}"
            width = len(sides) + bool(hidden)
            body.append(f'<tr><td colspan="{width}" style="text-align: left">{text}</td></tr>')
        caption = f'<caption style="text-align: left">{html_text(self.caption)}</caption>'
        return "\n".join(
            [
                '<table border="1" class="dataframe">',
                *([caption] if self.caption else []),
                "<thead>",
                line(titles, f"… {count(hidden, 'more column')}" if hidden else "", "th"),
                "</thead>",
                "<tbody>",
                *body,
                "</tbody>",
                "</table>",
                *(f"<p>{html_text(note)}</p>" for note in self.notes),
            ]
        )

    def csv(self) -> str:
        """All columns, with all digits."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\r\n")
        keys = [
            [f"{column.key}_low", f"{column.key}_high"] if column.interval else [column.key]
            for column in self.columns
        ]
        writer.writerow(map(csv_cell, chain.from_iterable(keys)))
        for row in self.rows:
            cells: list[Any] = []
            for column, value in zip(self.columns, row, strict=True):
                cells += (value or (None, None)) if column.interval else [value]
            writer.writerow(map(_csv_text, cells))
        return text.getvalue()

    def link(self) -> str:
        """The CSV file as a data URL."""
        # spreadsheets recognise UTF-8 by the byte-order mark
        content = base64.b64encode(self.csv().encode("utf-8-sig")).decode()
        return f"data:text/csv;charset=utf-8;base64,{content}"


def _csv_text(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return csv_cell(";".join(map(str, value)))
    return repr(value) if isinstance(value, float) else csv_cell(value)


def html_text(text: str) -> str:
    """Escape a text for HTML; control characters, which would be invisible, are spelt out.

    Examples
    --------
    >>> html_text("<b>&")
    '&lt;b&gt;&amp;'
    """
    return escape(printable(text))


def aligned(pairs: Sequence[tuple[str, str]], width: int | None = None) -> list[str]:
    """Pairs as lines of two columns; with `width`, the second one is wrapped.

    Examples
    --------
    >>> aligned([("a", "1"), ("long", "2")])
    ['  a     1', '  long  2']
    >>> aligned([("a", "one two")], 8)
    ['  a  one', '     two']
    """
    longest = max((len(name) for name, _ in pairs), default=0)
    lines = []
    for name, text in pairs:
        start = f"  {name:<{longest}}  "
        if width is None:
            lines.append(start + text)
        else:
            lines += wrapped(text, width, first=start, rest=" " * len(start))
    return lines
