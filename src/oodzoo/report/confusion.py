"""Which classes are taken for which others."""

from __future__ import annotations

from typing import Any

from oodzoo._text import count
from oodzoo.diagnostics.classes import ClassDiagnosis
from oodzoo.report.blocks import Column, Figure, Table
from oodzoo.report.chart import Chart, Scale, Size, in_both_sizes
from oodzoo.report.numbers import number, shortened, text_width
from oodzoo.report.svg import Drawing

MOST_CLASSES = 24
"""Largest matrix that is drawn; of more classes, the most frequent confusions are listed."""

MOST_BARS = 12
MOST_PAIRS = 200
"""Confusions in the chart and in the table of many classes."""

ROW = 26


def confusion_figure(diagnosis: ClassDiagnosis, ident: str, title: str) -> Figure:
    """A confusion matrix; with many classes, a list of the most frequent confusions.

    Parameters
    ----------
    diagnosis : ClassDiagnosis
    ident : str
        Name of the table and its CSV file, unique on the page.
    title : str
    """
    summary = _summary(diagnosis)
    if len(diagnosis.classes) > MOST_CLASSES:
        return _pairs_figure(diagnosis, ident, title, summary)
    rows = [
        [label, sum(counts), *counts]
        for label, counts in zip(diagnosis.classes, diagnosis.confusion, strict=True)
    ]
    columns = [Column("True class", "true_class", text=True), Column("Images", "images", 0)]
    columns += [Column(label, f"predicted_{label}", 0) for label in diagnosis.classes]
    text = "Rows are true classes, columns are predicted ones; shades are shares of a row. "
    return Figure(
        title=title,
        text=text + summary,
        chart=in_both_sizes(lambda size: _draw_matrix(diagnosis, title, summary, size)),
        table=Table(ident, f"{title}: images by true and predicted class", columns, rows),
    )


def _summary(diagnosis: ClassDiagnosis) -> str:
    wrong = diagnosis.confusions
    if not wrong:
        return f"All of {count(diagnosis.images, 'image')} are classified correctly."
    mistakes = sum(images for *_, images in wrong)
    sizes = {label: each.images for label, each in diagnosis.per_class.items()}
    pairs = [
        f"{label} taken for {predicted} ({number(images)} of {number(sizes[label])})"
        for label, predicted, images in wrong[:3]
    ]
    return (
        f"{number(mistakes)} of {count(diagnosis.images, 'image')} are misclassified. Most "
        f"frequent: {'; '.join(pairs)}."
    )


# --- a matrix ------------------------------------------------------------------------------------


def _draw_matrix(diagnosis: ClassDiagnosis, title: str, description: str, size: Size) -> Drawing:
    classes, n = diagnosis.classes, len(diagnosis.classes)
    names = 90.0 if size.narrow else 190.0
    left = min(names, max(text_width(label, 12) for label in classes) + 14)
    left = max(left, text_width("True", 12) + 10)
    width = min((size.width - left) / n, 76)
    room = width - 6
    upright = any(text_width(label, 11) > room for label in classes)
    longest = max(text_width(shortened(label, 90, 11), 11) for label in classes)
    top = (longest if upright else 12) + 30
    drawing = Drawing(left + width * n, top + ROW * n + 4, title, description)
    drawing.text(left, 12, "Predicted", "head")
    drawing.text(left - 10, top - 8, "True", "head", end="end")
    for at, label in enumerate(classes):
        x = left + width * at
        if upright:
            place = f"translate({x + width / 2 + 4:.1f} {top - 8:.1f}) rotate(-90)"
            style = f"font-size:{min(11, 0.9 * width):.1f}px"
            drawing.name(0, 0, label, 90, "tick", size=11, transform=place, style=style)
        else:
            drawing.text(x + width / 2, top - 8, label, "tick", end="middle")
    for row, (label, counts) in enumerate(zip(classes, diagnosis.confusion, strict=True)):
        y, images = top + ROW * row, sum(counts)
        drawing.name(left - 10, y + 17, label, left - 10, "name", end="end")
        drawing.rect(left, y + 0.5, width * n, ROW - 1, "matrix-row")
        for column, found in enumerate(counts):
            if found:
                tip = _tip(label, classes[column], found, images)
                right = row == column
                _draw_cell(drawing, left + width * column, y, width, found, images, right, tip)
    return drawing


def _draw_cell(
    drawing: Drawing,
    x: float,
    y: float,
    width: float,
    found: int,
    images: int,
    right: bool,
    tip: str,
) -> None:
    # square roots keep rare mistakes visible
    share = found / images if right else (found / images) ** 0.5
    kind = "heat" if right else "heat amiss"
    opacity = f"{0.08 + 0.92 * share:.2f}"
    drawing.rect(x + 0.5, y + 0.5, width - 1, ROW - 1, kind, fill_opacity=opacity, data_tip=tip)
    label = number(found)
    if text_width(label, 11) <= width - 1:
        drawing.text(x + width / 2, y + 17, label, "cell", end="middle")


def _tip(label: str, predicted: str, found: int, images: int) -> str:
    share = number(100 * found / images, 1)
    verb = "recognised" if label == predicted else f"taken for {predicted}"
    return f"{label}\n{verb}: {number(found)} of {number(images)} ({share} %)"


# --- a list --------------------------------------------------------------------------------------


def _pairs_figure(diagnosis: ClassDiagnosis, ident: str, title: str, summary: str) -> Figure:
    figures, wrong = diagnosis.per_class, diagnosis.confusions
    columns = [
        Column("True class", "true_class", text=True),
        Column("Predicted class", "predicted_class", text=True),
        Column("Images", "images", 0),
        Column("Share of the true class %", "share_percent", 1),
    ]
    rows: list[list[Any]] = [
        [label, predicted, images, 100 * images / figures[label].images]
        for label, predicted, images in wrong[:MOST_PAIRS]
    ]
    text = summary
    if len(wrong) > len(rows):
        text += f" The table has the {len(rows)} most frequent of {number(len(wrong))} confusions."
    chart = _bars(rows[:MOST_BARS], title, summary) if rows else None
    return Figure(title, Table(ident, f"{title}: confusions", columns, rows), text, chart)


def _bars(rows: list[list[Any]], title: str, description: str) -> Chart:
    """A bar for each of the most frequent confusions."""

    def draw(size: Size) -> Drawing:
        height = 40 if size.narrow else 26
        left, right = (0, size.width - 90) if size.narrow else (390, size.width - 130)
        drawing = Drawing(size.width, height * len(rows) + 6, title, description)
        scale = Scale(0, max(images for *_, images, _ in rows), left, right)
        for at, (label, predicted, images, share) in enumerate(rows):
            y = height * at
            room = size.width - 8 if size.narrow else left - 14
            drawing.name(0, y + (13 if size.narrow else 17), f"{label} → {predicted}", room)
            bar = y + (20 if size.narrow else 7)
            tip = f"{label}\ntaken for {predicted}: {count(images, 'image')} ({number(share, 1)} %)"
            drawing.rect(left, bar, scale(images) - left, 12, "bar ensemble", data_tip=tip)
            value = f"{number(images)} ({number(share)} %)"
            drawing.text(scale(images) + 8, bar + 10, value, "value")
        return drawing

    return in_both_sizes(draw)
