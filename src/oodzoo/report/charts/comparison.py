"""One model, several side by side, and their selected features, on each test domain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oodzoo.report.charts.frame import Chart, Size, axis_above, both, mark, whisker
from oodzoo.report.numbers import is_number, number, shortened
from oodzoo.report.scale import Scale, percent
from oodzoo.report.svg import Drawing

LANE = 19


@dataclass(frozen=True)
class Lane:
    """One way to classify: its accuracy on a test domain or on average.

    Attributes
    ----------
    title : str
    short : str
        The title where there is little room.
    kind, shape : str
        Of its mark.
    value : float
    error : float or None
    """

    title: str
    short: str
    kind: str
    shape: str
    value: float
    error: float | None


def comparison_chart(groups: Sequence[tuple[str, Sequence[Lane]]], finding: str) -> Chart:
    """A group for the average and for each test domain, and in it a lane for each way."""
    values: list[object] = []
    for _, lanes in groups:
        for lane in lanes:
            values += [lane.value - (lane.error or 0), lane.value + (lane.error or 0)]

    def draw(size: Size) -> Drawing:
        gap, top = (30, 30) if size.narrow else (12, 40)
        left, right = (146, size.width - 46) if size.narrow else (390, size.width - 60)
        height = sum(LANE * len(lanes) + gap for _, lanes in groups)
        title = "Accuracy on each test domain"
        drawing = Drawing(size.width, top + height + 6, title, finding)
        scale = percent(values, left, right)
        y = float(top)
        bounds = []
        for _, lanes in groups:
            bounds.append((y, y + LANE * len(lanes) + gap))
            y = bounds[-1][1]
        pieces = [(start + 26, end) for start, end in bounds] if size.narrow else []
        most = 4 if size.narrow else 6
        axis_above(drawing, scale, top - 6, top + height, most=most, unit=" %", pieces=pieces)
        for (name, lanes), (y, _) in zip(groups, bounds, strict=True):
            if size.narrow:
                drawing.name(0, y + 20, name, size.width - 10, kind="head")
            else:
                drawing.name(0, y + 16, name, 164, kind="head")
                drawing.line(0, y - 2, size.width, y - 2, "rule")
            start = y + (26 if size.narrow else 2)
            for at, lane in enumerate(lanes):
                _lane(drawing, lane, name, start + LANE * at, scale, size, left)
        return drawing

    return both(draw)


def _lane(
    drawing: Drawing, lane: Lane, group: str, y: float, scale: Scale, size: Size, left: float
) -> None:
    tip = f"{group}\n{lane.title}: {number(lane.value, 1)} %"
    middle, x = y + LANE / 2, scale(lane.value)
    if size.narrow:
        title, style = shortened(lane.short, left - 10, 11), "font-size:11px"
    else:
        title, style = shortened(lane.title, 205), None
    drawing.text(left - 10, middle + 4, title, "lane", end="end", data_tip=tip, style=style)
    drawing.line(left, middle, x, middle, "stem")
    end = x
    if is_number(lane.error):
        tip += f" ± {number(lane.error, 1)}"
        low, end = scale(lane.value - lane.error), scale(lane.value + lane.error)
        whisker(drawing, middle, low, end, lane.kind, tip)
    mark(drawing, lane.shape, x, middle, f"dot {lane.kind}", tip)
    drawing.text(max(x, end) + 10, middle + 4, number(lane.value, 1), "value")
