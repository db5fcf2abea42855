"""What a page is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from oodzoo.report.charts.frame import Chart
from oodzoo.report.table import Table


@dataclass(frozen=True)
class Key:
    """An entry of a legend: the class of the mark, its shape, and what it stands for."""

    kind: str
    shape: str
    text: str


@dataclass(frozen=True)
class Figure:
    """A chart or several small ones, with what they show in words and their numbers.

    Attributes
    ----------
    title : str
    text : str
        What is seen, and how it is read.
    chart : Chart, optional
    panels : sequence of Markup
        Small pictures that flow in as many columns as there is room for.
    dense : bool
        Whether two of them stand side by side even on a phone.
    legend : sequence of Key
    table : Table, optional
    folded : bool
        Whether the table waits behind a summary.
    """

    title: str
    text: str = ""
    chart: Chart | None = None
    panels: Sequence[Markup] = ()
    dense: bool = False
    legend: Sequence[Key] = ()
    table: Table | None = None
    folded: bool = True
    block: str = "figure"


@dataclass(frozen=True)
class Picture:
    """A thumbnail: a data address, and what it shows."""

    address: str
    text: str


@dataclass(frozen=True)
class Gallery:
    """A few images of each domain."""

    rows: Sequence[tuple[str, Sequence[Picture]]]
    block: str = "gallery"


@dataclass(frozen=True)
class Facts:
    """Names and values."""

    pairs: Sequence[tuple[str, str]]
    title: str = ""
    command: str | None = None
    block: str = "facts"


@dataclass(frozen=True)
class Section:
    """A part of the page, with an entry in its navigation."""

    ident: str
    title: str
    lead: str
    blocks: Sequence[Figure | Gallery | Facts] = field(default_factory=tuple)
    short: str = ""

    @property
    def entry(self) -> str:
        return self.short or self.title
