"""Accuracy over the number of models put side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oodzoo.report.charts.frame import Chart, Size, both, mark
from oodzoo.report.numbers import number
from oodzoo.report.scale import Scale, covering
from oodzoo.report.svg import Drawing


@dataclass(frozen=True)
class Line:
    """One curve."""

    title: str
    kind: str
    shape: str
    values: Sequence[float]


def curve_chart(numbers: Sequence[int], lines: Sequence[Line], finding: str) -> Chart:
    """A curve for each line over the numbers of models."""

    def draw(size: Size) -> Drawing:
        width = size.width if size.narrow else 620
        drawing = Drawing(width, 280, "Accuracy over the number of models", finding)
        across = Scale(min(numbers) - 0.3, max(numbers) + 0.3, 46, width - 16)
        values = [value for line in lines for value in line.values]
        up = covering(values, 226, 22, air=0.15)
        for value, label in up.ticks(7):
            drawing.line(46, up(value), width - 16, up(value), "grid")
            drawing.text(38, up(value) + 4, label, "tick", end="end")
        every = max(1, len(numbers) // (6 if size.narrow else 12))
        for k in numbers[::every]:
            drawing.text(across(k), 248, str(k), "tick", end="middle")
        drawing.text(across((numbers[0] + numbers[-1]) / 2), 270, "models", "head", end="middle")
        drawing.text(0, 12, "%", "head")
        for line in lines:
            points = [(across(k), up(v)) for k, v in zip(numbers, line.values, strict=True)]
            data = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
            drawing.path(data, f"curve {line.kind}")
            for k, value, (x, y) in zip(numbers, line.values, points, strict=True):
                tip = f"{line.title}, {k} model{'s' * (k != 1)}: {number(value, 1)} %"
                mark(drawing, line.shape, x, y, f"dot {line.kind}", tip)
        return drawing

    return both(draw)
