"""How well each of several labels is predicted, and what is surely wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oodzoo._text import count
from oodzoo.data.files import ImageFile
from oodzoo.diagnostics.labels import LabelDiagnosis, LabelFigures
from oodzoo.report.blocks import Block, Card, Cards, Column, Figure, Table
from oodzoo.report.chart import MOST_ROWS, Chart, Scale, Size, axis_above, in_both_sizes
from oodzoo.report.number_errors import thumbnail
from oodzoo.report.numbers import number
from oodzoo.report.svg import Drawing


def labels_blocks(
    diagnosis: LabelDiagnosis, files: Mapping[str, ImageFile], noun: str
) -> list[Block]:
    """A figure of all labels, and the samples with the most confident mistakes."""
    blocks: list[Block] = [labels_figure(diagnosis, noun)]
    if diagnosis.mistakes:
        blocks.append(_mistakes(diagnosis, files))
    return blocks


def labels_figure(diagnosis: LabelDiagnosis, noun: str) -> Figure:
    """Average precision, recall and precision of each label, the worst first."""
    order = sorted(diagnosis.per_label.items(), key=lambda item: _order(item[1]))
    present = [(name, each) for name, each in order if each.images]
    columns = [
        Column("Label", "label", text=True),
        Column(f"{noun.capitalize()}s", "images", 0),
        Column("Average precision %", "average_precision", 1),
        Column("Recall %", "recall", 1),
        Column("Precision %", "precision", 1),
    ]
    rows: list[list[Any]] = [
        [name, each.images, each.average_precision, each.recall, each.precision]
        for name, each in order
    ]
    name, worst = present[0]
    text = (
        f"{name} is predicted worst: average precision {number(worst.average_precision, 1)} %, "
        f"found in {number(worst.recall, 1)} % of the {count(worst.images, noun)} that have it."
    )
    if len(order) > MOST_ROWS:
        text += f" The chart shows the worst {MOST_ROWS}; the table lists all."
    title = "Average precision of each label"
    return Figure(
        title,
        Table("labels", title, columns, rows),
        text,
        _chart(present[:MOST_ROWS], title, text, noun),
    )


def _order(figures: LabelFigures) -> tuple[bool, float]:
    """Labels without samples are last."""
    return figures.average_precision is None, figures.average_precision or 0.0


def _chart(
    rows: Sequence[tuple[str, LabelFigures]], title: str, description: str, noun: str
) -> Chart:
    def draw(size: Size) -> Drawing:
        height, top = (42, 30) if size.narrow else (26, 34)
        left, right = (4, size.width - 50) if size.narrow else (230, size.width - 70)
        bottom = top + height * len(rows)
        drawing = Drawing(size.width, bottom + 4, title, description)
        scale = Scale(0, 100, left, right)
        starts = [top + height * at for at in range(len(rows))]
        pieces = [(start + 19, start + height - 2) for start in starts] if size.narrow else []
        axis_above(drawing, scale, top - 8, bottom, most=6, unit=" %", pieces=pieces)
        for y, (name, each) in zip(starts, rows, strict=True):
            middle = y + (28 if size.narrow else height / 2)
            with drawing.group("row"):
                drawing.rect(0, y, size.width, height, "band")
                room = size.width - 10 if size.narrow else left - 16
                drawing.name(0, y + 14 if size.narrow else middle + 4, name, room)
                value = each.average_precision or 0.0
                tip = f"{name}\naverage precision {number(value, 1)} %, {count(each.images, noun)}"
                width = scale(value) - left
                drawing.rect(left, middle - 6, width, 12, "bar single", data_tip=tip)
                drawing.text(size.width, middle + 4, number(value, 1), "value", end="end")
        return drawing

    return in_both_sizes(draw)


def _mistakes(diagnosis: LabelDiagnosis, files: Mapping[str, ImageFile]) -> Cards:
    cards = []
    for each in diagnosis.mistakes:
        truth = f"{'has' if each.has else 'has not'} {each.label}"
        sure = f"{'not ' if each.has else ''}{each.label}, {number(each.confidence)} %"
        text = f"{truth} in {each.domain}, predicted as {sure}"
        pairs = [("true", truth), ("predicted", sure)]
        cards.append(Card(each.path, pairs, thumbnail(each.path, files, text)))
    return Cards("Most confident mistakes", cards, "At most one for each image.")
