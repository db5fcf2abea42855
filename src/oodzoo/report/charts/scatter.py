"""A score against accuracy: the paper's figure, one small picture for each score."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup

from oodzoo.report.numbers import is_number, number, significant
from oodzoo.report.scale import covering, percent
from oodzoo.report.svg import Drawing

WIDTH, HEIGHT = 186, 186
LEFT, RIGHT, TOP, BASE = 28, 182, 46, 158


def scatter(
    title: str,
    subtitle: str,
    values: Mapping[str, float | None],
    accuracy: Mapping[str, float],
    finding: str,
) -> Markup:
    """A point for each model with a score and an accuracy."""
    drawing = Drawing(WIDTH, HEIGHT, f"{title} against accuracy", finding)
    drawing.name(0, 14, title, WIDTH)
    drawing.text(0, 31, subtitle, "tick")
    up = percent(accuracy.values(), BASE, TOP)
    points = [
        (model, float(value), float(accuracy[model]))
        for model, value in values.items()
        if is_number(value) and is_number(accuracy.get(model))
    ]
    across = covering([value for _, value, _ in points], LEFT + 6, RIGHT - 6)
    for value, label in up.ticks(4):
        drawing.line(LEFT, up(value), RIGHT, up(value), "grid")
        drawing.text(LEFT - 6, up(value) + 4, label, "tick", end="end")
    for model, value, percentage in points:
        tip = f"{model}\n{title} {significant(value)}\naccuracy {number(percentage, 1)} %"
        drawing.circle(across(value), up(percentage), 3.5, "point", data_tip=tip)
    if points:
        scores = [value for _, value, _ in points]
        drawing.text(LEFT, BASE + 18, significant(min(scores)), "tick")
        drawing.text(RIGHT, BASE + 18, significant(max(scores)), "tick", end="end")
    return drawing.render()
