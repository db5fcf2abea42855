"""The section "Where it is wrong" of a classification, and its figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from oodzoo.combining.evaluation.result import Evaluation
from oodzoo.core.tables import Column, Table
from oodzoo.core.text import count, number, significant, span
from oodzoo.data.files import StoredFile
from oodzoo.report.chart import (
    MOST_ROWS,
    Bar,
    Chart,
    Drawing,
    Scale,
    Size,
    axis_beside,
    bar_chart,
    in_both_sizes,
    mark,
    row_chart,
    shortened,
    text_width,
)
from oodzoo.report.data import thumbnail
from oodzoo.report.page import Block, Card, Cards, Chooser, Figure, Key, Section
from oodzoo.tasks.classification import (
    Bin,
    ClassDiagnosis,
    ClassFigures,
    Mistake,
    Reliability,
    add_up,
)
from oodzoo.tasks.multilabel import LabelDiagnosis
from oodzoo.tasks.regression import NumberDiagnosis, NumberFigures

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
    image = thumbnail(files, mistake.key, text, MISTAKE_SIDE)
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
            drawing.upright(x + width / 2, top - 8, label, 90, 0.9 * width)
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
    bars = [
        Bar(
            f"{label} → {predicted}",
            images,
            f"{number(images)} ({number(share)} %)",
            f"{label}\ntaken for {predicted}: {count(images, 'image')} ({number(share, 1)} %)",
        )
        for label, predicted, images, share in rows[:MOST_BARS]
    ]
    chart = bar_chart(title, summary, bars, "ensemble", left=390) if rows else None
    return Figure(title, Table(ident, f"{title}: confusions", columns, rows), text, chart)


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
    order = _worst_first(diagnosis.per_class, "recall")
    present = [(label, each) for label, each in order if each.images]
    summary = _class_summary(present)
    more = " The chart shows the worst 30; the table lists all." if len(order) > MOST_ROWS else ""
    shown, bars, precisions = present[:MOST_ROWS], [], []
    for label, each in shown:
        recall, precision = number(each.recall or 0, 1), each.precision
        tip = f"{label}\nrecall {recall} % of {count(each.images, 'image')}"
        bars.append(Bar(label, each.recall or 0, recall, tip))
        tip = f"{label}\nprecision {number(precision, 1)} %"
        precisions.append(None if precision is None else (precision, tip))
    left = min(max((text_width(label, 12) for label, _ in shown), default=0) + 24, 230)
    return Figure(
        title=title,
        text=summary + more,
        chart=_percentages(title, summary, bars, precisions, left) if present else None,
        legend=[
            Key("single", "square", "recall: share of the images of a class that are recognised"),
            Key("neutral", "diamond", "precision: share of its predictions that are right"),
        ],
        table=_class_table(diagnosis, order, ident, title, domains or {}),
    )


def _worst_first(figures: Mapping[str, Any], measure: str) -> list[tuple[str, Any]]:
    """Names and figures by a measure; those without samples are last."""
    values = {name: getattr(each, measure) for name, each in figures.items()}
    return sorted(figures.items(), key=lambda item: (values[item[0]] is None, values[item[0]] or 0))


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


def _percentages(
    title: str,
    description: str,
    bars: Sequence[Bar],
    others: Sequence[tuple[float, str] | None] = (),
    left: float = 230,
) -> Chart:
    """A bar of a percentage in each row; `others` are second values, with their tips."""

    def draw_row(drawing: Drawing, scale: Scale, at: int, middle: float) -> None:
        bar, other = bars[at], others[at] if others else None
        width = scale(bar.value) - scale.start
        drawing.rect(scale.start, middle - 6, width, 12, "bar single", data_tip=bar.tip)
        if other is not None:
            mark(drawing, "diamond", scale(other[0]), middle, "dot neutral", other[1])
        drawing.text(drawing.width, middle + 4, bar.label, "value", end="end")

    names = [bar.name for bar in bars]
    return row_chart(title, description, names, partial(Scale, 0, 100), draw_row, left=left)


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
        axis_beside(drawing, up, left, right)
        drawing.line(across(0), up(0), across(100), up(100), "diagonal")
        drawing.text(0, base + 32, "Images", "head")
        drawing.line(left, foot, right, foot, "zero")
        for value, label in across.ticks(6):
            drawing.text(across(value), foot + 16, label, "tick", end="middle")
        drawing.text((left + right) / 2, foot + 38, "confidence %", "head", end="middle")
        points = [(across(each.confidence), up(each.accuracy)) for each in bins]
        drawing.curve(points, "expected")
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
    """The diagnosis of each held-out domain, the hardest domain first."""
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


# --- predicted numbers ----------------------------------------------------------------------------


def numbers_blocks(
    diagnosis: NumberDiagnosis, files: Mapping[str, StoredFile], noun: str
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
    bars = []
    for each in figures.ranges:
        values, error = (
            f"{significant(each.low)} to {significant(each.high)}",
            significant(each.absolute_error),
        )
        tip = (
            f"{values}\nabsolute error {error}, bias {significant(each.bias)}, "
            f"{count(each.images, 'sample')}"
        )
        bars.append(Bar(values, each.absolute_error, error, tip))
    table = Table.over(ident, title, columns, figures.ranges)
    return Figure(title, table, text, bar_chart(title, text, bars, "single"))


def _largest(name: str, figures: NumberFigures, files: Mapping[str, StoredFile]) -> Cards:
    cards = []
    for each in figures.largest:
        pairs = [("true", significant(each.label)), ("predicted", significant(each.predicted))]
        text = f"{name} {pairs[0][1]} in {each.domain}, predicted {pairs[1][1]}"
        cards.append(Card(each.path, pairs, thumbnail(files, each.path, text, MISTAKE_SIDE)))
    return Cards(f"{name}: largest errors", cards)


# --- several labels -------------------------------------------------------------------------------


def labels_blocks(
    diagnosis: LabelDiagnosis, files: Mapping[str, StoredFile], noun: str
) -> list[Block]:
    """A figure of all labels, and the samples with the most confident mistakes."""
    blocks: list[Block] = [labels_figure(diagnosis, noun)]
    if diagnosis.mistakes:
        blocks.append(_label_mistakes(diagnosis, files))
    return blocks


def labels_figure(diagnosis: LabelDiagnosis, noun: str) -> Figure:
    """Average precision, recall and precision of each label, the worst first."""
    order = _worst_first(diagnosis.per_label, "average_precision")
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
    bars = []
    for name, each in present[:MOST_ROWS]:
        value = each.average_precision or 0.0
        tip = f"{name}\naverage precision {number(value, 1)} %, {count(each.images, noun)}"
        bars.append(Bar(name, value, number(value, 1), tip))
    return Figure(
        title,
        Table("labels", title, columns, rows),
        text,
        _percentages(title, text, bars),
    )


def _label_mistakes(diagnosis: LabelDiagnosis, files: Mapping[str, StoredFile]) -> Cards:
    cards = []
    for each in diagnosis.mistakes:
        truth = f"{'has' if each.has else 'has not'} {each.label}"
        sure = f"{'not ' if each.has else ''}{each.label}, {number(each.confidence)} %"
        text = f"{truth} in {each.domain}, predicted as {sure}"
        pairs = [("true", truth), ("predicted", sure)]
        cards.append(Card(each.path, pairs, thumbnail(files, each.path, text, MISTAKE_SIDE)))
    return Cards("Most confident mistakes", cards, "At most one for each image.")
