"""The charts of the report as SVG files, and in notebooks.

A file has no style sheet: the colours of the light page are attributes of each element, so that
programs that know little CSS draw it in the same way.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from oodzoo.core.errors import InputError
from oodzoo.core.io import write_tidily
from oodzoo.report import sections_of
from oodzoo.report.chart import WIDE, Drawing, mark, text_width
from oodzoo.report.combination import comparison_figure
from oodzoo.report.page import Block, Chooser, Figure, Key, resource
from oodzoo.report.ranking_section import ranking_figure
from oodzoo.report.scores import scatters, scores_figure

if TYPE_CHECKING:
    from oodzoo.combining.evaluation.result import Evaluation
    from oodzoo.ranking.ranking import Ranking
    from oodzoo.ranking.testbed.bed import TestBed
    from oodzoo.report.record import Run

MARGIN, LINE = 20, 22
FONT = "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif"
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Plot:
    """A chart; notebooks show it.

    Attributes
    ----------
    title : str
    svg : str
        A self-contained SVG document.
    """

    title: str
    svg: str = dataclasses.field(repr=False)

    def save(self, path: str | Path) -> None:
        """Write the chart to an .svg file."""
        path = Path(path)
        check_suffix(path)
        write_tidily(path, self.svg.encode())

    def _repr_svg_(self) -> str:
        return self.svg


def check_suffix(path: Path) -> None:
    """Reject a file that does not end in .svg."""
    if path.suffix.lower() != ".svg":
        raise InputError(
            f"{str(path)!r} must end in .svg, the only format of figures; browsers and Inkscape "
            "convert SVG to other formats"
        )


def plot_ranking(ranking: Ranking) -> Plot:
    """The terms of the score of each model, its expected accuracy with interval, and its rank."""
    return _plotted(ranking_figure(ranking))


def plot_comparison(evaluation: Evaluation, *, baselines: bool = True) -> Plot:
    """Accuracy of the methods on average, and of the main ones on each held-out domain.

    `baselines=False` leaves out what the main ones are compared with.
    """
    return _plotted(comparison_figure(evaluation, baselines=baselines))


def plot_scores(beds: Sequence[TestBed]) -> Plot:
    """Each score against accuracy, with its weighted tau: a row of panels for each test bed."""
    if len(beds) == 1:
        figure = scores_figure(beds[0])
        return _plot(f"{beds[0].name}: {figure.title.lower()}", figure.text, [("", figure.panels)])
    names = list(dict.fromkeys(name for bed in beds for name in bed.scores))
    rows = [(bed.name, scatters(bed, [n for n in names if n in bed.scores])) for bed in beds]
    return _plot("Scores against accuracy", "", rows)


def write_figures(run: Run, folder: str | Path) -> list[Path]:
    """Write each chart of the report of a run as an SVG file.

    Parameters
    ----------
    run : Run
    folder : path

    Returns
    -------
    list of Path
        The files; each has the name of the CSV file of the chart on the page.
    """
    written = []
    for figure in _charts(block for section in sections_of(run, {}) for block in section.blocks):
        written.append(Path(folder) / f"{figure.table.ident}.svg")
        _plotted(figure).save(written[-1])
    return written


def _charts(blocks: Iterator[Block]) -> Iterator[Figure]:
    for block in blocks:
        if isinstance(block, Chooser):
            yield from _charts(each for _, option in block.options for each in option)
        elif isinstance(block, Figure) and (block.chart or block.panels):
            yield block


# --- drawing -------------------------------------------------------------------------------------


def _plotted(figure: Figure) -> Plot:
    drawings = [figure.chart.wide] if figure.chart else figure.panels
    return _plot(figure.title, figure.text, [("", drawings)], figure.legend)


def _plot(
    title: str,
    description: str,
    groups: Sequence[tuple[str, Sequence[Drawing]]],
    legend: Sequence[Key] = (),
) -> Plot:
    """Put a title, groups of drawings with their headings, and a legend below each other."""
    sheet = Drawing(0, 0, title, description)
    sheet.text(MARGIN, MARGIN + 12, title, "title")
    y, right = MARGIN + 2.0 * LINE, MARGIN + text_width(title, 15)
    for heading, drawings in groups:
        if heading:
            sheet.text(MARGIN, y + 8, heading, "head")
            y += LINE
        for line in _lines(drawings):
            x: float = MARGIN
            for drawing in line:
                sheet.place(drawing, x, y)
                right = max(right, x + drawing.width)
                x += drawing.width + MARGIN
            y += max(drawing.height for drawing in line) + MARGIN
    for key in legend:
        _draw_key(sheet, key, MARGIN + 9, y)
        sheet.text(MARGIN + LINE, y + 4, key.text, "tick")
        right = max(right, MARGIN + LINE + text_width(key.text, 11))
        y += LINE
    sheet.width, sheet.height = right + MARGIN, y
    return Plot(title, _document(sheet))


def _lines(drawings: Sequence[Drawing]) -> Iterator[list[Drawing]]:
    """As many drawings beside each other as fit."""
    line: list[Drawing] = []
    for drawing in drawings:
        if line and sum(each.width + MARGIN for each in line) + drawing.width > WIDE.width:
            yield line
            line = []
        line.append(drawing)
    yield line


def _draw_key(sheet: Drawing, key: Key, x: float, y: float) -> None:
    if key.shape == "dashed":
        sheet.line(x - 9, y, x + 9, y, "diagonal")
    elif key.shape == "level":
        sheet.rect(x - 6, y - 1, 12, 2, f"dot {key.kind}")
    else:
        mark(sheet, key.shape, x, y, f"dot {key.kind}", key.text)


# --- the styles of a file ------------------------------------------------------------------------

_START = re.compile(r'<(?P<tag>[a-z]+)(?P<attributes>(?: [\w:-]+="[^"]*")*)(?P<end>/?)>')
_STYLED = re.compile(r' (class|style|data-tip)="([^"]*)"')


class _Rule(NamedTuple):
    weight: int
    """The more classes a selector has, the later it counts."""
    tag: str
    classes: frozenset[str]
    style: dict[str, str]


def _document(sheet: Drawing) -> str:
    width, height = f"{sheet.width:.0f}", f"{sheet.height:.0f}"
    style = f"background:#fff;font-family:{FONT};max-width:100%;height:auto"
    namespace = "http://www.w3.org/2000/svg"
    text = sheet.render(xmlns=namespace, width=width, height=height, style=style)
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", _START.sub(_styled, text)) + "\n"


def _styled(found: re.Match[str]) -> str:
    """The start of an element with the style of its classes; nothing if nobody sees it."""
    tag, attributes = found["tag"], found["attributes"]
    own = dict(_STYLED.findall(attributes))
    style = _style(tag, own.get("class", ""))
    if "transparent" in style.values():
        return ""
    written = ";".join([f"{name}:{value}" for name, value in style.items()])
    written = ";".join(filter(None, [written, own.get("style", "")]))
    rest = _STYLED.sub("", attributes) + (f' style="{written}"' if written else "")
    return f"<{tag}{rest}{found['end']}>"


@functools.cache
def _style(tag: str, kind: str) -> dict[str, str]:
    style: dict[str, str] = {}
    for rule in _rules():
        if rule.tag in ("", tag) and rule.classes <= set(kind.split()):
            style |= rule.style
    mark_colour = style.pop("--mark", "")
    return {name: value.replace("var(--mark)", mark_colour) for name, value in style.items()}


@functools.cache
def _rules() -> list[_Rule]:
    """The rules of `chart.css`, with the colours of the light page."""
    light = dict(re.findall(r"(--[a-z]+): (#\w+);", resource("page.css").partition("}")[0]))
    rules = [_Rule(0, "text", frozenset(["title"]), {"font-size": "15px", "font-weight": "650"})]
    for selectors, body in re.findall(r"^([^{]+) \{ (.*?);? \}$", resource("chart.css"), re.M):
        style = dict(each.split(": ", 1) for each in body.split("; "))
        for name, value in style.items():
            style[name] = re.sub(r"var\((--(?!mark)\w+)\)", lambda it: light[it[1]], value)
        for selector in selectors.split(", "):
            tag = "text" if selector == "svg text" else ""
            classes = frozenset(re.findall(r"\.([\w-]+)", selector))
            if ":" not in selector:
                rules.append(_Rule(len(classes), tag, classes, style))
    return sorted(rules, key=lambda rule: rule.weight)
