"""The section "Where it is wrong" of a classification, and its figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from oodzoo.combining.evaluation.result import Evaluation
from oodzoo.core.tables import Column, Table
from oodzoo.core.text import count, number, span
from oodzoo.data.files import StoredFile, UnreadableImageError
from oodzoo.report.blocks import Block, Card, Cards, Chooser, Figure, Key, Section, Thumbnail
from oodzoo.report.chart import (
    MOST_ROWS,
    Chart,
    Drawing,
    Scale,
    Size,
    axis_above,
    in_both_sizes,
    mark,
    shortened,
    text_width,
)
from oodzoo.report.data import thumbnail_url
from oodzoo.tasks.classification import (
    Bin,
    ClassDiagnosis,
    ClassFigures,
    Mistake,
    Reliability,
    add_up,
)

# --- confident mistakes ---------------------------------------------------------------------------

MISTAKE_SIDE = 112
"""Pixels of a thumbnail."""


def mistakes_gallery(
    mistakes: Iterable[Mistake], files: Mapping[str, StoredFile], title: str = "Confident mistakes"
) -> Cards:
    """The mistakes with their images; where an image is not at hand, a line of text.

    Parameters
    ----------
    mistakes : iterable of Mistake
    files : dict of str to StoredFile
        Where images are, by :attr:`Mistake.key <oodzoo.tasks.classification.Mistake.key>`.
    title : str
    """
    return Cards(title, [_card(each, files) for each in mistakes])


def _card(mistake: Mistake, files: Mapping[str, StoredFile]) -> Card:
    verdict = f"{mistake.predicted}, {number(mistake.confidence)} %"
    text = f"{mistake.label} in {mistake.domain}, predicted as {verdict}"
    try:
        image = Thumbnail(thumbnail_url(files[mistake.key], MISTAKE_SIDE), text)
    except (KeyError, UnreadableImageError):
        image = None
    return Card(mistake.path, [("true", mistake.label), ("predicted", verdict)], image)


# --- confusions -----------------------------------------------------------------------------------

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
    summary = _confusion_summary(diagnosis)
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


def _confusion_summary(diagnosis: ClassDiagnosis) -> str:
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


# --- each class -----------------------------------------------------------------------------------


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
    order = sorted(diagnosis.per_class.items(), key=lambda item: _class_order(item[1]))
    present = [(label, each) for label, each in order if each.images]
    summary = _class_summary(present)
    more = " The chart shows the worst 30; the table lists all." if len(order) > MOST_ROWS else ""
    return Figure(
        title=title,
        text=summary + more,
        chart=_class_chart(present[:MOST_ROWS], title, summary) if present else None,
        legend=[
            Key("single", "square", "recall: share of the images of a class that are recognised"),
            Key("neutral", "diamond", "precision: share of its predictions that are right"),
        ],
        table=_class_table(diagnosis, order, ident, title, domains or {}),
    )


def _class_order(figures: ClassFigures) -> tuple[bool, float]:
    """Classes without images are last."""
    return figures.recall is None, figures.recall or 0.0


def _class_summary(present: Sequence[tuple[str, ClassFigures]]) -> str:
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


def _class_table(
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


def _class_chart(rows: Sequence[tuple[str, ClassFigures]], title: str, description: str) -> Chart:
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


# --- reliability of confidences -------------------------------------------------------------------

CLOSE = 2.0
"""Points of difference between mean confidence and accuracy that are not worth a word."""

FAR = 5.0
"""Points of calibration error from which single confidences are not to be trusted."""


def reliability_figure(
    diagnosis: ClassDiagnosis, ident: str, title: str, error: float | None = None
) -> Figure:
    """A reliability diagram, with the number of images of each confidence.

    Parameters
    ----------
    diagnosis : ClassDiagnosis
    ident : str
        Name of the table and its CSV file, unique on the page.
    title : str
    error : float, optional
        Mean of the calibration errors in single domains, in points; if it is not given, the text
        states that of all images together, where errors of opposite signs cancel.
    """
    found = diagnosis.reliability
    summary = _reliability_summary(found, error)
    columns = [
        Column("Confidence %", "bin", 0, interval=True),
        Column("Images", "images", 0),
        Column("Mean confidence %", "confidence", 1),
        Column("Accuracy %", "accuracy", 1),
        Column("Gap, points", "gap", 1),
    ]
    rows = [
        [
            (each.low, each.high),
            each.images,
            each.confidence,
            each.accuracy,
            each.accuracy - each.confidence,
        ]
        for each in found.bins
    ]
    return Figure(
        title=title,
        text=summary,
        chart=_reliability_chart(found.bins, title, summary),
        legend=[
            Key("expected", "circle", "accuracy of the images of a confidence; small: few images"),
            Key("neutral", "dashed", "on the diagonal: as often right as it is sure"),
            Key("stroke", "square", "number of images (square-root scale)"),
        ],
        table=Table(ident, f"{title}: accuracy by confidence", columns, rows),
    )


def _reliability_summary(found: Reliability, error: float | None) -> str:
    surest = found.bins[-1]
    within = "" if error is None else ", within each domain and averaged over domains"
    return (
        f"{_reliability_verdict(found)}: mean confidence {number(found.confidence, 1)} %, accuracy "
        f"{number(found.accuracy, 1)} %. Of the {count(surest.images, 'image')} with a confidence "
        f"of {span(surest.low, surest.high)} %, {number(surest.accuracy, 1)} % are right. Expected "
        f"calibration error, the mean distance from the diagonal{within}: "
        f"{number(found.error if error is None else error, 1)} points."
    )


def _reliability_verdict(found: Reliability) -> str:
    gap = found.confidence - found.accuracy
    if abs(gap) >= CLOSE:
        return f"On average, it is {'too sure' if gap > 0 else 'not sure enough'}"
    if found.error >= FAR:
        return "Confidence and accuracy agree on average, but not at every confidence"
    return "Confidence and accuracy agree"


def _reliability_chart(bins: Sequence[Bin], title: str, description: str) -> Chart:
    most = max(each.images for each in bins)

    def draw(size: Size) -> Drawing:
        width = size.width if size.narrow else 520
        left, right, top, base, foot = 46, width - 16, 26, 286, 372
        drawing = Drawing(width, foot + 44, title, description)
        across, up = Scale(0, 100, left, right), Scale(0, 100, base, top)
        drawing.text(0, 12, "Accuracy %", "head")
        for value, label in up.ticks(6):
            drawing.line(left, up(value), right, up(value), "grid")
            drawing.text(left - 8, up(value) + 4, label, "tick", end="end")
        drawing.line(across(0), up(0), across(100), up(100), "diagonal")
        drawing.text(0, base + 32, "Images", "head")
        drawing.line(left, foot, right, foot, "zero")
        for value, label in across.ticks(6):
            drawing.text(across(value), foot + 16, label, "tick", end="middle")
        drawing.text((left + right) / 2, foot + 38, "confidence %", "head", end="middle")
        points = [(across(each.confidence), up(each.accuracy)) for each in bins]
        drawing.path("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points), "curve expected")
        for each, (x, y) in zip(bins, points, strict=True):
            tip = (
                f"Confidence {span(each.low, each.high)} %\n{count(each.images, 'image')}, mean "
                f"confidence {number(each.confidence, 1)} %, accuracy {number(each.accuracy, 1)} %"
            )
            start, end = across(each.low), across(each.high)
            height = (foot - base - 42) * math.sqrt(each.images / most)
            drawing.rect(start + 1, foot - height, end - start - 2, height, "stroke", data_tip=tip)
            radius = 2.5 + 4 * math.sqrt(each.images / most)  # few images say little
            drawing.circle(x, y, radius, "dot expected", data_tip=tip)
        return drawing

    return in_both_sizes(draw)


# --- the section ----------------------------------------------------------------------------------

MOST_DOMAINS = 12
"""Domains with a confusion matrix of their own: the hardest ones."""

PER_DOMAIN = 12
IN_TOTAL = 72
"""Largest number of mistakes that are shown."""


def hardest_first(evaluation: Evaluation) -> dict[str, ClassDiagnosis]:
    """The diagnosis of each test domain, the hardest domain first."""
    accuracy, found = evaluation.recommended.domains, evaluation.diagnosis
    return {domain: found[domain] for domain in sorted(found, key=accuracy.__getitem__)}


def shown_mistakes(evaluation: Evaluation) -> dict[str, tuple[Mistake, ...]]:
    """The mistakes that the page shows, by domain."""
    found = dict(list(hardest_first(evaluation).items())[:MOST_DOMAINS])
    most = min(PER_DOMAIN, IN_TOTAL // max(len(found), 1))
    return {domain: each.mistakes[:most] for domain, each in found.items()}


def diagnosis_section(evaluation: Evaluation, files: Mapping[str, StoredFile]) -> Section:
    """Confusions and confident mistakes in each domain; classes and calibration over all."""
    domains = hardest_first(evaluation)
    total = add_up(domains.values())
    trial = " in the first trial" if evaluation.trials > 1 else ""
    lead = (
        f"Predictions{trial} for {count(total.images, 'image')} of held-out domains, each by what "
        "was chosen and trained without its domain."
    )
    error = fmean(evaluation.recommended_row.measure("calibration_error").values())
    blocks: list[Block] = [
        _by_domain(evaluation, domains, files),
        classes_figure(total, "classes", "Accuracy of each class", domains),
        reliability_figure(total, "reliability", "Can its confidence be trusted?", error),
    ]
    return Section("mistakes", "Where it is wrong", lead, blocks, short="Mistakes")


def _by_domain(
    evaluation: Evaluation, domains: Mapping[str, ClassDiagnosis], files: Mapping[str, StoredFile]
) -> Block:
    mistakes = shown_mistakes(evaluation)
    options: list[tuple[str, list[Block]]] = []
    for at, (domain, shown) in enumerate(mistakes.items()):
        accuracy = number(evaluation.recommended.domains[domain], 1)
        title = f"Which classes are confused in {domain}?"
        blocks: list[Block] = [confusion_figure(domains[domain], f"confusion-{at + 1}", title)]
        if shown:
            blocks.append(mistakes_gallery(shown, files, f"Most confident mistakes in {domain}"))
        options.append((f"{domain} ({accuracy} %)", blocks))
    if len(domains) > 1:
        figure = confusion_figure(
            add_up(domains.values()), "confusion", "Which classes are confused in all domains?"
        )
        options.append(("All domains", [figure]))
    more = len(domains) - len(mistakes)
    label = f"Held-out domain, the {len(mistakes)} hardest" if more else "Held-out domain"
    return Chooser("confusion", label, options)
