"""The results among published accuracies on the same data set."""

from __future__ import annotations

from oodzoo.evaluation.published import YOURS, Published
from oodzoo.report.blocks import Column, Figure, Table
from oodzoo.report.numbers import number


def published_figure(beside: Published) -> Figure:
    """A table of published accuracies with those of this evaluation among them."""
    best = next(each for each in beside.figures if each.source != YOURS)
    mine = next(each for each in beside.figures if each.source == YOURS)
    summary = (
        f"Your best row, {mine.method}: {number(mine.accuracy, 1)} %; the best published one, "
        f"{best.method} of {best.source}: {number(best.accuracy, 1)} %."
    )
    columns = [
        Column("Method", "method", text=True),
        Column("From", "from", text=True),
        Column("Accuracy %", "accuracy", 1),
    ]
    rows = [[each.method, each.source, each.accuracy] for each in beside.figures]
    caption = f"Accuracy on {beside.dataset}, published and yours"
    return Figure(
        title=f"Beside published results on {beside.dataset}",
        text=f"{summary} {beside.caveat} {beside.cost}",
        table=Table("published", caption, columns, list(rows)),
        folded=False,
    )
