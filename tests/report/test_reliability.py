"""Reliability diagrams show every bin and say what it means."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.report.diagnosis_example import example_diagnosis

from oodzoo.diagnostics.classes import ClassDiagnosis
from oodzoo.diagnostics.reliability import Bin, Reliability
from oodzoo.report.reliability import reliability_figure


@pytest.fixture(scope="module")
def diagnosis() -> ClassDiagnosis:
    return example_diagnosis(["cat", "dog", "owl"])


def test_every_bin_is_drawn_and_in_the_table(diagnosis: ClassDiagnosis) -> None:
    figure = reliability_figure(diagnosis, "reliability", "Title")
    bins = diagnosis.reliability.bins
    assert [row[:4] for row in figure.table.rows] == [
        [(each.low, each.high), each.images, each.confidence, each.accuracy] for each in bins
    ]
    assert figure.chart is not None
    for drawn in (figure.chart.wide, figure.chart.narrow):
        assert drawn.count("<circle") == drawn.count('class="stroke"') == len(bins)


@pytest.mark.parametrize(
    ("accuracy", "error", "verdict"),
    [
        (95.5, 0.5, "Confidence and accuracy agree"),
        (95.5, 9.0, "Confidence and accuracy agree on average, but not at every confidence"),
        (80.0, 16.0, "On average, it is too sure"),
        (100.0, 4.0, "On average, it is not sure enough"),
    ],
)
def test_the_verdict(
    diagnosis: ClassDiagnosis, accuracy: float, error: float, verdict: str
) -> None:
    found = Reliability((Bin(90.0, 100.0, 50, 96.0, accuracy),), error)
    text = reliability_figure(replace(diagnosis, reliability=found), "r", "Title").text
    assert text == (
        f"{verdict}: mean confidence 96.0 %, accuracy {accuracy:.1f} %. Of the 50 images with a "
        f"confidence of 90–100 %, {accuracy:.1f} % are right. Expected calibration error, the mean "
        f"distance from the diagonal: {error:.1f} points."
    )
