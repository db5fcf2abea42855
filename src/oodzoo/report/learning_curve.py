"""Accuracy by the number of images per class: would more photos help?"""

from __future__ import annotations

import math

from oodzoo.evaluation.learning_curve import LearningCurve
from oodzoo.report.blocks import Column, Figure, Key, Table
from oodzoo.report.chart import Chart, Scale, Size, covering, in_both_sizes, mark
from oodzoo.report.numbers import number
from oodzoo.report.svg import Drawing
from oodzoo.task.words import MEASURES


def learning_curve_figure(curve: LearningCurve) -> Figure:
    """The metric on test domains, of heads that are trained on parts of the images."""
    metric = MEASURES[curve.metric]
    per = "images per class" if curve.metric == "accuracy" else "training images"
    domains = list(dict.fromkeys(name for point in curve.points for name in point.domains))
    columns = [
        Column(per.capitalize(), per.replace(" ", "_"), 1),
        Column(f"Average {metric.name} %", "average", 1),
        *(Column(domain, f"domain_{domain}", 1) for domain in domains),
    ]
    rows = [
        [point.images_per_class, point.average, *(point.domains.get(each) for each in domains)]
        for point in curve.points
    ]
    points = "; ".join(
        f"{_images(point.images_per_class)}: {number(point.average, 1)} %" for point in curve.points
    )
    title = "Would more images help?"
    description = f"{metric.title} on test domains by {per}, {points}."
    return Figure(
        title=title,
        text=f"{curve.text} Measured with heads of {curve.model}, trained on parts of the images "
        "of all training domains together.",
        chart=_chart(curve, per, f"{metric.title} by {per}", description),
        legend=[
            Key("expected", "circle", "average over the test domains"),
            Key("stroke", "level", "one test domain"),
        ],
        table=Table("learning-curve", f"{metric.title} by {per}", columns, rows),
    )


def _images(value: float) -> str:
    """A mean number of images; decimals matter for a few only."""
    return number(value, 0 if value >= 10 or value == round(value) else 1)


def _chart(curve: LearningCurve, per: str, title: str, description: str) -> Chart:
    """The number of images has a logarithmic scale."""
    numbers = [math.log(point.images_per_class) for point in curve.points]
    values = [v for point in curve.points for v in (point.average, *point.domains.values())]

    def draw(size: Size) -> Drawing:
        width = size.width if size.narrow else 620
        left, right, base = 46, width - 26, 226
        drawing = Drawing(width, 280, title, description)
        room = 0.06 * (numbers[-1] - numbers[0]) or 0.5
        across = Scale(numbers[0] - room, numbers[-1] + room, left, right)
        up = covering(values, base, 22, margin=0.08)
        drawing.text(0, 12, "%", "head")
        for value, label in up.ticks(6):
            drawing.line(left, up(value), right, up(value), "grid")
            drawing.text(left - 8, up(value) + 4, label, "tick", end="end")
        label = per if per.startswith("training") else f"training {per}"
        drawing.text((left + right) / 2, 270, label, "head", end="middle")
        points = [
            (across(x), up(point.average)) for x, point in zip(numbers, curve.points, strict=True)
        ]
        drawing.path("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points), "curve expected")
        for point, (x, y) in zip(curve.points, points, strict=True):
            images = _images(point.images_per_class)
            drawing.text(x, base + 22, images, "tick", end="middle")
            for domain, value in point.domains.items():
                tip = f"{domain}\n{images} {per}: {number(value, 1)} %"
                drawing.rect(x - 6, up(value) - 1, 12, 2, "stroke", data_tip=tip)
            tip = f"Average\n{images} {per}: {number(point.average, 1)} %"
            mark(drawing, "circle", x, y, "dot expected", tip)
        return drawing

    return in_both_sizes(draw)
