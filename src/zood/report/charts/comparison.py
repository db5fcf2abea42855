"""One network, several side by side, and their selected features, on each test domain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zood.report.charts.frame import Chart, Size, axis_above, both, mark, whisker
from zood.report.numbers import is_number, number, shortened
from zood.report.scale import Scale, percent
from zood.report.svg import Drawing

LANE = 19


@dataclass(frozen=True)
class Lane:
    """One way to classify: its accuracy on a test domain or on average."""

    title: str
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
        left, right = (128, size.width - 46) if size.narrow else (390, size.width - 60)
        height = sum(LANE * len(lanes) + gap for _, lanes in groups)
        title = "Accuracy on each test domain"
        drawing = Drawing(size.width, top + height + 6, title, finding)
        scale = percent(values, left, right)
        axis_above(drawing, scale, top - 6, top + height, most=4 if size.narrow else 6, unit=" %")
        y = float(top)
        for name, lanes in groups:
            if size.narrow:
                drawing.name(0, y + 20, name, size.width - 10, kind="head")
            else:
                drawing.name(0, y + 16, name, 180, kind="head")
                drawing.line(0, y - 2, size.width, y - 2, "rule")
            start = y + (26 if size.narrow else 2)
            for at, lane in enumerate(lanes):
                _lane(drawing, lane, name, start + LANE * at, scale(lane.value), scale, left)
            y += LANE * len(lanes) + gap
        return drawing

    return both(draw)


def _lane(
    drawing: Drawing, lane: Lane, group: str, y: float, x: float, scale: Scale, left: float
) -> None:
    tip = f"{group}\n{lane.title}: {number(lane.value, 1)} %"
    middle = y + LANE / 2
    short = shortened(lane.title, min(left - 12, 180))
    drawing.text(left - 12, middle + 4, short, "lane", end="end", data_tip=tip)
    drawing.line(left, middle, x, middle, "stem")
    end = x
    if is_number(lane.error):
        tip += f" ± {number(lane.error, 1)}"
        low, end = scale(lane.value - lane.error), scale(lane.value + lane.error)
        whisker(drawing, middle, low, end, lane.kind, tip)
    mark(drawing, lane.shape, x, middle, f"dot {lane.kind}", tip)
    drawing.text(max(x, end) + 10, middle + 4, number(lane.value, 1), "value")
