"""How often predictions of a given confidence are right."""

from __future__ import annotations

import math
from collections.abc import Sequence

from oodzoo._text import count
from oodzoo.diagnostics.classes import ClassDiagnosis
from oodzoo.diagnostics.reliability import Bin, Reliability
from oodzoo.report.blocks import Column, Figure, Key, Table
from oodzoo.report.chart import Chart, Scale, Size, in_both_sizes
from oodzoo.report.numbers import number, span
from oodzoo.report.svg import Drawing

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
    summary = _summary(found, error)
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
        chart=_chart(found.bins, title, summary),
        legend=[
            Key("expected", "circle", "accuracy of the images of a confidence; small: few images"),
            Key("neutral", "dashed", "on the diagonal: as often right as it is sure"),
            Key("stroke", "square", "number of images (square-root scale)"),
        ],
        table=Table(ident, f"{title}: accuracy by confidence", columns, rows),
    )


def _summary(found: Reliability, error: float | None) -> str:
    surest = found.bins[-1]
    within = "" if error is None else ", within each domain and averaged over domains"
    return (
        f"{_verdict(found)}: mean confidence {number(found.confidence, 1)} %, accuracy "
        f"{number(found.accuracy, 1)} %. Of the {count(surest.images, 'image')} with a confidence "
        f"of {span(surest.low, surest.high)} %, {number(surest.accuracy, 1)} % are right. Expected "
        f"calibration error, the mean distance from the diagonal{within}: "
        f"{number(found.error if error is None else error, 1)} points."
    )


def _verdict(found: Reliability) -> str:
    gap = found.confidence - found.accuracy
    if abs(gap) >= CLOSE:
        return f"On average, it is {'too sure' if gap > 0 else 'not sure enough'}"
    if found.error >= FAR:
        return "Confidence and accuracy agree on average, but not at every confidence"
    return "Confidence and accuracy agree"


def _chart(bins: Sequence[Bin], title: str, description: str) -> Chart:
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
