"""Pages: their building blocks, and how they are rendered as one self-contained file."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from oodzoo.core.tables import Table
from oodzoo.report.chart import Chart, Drawing

# --- building blocks ------------------------------------------------------------------------------


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


# --- the page as HTML -----------------------------------------------------------------------------

_END = "\N{MINUS SIGN}?[0-9][0-9.,]*"
_RANGE = f"{_END}(?:\N{EN DASH}| to ){_END}(?:\N{NO-BREAK SPACE}%)?"
_OPTION = "(?<!\\S)\\(?--[a-z][a-z-]*"
_TOGETHER = re.compile(f"{_RANGE}|{_OPTION}")


def render(headline: Headline, sections: Sequence[Section], version: str | None = None) -> str:
    """A self-contained HTML page.

    Parameters
    ----------
    headline : Headline
        The first screen.
    sections : sequence of Section
        What follows, in this order.
    version : str, optional
        Version of oodzoo that computed the results.
    """
    script, style = resource("page.js"), resource("page.css") + resource("chart.css")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"breakable": _breakable, "unbroken": _unbroken}
    template = environment.from_string(resource("page.html.j2"))
    text = template.render(
        headline=headline,
        sections=sections,
        version=version,
        script=Markup(script),
        style=Markup(style),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
    return f"{text.strip()}\n"


def _breakable(name: str) -> Markup:
    """Allow line breaks between the words of a name."""
    return Markup(re.sub(r"([_./-]+)(?=\w)", r"\1<wbr>", str(escape(name))))


def _unbroken(text: str) -> Markup:
    """Prevent line breaks within ranges and options, and between a number and its percent sign."""
    joined = str(escape(text)).replace(" %", "\N{NO-BREAK SPACE}%")
    return Markup(_TOGETHER.sub(r'<span class="together">\g<0></span>', joined))


def resource(name: str) -> str:
    """A file of the page: template, script or style."""
    return files("oodzoo.report").joinpath(name).read_text(encoding="utf-8")
