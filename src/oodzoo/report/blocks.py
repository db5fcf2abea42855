"""Building blocks of the page: sections, figures and tables with their CSV files."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from oodzoo.core.text import MISSING, csv_cell, is_number, number, significant, span
from oodzoo.report.chart import Chart, Drawing

LONG = 30
"""Tables with more rows than this start collapsed."""


@dataclass(frozen=True)
class Column:
    """A column of a table; `title` is its name on the page, `key` that in the CSV file."""

    title: str
    key: str
    digits: int | None = None
    """Decimals of a number; None for three significant figures."""
    text: bool = False
    interval: bool = False
    """Whether values are pairs (low, high); the CSV file has a column for each."""
    shown: bool = True
    """False for a column of the CSV file only."""

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
    """A table that can be sorted and saved as CSV; `ident` is also the name of the file."""

    ident: str
    caption: str
    columns: list[Column]
    rows: list[list[Any]]
    head: int = 0
    """The column that names each row."""

    @property
    def shown(self) -> list[tuple[int, Column]]:
        return [(at, column) for at, column in enumerate(self.columns) if column.shown]

    @property
    def long(self) -> bool:
        return len(self.rows) > LONG

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
            cells = zip(self.columns, row, strict=True)
            writer.writerow(chain.from_iterable(_csv_cells(*cell) for cell in cells))
        return text.getvalue()

    def link(self) -> str:
        """The CSV file as a data URL."""
        # spreadsheets recognise UTF-8 by the byte-order mark
        content = base64.b64encode(self.csv().encode("utf-8-sig")).decode()
        return f"data:text/csv;charset=utf-8;base64,{content}"


def _csv_cells(column: Column, value: Any) -> list[Any]:
    values = (value or (None, None)) if column.interval else (value,)
    return [_csv_text(each) for each in values]


def _csv_text(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return csv_cell(";".join(map(str, value)))
    return repr(value) if isinstance(value, float) else csv_cell(value)


@dataclass(frozen=True)
class Key:
    """An entry of a legend: CSS class and shape of the mark, and its meaning."""

    kind: str
    shape: str
    text: str


@dataclass(frozen=True)
class Figure:
    """A table, with a chart or several small ones."""

    title: str
    table: Table
    text: str = ""
    chart: Chart | None = None
    panels: Sequence[Drawing] = ()
    """Small charts in as many columns as fit."""
    dense: bool = False
    """Whether a phone shows two panels in a row."""
    legend: Sequence[Key] = ()
    folded: bool = True
    """Whether the table starts folded."""
    block: str = "figure"


@dataclass(frozen=True)
class Thumbnail:
    """A small image as a data URL, with its alternative text."""

    url: str
    text: str


@dataclass(frozen=True)
class Gallery:
    """Example images of each domain."""

    rows: Sequence[tuple[str, Sequence[Thumbnail]]]
    block: str = "gallery"


@dataclass(frozen=True)
class PairGallery:
    """Pairs of images, each with a caption."""

    pairs: Sequence[tuple[str, tuple[Thumbnail, Thumbnail]]]
    block: str = "pairs"


@dataclass(frozen=True)
class Facts:
    """A list of names and values, or a command line."""

    pairs: Sequence[tuple[str, str]] = ()
    title: str = ""
    command: str = ""
    block: str = "facts"


@dataclass(frozen=True)
class Card:
    """A few names and values, with an image; `name` says what it is about."""

    name: str
    pairs: Sequence[tuple[str, str]]
    image: Thumbnail | None = None


@dataclass(frozen=True)
class Cards:
    """Images with captions; those without an image are listed as lines of text."""

    title: str
    cards: Sequence[Card]
    text: str = ""
    block: str = "cards"


@dataclass(frozen=True)
class Change:
    """Something that would change the result; `gain` says by how much, `basis` whose gain it is."""

    title: str
    text: str
    gain: str = ""
    basis: str = ""
    commands: Sequence[str] = ()
    """How to do it, one after the other."""


@dataclass(frozen=True)
class Changes:
    """A list of what would change the result."""

    changes: Sequence[Change]
    block: str = "changes"


@dataclass(frozen=True)
class Chooser:
    """Blocks of which the reader sees one group at a time, the first one at first."""

    ident: str
    label: str
    options: Sequence[tuple[str, Sequence[Block]]]
    block: str = "chooser"


Block = Figure | Gallery | PairGallery | Facts | Cards | Changes | Chooser


@dataclass(frozen=True)
class Section:
    """A section of the page; `short` is its title in the navigation."""

    ident: str
    title: str
    lead: str
    blocks: Sequence[Block]
    short: str = ""


@dataclass(frozen=True)
class Tile:
    """A key figure."""

    value: str
    label: str
    note: str = ""


@dataclass(frozen=True)
class Measured:
    """The number that a page is about: a small chart may show its interval."""

    value: str
    label: str
    interval: str = ""
    chart: Drawing | None = None


@dataclass(frozen=True)
class Step:
    """Something to do next: what it is for, and the command."""

    title: str
    command: str


@dataclass(frozen=True)
class Headline:
    """The first screen of the page; `subject` is what it recommends."""

    sentence: str = ""
    """The end of the headline, after the subject."""
    subject: str | None = None
    clear: bool = True
    """Whether to recommend it; False for a model whose interval of the rank includes the last."""
    measured: Measured | None = None
    meaning: str = ""
    """What the number means, in a sentence or two."""
    steps: Sequence[Step] = ()
    steps_note: str = ""
    remarks: Sequence[str] = ()
    tiles: Sequence[Tile] = ()
