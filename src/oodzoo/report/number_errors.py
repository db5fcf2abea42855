"""How far off predicted numbers are, by their true value, and where most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oodzoo._text import count
from oodzoo.data.files import ImageFile, UnreadableImageError
from oodzoo.diagnostics.numbers import NumberDiagnosis, NumberFigures
from oodzoo.report.blocks import Block, Card, Cards, Column, Figure, Table, Thumbnail
from oodzoo.report.chart import Chart, Size, covering, in_both_sizes
from oodzoo.report.data import thumbnail_url
from oodzoo.report.mistakes import SIDE
from oodzoo.report.numbers import number, significant
from oodzoo.report.svg import Drawing


def numbers_blocks(
    diagnosis: NumberDiagnosis, files: Mapping[str, ImageFile], noun: str
) -> list[Block]:
    """For each number, the error by true value, and the samples with the largest errors."""
    blocks: list[Block] = []
    for at, (name, each) in enumerate(diagnosis.per_output.items()):
        blocks.append(ranges_figure(name, each, f"ranges-{at + 1}", noun))
        if each.largest:
            blocks.append(_largest(name, each, files))
    return blocks


def ranges_figure(name: str, figures: NumberFigures, ident: str, noun: str) -> Figure:
    """The mean absolute error in ranges of the true value."""
    columns = [
        Column("Lowest", "low"),
        Column("Highest", "high"),
        Column(f"{noun.capitalize()}s", "images", 0),
        Column("Absolute error", "absolute_error"),
        Column("Bias", "bias"),
    ]
    rows: list[list[Any]] = [
        [each.low, each.high, each.images, each.absolute_error, each.bias]
        for each in figures.ranges
    ]
    direction = "too high" if figures.bias > 0 else "too low"
    worst = max(figures.ranges, key=lambda each: each.absolute_error)
    text = (
        f"{name} is off by {significant(figures.absolute_error)} on average; predictions are "
        f"{significant(abs(figures.bias))} {direction}. Explained variance: "
        f"{number(figures.explained_variance, 1)} %. The error is largest for true values from "
        f"{significant(worst.low)} to {significant(worst.high)}: "
        f"{significant(worst.absolute_error)}."
    )
    title = f"{name}: error by true value"
    return Figure(title, Table(ident, title, columns, rows), text, _chart(figures, title, text))


def _chart(figures: NumberFigures, title: str, description: str) -> Chart:
    ranges = figures.ranges

    def draw(size: Size) -> Drawing:
        height = 42 if size.narrow else 28
        left, right = (0, size.width - 90) if size.narrow else (230, size.width - 100)
        drawing = Drawing(size.width, height * len(ranges) + 6, title, description)
        scale = covering([each.absolute_error for each in ranges], left, right, zero=True)
        for at, each in enumerate(ranges):
            y = height * at
            name = f"{significant(each.low)} to {significant(each.high)}"
            drawing.text(0, y + (13 if size.narrow else 18), name, "name")
            bar = y + (20 if size.narrow else 8)
            tip = (
                f"{name}\nabsolute error {significant(each.absolute_error)}, bias "
                f"{significant(each.bias)}, {count(each.images, 'sample')}"
            )
            width = scale(each.absolute_error) - left
            drawing.rect(left, bar, width, 12, "bar single", data_tip=tip)
            label = significant(each.absolute_error)
            drawing.text(left + width + 8, bar + 10, label, "value")
        return drawing

    return in_both_sizes(draw)


def _largest(name: str, figures: NumberFigures, files: Mapping[str, ImageFile]) -> Cards:
    cards = []
    for each in figures.largest:
        pairs = [("true", significant(each.label)), ("predicted", significant(each.predicted))]
        text = f"{name} {pairs[0][1]} in {each.domain}, predicted {pairs[1][1]}"
        cards.append(Card(each.path, pairs, thumbnail(each.path, files, text)))
    return Cards(f"{name}: largest errors", cards)


def thumbnail(path: str, files: Mapping[str, ImageFile], text: str) -> Thumbnail | None:
    """A small image of a sample; None if it is not an image, or cannot be read."""
    try:
        return Thumbnail(thumbnail_url(files[path], SIDE), text)  # type: ignore[arg-type]
    except (KeyError, UnreadableImageError):
        return None
