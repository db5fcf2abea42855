"""Tables: what the page shows of them, and the CSV that holds every figure in full."""

from __future__ import annotations

import base64
import csv
import io
from dataclasses import dataclass
from itertools import chain
from typing import Any

from oodzoo.report.numbers import NOTHING, is_number, number, significant, span

LONG = 30
"""A table with more rows than this starts collapsed."""


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes
    ----------
    title : str
        For people.
    key : str
        For the CSV.
    digits : int or None
        Decimals of a number; None for texts and for numbers of any size.
    text : bool
    interval : bool
        Whether values are pairs (low, high); the CSV has a column for each.
    shown : bool
        False for what only the CSV holds.
    """

    title: str
    key: str
    digits: int | None = None
    text: bool = False
    interval: bool = False
    shown: bool = True

    def order(self, value: Any) -> float | None:
        """By what a cell is sorted, if it is a number."""
        first = value[0] if self.interval and value else value
        return float(first) if not self.text and is_number(first) else None

    def show(self, value: Any) -> str:
        """A cell for people."""
        if value is None:
            return NOTHING
        if isinstance(value, bool):
            return "yes" if value else "no"
        if self.interval:
            return span(*value, digits=self.digits or 0)
        if isinstance(value, list | tuple):
            return ", ".join(map(str, value))
        if self.text or isinstance(value, str):
            return str(value)
        return significant(value) if self.digits is None else number(value, self.digits)


@dataclass(frozen=True)
class Table:
    """Rows of plain values; the column at `head` names its row.

    Attributes
    ----------
    ident : str
        Also the name of the CSV file.
    caption : str
    columns : list of Column
    rows : list of list
    head : int
    """

    ident: str
    caption: str
    columns: list[Column]
    rows: list[list[Any]]
    head: int = 0

    @property
    def shown(self) -> list[tuple[int, Column]]:
        return [(at, column) for at, column in enumerate(self.columns) if column.shown]

    @property
    def long(self) -> bool:
        return len(self.rows) > LONG

    def csv(self) -> str:
        """All columns, with every digit that there is."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\r\n")
        keys = [
            [f"{column.key}_low", f"{column.key}_high"] if column.interval else [column.key]
            for column in self.columns
        ]
        writer.writerow(chain.from_iterable(keys))
        for row in self.rows:
            cells = zip(self.columns, row, strict=True)
            writer.writerow(chain.from_iterable(_plain(column, value) for column, value in cells))
        return text.getvalue()

    def link(self) -> str:
        """The CSV as an address that holds it, so that the page needs nothing beside itself."""
        # the mark says UTF-8 to spreadsheets, which else guess
        content = base64.b64encode(self.csv().encode("utf-8-sig")).decode()
        return f"data:text/csv;charset=utf-8;base64,{content}"


def _plain(column: Column, value: Any) -> list[Any]:
    if column.interval:
        return [_text(end) for end in value or (None, None)]
    return [_text(value)]


def _text(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ";".join(map(str, value))
    return repr(value) if isinstance(value, float) else value
