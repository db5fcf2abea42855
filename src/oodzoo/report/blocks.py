"""Building blocks of the page: sections, figures, images and facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oodzoo.core.tables import Table
from oodzoo.report.chart import Chart, Drawing


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


def millions(value: float | None) -> float | None:
    """A number of parameters as tables have it."""
    return None if value is None else value / 1e6
