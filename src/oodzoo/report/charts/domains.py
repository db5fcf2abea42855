"""How accurate models are on each left-out domain: which domain is hard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from oodzoo.report.charts.frame import Chart, Size, axis_above, both, mark
from oodzoo.report.numbers import number
from oodzoo.report.scale import Scale, percent
from oodzoo.report.svg import Drawing


def domain_chart(
    accuracies: Mapping[str, Mapping[str, float]], order: Sequence[str], best: str, finding: str
) -> Chart:
    """A row for each domain: a stroke for each model, the mean, and the first model.

    Parameters
    ----------
    accuracies : mapping
        Percent by domain and model.
    order : sequence of str
        Domains from top to bottom.
    """
    values = [value for models in accuracies.values() for value in models.values()]

    def draw(size: Size) -> Drawing:
        height, top = (52, 44) if size.narrow else (36, 44)
        left, right = (10, size.width - 62) if size.narrow else (200, size.width - 90)
        bottom = top + height * len(order)
        drawing = Drawing(size.width, bottom + 8, "Accuracy on each left-out domain", finding)
        scale = percent(values, left, right)
        starts = [top + height * at for at in range(len(order))] if size.narrow else []
        pieces = [(start + 21, start + height - 3) for start in starts]
        axis_above(drawing, scale, top - 6, bottom, most=6, unit=" %", pieces=pieces)
        drawing.text(size.width - 4, top - 12, "cost", "head", end="end")
        mean = fmean(fmean(models.values()) for models in accuracies.values())
        for at, domain in enumerate(order):
            y = top + height * at
            with drawing.group("row"):
                drawing.rect(0, y, size.width, height, "band")
                middle = y + (34 if size.narrow else height / 2)
                room = 230 if size.narrow else left - 20
                drawing.name(0, y + 16 if size.narrow else middle + 4, domain, room)
                _strip(drawing, scale, middle, accuracies[domain], domain, best)
                cost = number(mean - fmean(accuracies[domain].values()), 1)
                drawing.text(size.width - 4, middle + 4, cost, "value", end="end")
        return drawing

    return both(draw)


def _strip(
    drawing: Drawing, scale: Scale, y: float, models: Mapping[str, float], domain: str, best: str
) -> None:
    for model, value in models.items():
        tip = f"{model}\n{domain}: {number(value, 1)} %"
        drawing.rect(scale(value) - 1, y - 8, 2, 16, "stroke", data_tip=tip)
    mean = fmean(models.values())
    tip = f"mean of {len(models)} models\n{domain}: {number(mean, 1)} %"
    mark(drawing, "diamond", scale(mean), y, "dot neutral", tip)
    if best in models:
        tip = f"{best}, the first\n{domain}: {number(models[best], 1)} %"
        mark(drawing, "circle", scale(models[best]), y, "dot accuracy", tip)
