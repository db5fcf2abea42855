"""How many features of each model are kept."""

from __future__ import annotations

from collections.abc import Sequence

from oodzoo.report.charts.frame import Chart, Size, both
from oodzoo.report.numbers import number
from oodzoo.report.scale import Scale
from oodzoo.report.svg import Drawing


def kept_chart(models: Sequence[tuple[str, int, int]], finding: str) -> Chart:
    """A bar for each model, with the kept part filled: (name, features, kept)."""
    most = max([features for _, features, _ in models] + [1])

    def draw(size: Size) -> Drawing:
        height = 44 if size.narrow else 30
        left, right = (0, size.width - 112) if size.narrow else (250, size.width - 140)
        title = "Features kept of each model"
        drawing = Drawing(size.width, height * len(models) + 8, title, finding)
        scale = Scale(0, most, left, right)
        for at, (model, features, kept) in enumerate(models):
            y = height * at
            room = size.width - 8 if size.narrow else left - 14
            drawing.name(0, y + (14 if size.narrow else 20), model, room)
            bar = y + (21 if size.narrow else 8)
            tip = f"{model}\n{number(kept)} of {number(features)} features kept"
            drawing.rect(left, bar, scale(features) - left, 14, "whole", data_tip=tip)
            drawing.rect(left, bar, scale(kept) - left, 14, "bar selection", data_tip=tip)
            words = f"{number(kept)} of {number(features)}"
            drawing.text(scale(features) + 8, bar + 11, words, "value")
        return drawing

    return both(draw)
