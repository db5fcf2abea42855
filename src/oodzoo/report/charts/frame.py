"""What charts share: two sizes, axes, and marks that differ in shape as well as in colour."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from oodzoo.report.numbers import ems
from oodzoo.report.scale import Scale
from oodzoo.report.svg import Drawing

MOST_ROWS = 30
"""A chart with a row for each model stops here; the table beside it holds them all."""


@dataclass(frozen=True)
class Size:
    """For which width a chart is drawn; text has the same size in both."""

    width: float
    narrow: bool


WIDE = Size(960, narrow=False)
NARROW = Size(340, narrow=True)


@dataclass(frozen=True)
class Chart:
    """One chart, drawn for a desk and for a phone."""

    wide: Markup
    narrow: Markup


def both(draw: Callable[[Size], Drawing]) -> Chart:
    """Draw a chart for both sizes."""
    return Chart(wide=draw(WIDE).render(), narrow=draw(NARROW).render())


def axis_above(
    drawing: Drawing,
    scale: Scale,
    top: float,
    bottom: float,
    *,
    most: int = 5,
    unit: str = "",
    pieces: Sequence[tuple[float, float]] = (),
) -> None:
    """Thin upright lines with their values above them, as many as have room; zero is stronger.

    Where names stand between the rows, the lines are drawn in pieces (top, bottom) around them.
    """
    while most > 2 and _crowded(scale, most, unit):
        most -= 1
    for value, label in scale.ticks(most):
        x = scale(value)
        for start, end in pieces or [(top, bottom)]:
            drawing.line(x, start, x, end, "zero" if value == 0 else "grid")
        drawing.text(x, top - 6, f"{label}{unit}", "tick", end="middle")


def _crowded(scale: Scale, most: int, unit: str) -> bool:
    ticks = [(scale(value), 11 * ems(f"{label}{unit}")) for value, label in scale.ticks(most)]
    return any(
        x + (width + wide) / 2 + 4 > other
        for (x, width), (other, wide) in itertools.pairwise(ticks)
    )


def mark(drawing: Drawing, shape: str, x: float, y: float, kind: str, tip: str) -> None:
    """A point: circle, square, diamond, triangle or upright line."""
    if shape == "circle":
        drawing.circle(x, y, 5, kind, data_tip=tip)
        return
    data = {
        "square": f"M{x - 4.5:.1f} {y - 4.5:.1f}h9v9h-9z",
        "diamond": f"M{x:.1f} {y - 6:.1f}l6 6l-6 6l-6 -6z",
        "triangle": f"M{x:.1f} {y - 5.5:.1f}l5.5 10h-11z",
        "line": f"M{x - 1:.1f} {y - 6:.1f}h2v12h-2z",
    }[shape]
    drawing.path(data, kind, data_tip=tip)


def whisker(drawing: Drawing, y: float, low: float, high: float, kind: str, tip: str) -> None:
    """An interval, with a wide invisible line that is easy to point at."""
    drawing.line(low, y, high, y, f"whisker {kind}")
    drawing.line(low, y, high, y, "touch", data_tip=tip)
