"""How well each class is recognised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oodzoo._text import count
from oodzoo.diagnostics.classes import ClassDiagnosis, ClassFigures
from oodzoo.report.blocks import Column, Figure, Key, Table
from oodzoo.report.chart import MOST_ROWS, Chart, Scale, Size, axis_above, in_both_sizes, mark
from oodzoo.report.numbers import number, text_width
from oodzoo.report.svg import Drawing


def classes_figure(
    diagnosis: ClassDiagnosis,
    ident: str,
    title: str,
    domains: Mapping[str, ClassDiagnosis] | None = None,
) -> Figure:
    """Recall and precision of each class, the worst first.

    Parameters
    ----------
    diagnosis : ClassDiagnosis
    ident : str
        Name of the table and its CSV file, unique on the page.
    title : str
    domains : dict of str to ClassDiagnosis, optional
        The same by domain: the table has the recall of each.
    """
    order = sorted(diagnosis.per_class.items(), key=lambda item: _order(item[1]))
    present = [(label, each) for label, each in order if each.images]
    summary = _summary(present)
    more = " The chart shows the worst 30; the table lists all." if len(order) > MOST_ROWS else ""
    return Figure(
        title=title,
        text=summary + more,
        chart=_chart(present[:MOST_ROWS], title, summary) if present else None,
        legend=[
            Key("single", "square", "recall: share of the images of a class that are recognised"),
            Key("neutral", "diamond", "precision: share of its predictions that are right"),
        ],
        table=_table(diagnosis, order, ident, title, domains or {}),
    )


def _order(figures: ClassFigures) -> tuple[bool, float]:
    """Classes without images are last."""
    return figures.recall is None, figures.recall or 0.0


def _summary(present: Sequence[tuple[str, ClassFigures]]) -> str:
    if not present:
        return "There are no images."
    (worst, low), (best, high) = present[0], present[-1]
    if len(present) == 1:
        return f"{number(low.recall, 1)} % of the images of {worst} are recognised."
    return (
        f"{worst} is recognised worst: {number(low.recall, 1)} % of "
        f"{count(low.images, 'image')}; {best} best: {number(high.recall, 1)} % of "
        f"{count(high.images, 'image')}."
    )


def _table(
    diagnosis: ClassDiagnosis,
    order: Sequence[tuple[str, ClassFigures]],
    ident: str,
    title: str,
    domains: Mapping[str, ClassDiagnosis],
) -> Table:
    columns = [
        Column("Class", "class", text=True),
        Column("Images", "images", 0),
        Column("Recall %", "recall", 1),
        Column("Precision %", "precision", 1),
        Column("Most often taken for", "taken_for", text=True),
    ]
    columns += [Column(domain, f"recall_{domain}", 1) for domain in domains]
    taken_for: dict[str, str] = {}
    for label, predicted, images in diagnosis.confusions:
        taken_for.setdefault(label, f"{predicted} ({number(images)})")
    by_domain = [each.per_class for each in domains.values()]
    rows: list[list[Any]] = [
        [
            label,
            each.images,
            each.recall,
            each.precision,
            taken_for.get(label),
            *(found[label].recall if label in found else None for found in by_domain),
        ]
        for label, each in order
    ]
    return Table(ident, f"{title}: recall and precision of each class", columns, rows)


def _chart(rows: Sequence[tuple[str, ClassFigures]], title: str, description: str) -> Chart:
    longest = max(text_width(label, 12) for label, _ in rows)

    def draw(size: Size) -> Drawing:
        height, top = (42, 30) if size.narrow else (26, 34)
        names = min(longest + 24, 230)
        left, right = (4.0, size.width - 50) if size.narrow else (names, size.width - 70)
        bottom = top + height * len(rows)
        drawing = Drawing(size.width, bottom + 4, title, description)
        scale = Scale(0, 100, left, right)
        starts = [top + height * at for at in range(len(rows))] if size.narrow else []
        pieces = [(start + 19, start + height - 2) for start in starts]
        axis_above(drawing, scale, top - 8, bottom, most=6, unit=" %", pieces=pieces)
        for at, (label, each) in enumerate(rows):
            y = top + height * at
            middle = y + (28 if size.narrow else height / 2)
            with drawing.group("row"):
                drawing.rect(0, y, size.width, height, "band")
                room = size.width - 10 if size.narrow else left - 16
                drawing.name(0, y + 14 if size.narrow else middle + 4, label, room)
                recall = each.recall or 0.0
                tip = f"{label}\nrecall {number(recall, 1)} % of {count(each.images, 'image')}"
                kind = "bar single"
                drawing.rect(left, middle - 6, scale(recall) - left, 12, kind, data_tip=tip)
                if each.precision is not None:
                    words = f"{label}\nprecision {number(each.precision, 1)} %"
                    mark(drawing, "diamond", scale(each.precision), middle, "dot neutral", words)
                drawing.text(size.width, middle + 4, number(recall, 1), "value", end="end")
        return drawing

    return in_both_sizes(draw)
