"""How sure selection was: the inclusion probabilities of one model's features."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from oodzoo.report.numbers import number
from oodzoo.report.svg import Drawing

WIDTH, HEIGHT, BASE = 280, 168, 132


def histogram(model: str, counts: Sequence[int], finding: str) -> Markup:
    """Counts in equal bins from 0 to 1; heights are square roots, as the first bin is huge."""
    drawing = Drawing(WIDTH, HEIGHT, f"Inclusion probabilities of {model}", finding)
    drawing.name(0, 14, model, WIDTH, size=12)
    left, room = 8, WIDTH - 16
    most = max([*counts, 1])
    step = room / max(len(counts), 1)
    for at, count in enumerate(counts):
        low, high = at / len(counts), (at + 1) / len(counts)
        tip = f"{model}\n{number(count)} features between {number(low, 2)} and {number(high, 2)}"
        height = 96 * math.sqrt(count / most)
        drawing.rect(left + step * at + 0.5, BASE - height, step - 1, height, "bar selection")
        drawing.rect(left + step * at, BASE - 100, step, 100, "touch-area", data_tip=tip)
    drawing.line(left, BASE, left + room, BASE, "zero")
    for share, end in ((0, "start"), (0.5, "middle"), (1, "end")):
        label = number(share, 1 if share == 0.5 else 0)
        drawing.text(left + room * share, BASE + 16, label, "tick", end=end)
    drawing.text(left + room / 2, BASE + 33, "inclusion probability", "tick", end="middle")
    return drawing.render()
