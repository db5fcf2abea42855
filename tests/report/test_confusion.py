"""Confusion matrices of few classes, and lists of confusions of many."""

from __future__ import annotations

import csv
import io

import pytest
from tests.report.diagnosis_example import example_diagnosis

from oodzoo.diagnostics.classes import ClassDiagnosis
from oodzoo.diagnostics.reliability import Bin, Reliability
from oodzoo.report.blocks import Figure
from oodzoo.report.confusion import confusion_figure

SURE = Reliability((Bin(90.0, 100.0, 9, 95.0, 78.0),), 17.0)


def rows(figure: Figure) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(figure.table.csv(), newline="")))


def test_the_matrix_is_drawn_and_its_counts_are_in_the_table() -> None:
    counts = ((3, 0, 1), (0, 4, 0), (1, 0, 0))
    figure = confusion_figure(ClassDiagnosis(("cat", "dog", "images"), counts, SURE), "c", "Title")
    assert [list(row.values()) for row in rows(figure)] == [
        ["cat", "4", "3", "0", "1"],
        ["dog", "4", "0", "4", "0"],
        ["images", "1", "1", "0", "0"],
    ]
    assert figure.text.endswith(
        "2 of 9 images are misclassified. Most frequent: cat taken for images (1 of 4); images "
        "taken for cat (1 of 1)."
    )
    assert figure.chart is not None
    for drawn in (figure.chart.wide, figure.chart.narrow):
        assert drawn.count('class="heat"') == 2
        assert drawn.count('class="heat amiss"') == 2
        assert "taken for images: 1 of 4 (25.0 %)" in drawn


def test_nothing_is_wrong() -> None:
    figure = confusion_figure(ClassDiagnosis(("a", "b"), ((2, 0), (0, 0)), SURE), "c", "Title")
    assert figure.text.endswith("All of 2 images are classified correctly.")
    many = tuple(str(at) for at in range(30))
    right = tuple(tuple(int(a == b) for b in many) for a in many)
    listed = confusion_figure(ClassDiagnosis(many, right, SURE), "c", "Title")
    assert (listed.chart, listed.table.rows) == (None, [])


@pytest.mark.parametrize("n_classes", [7, 10, 24])
def test_few_classes_are_a_matrix(n_classes: int) -> None:
    figure = confusion_figure(example_diagnosis([f"class {c}" for c in range(n_classes)]), "c", "T")
    assert len(figure.table.rows) == n_classes
    assert figure.chart is not None
    assert figure.chart.wide.count("heat") >= 2 * n_classes


def test_of_many_classes_the_most_frequent_confusions_are_listed() -> None:
    diagnosis = example_diagnosis([f"class {c}" for c in range(345)], images=20)
    figure = confusion_figure(diagnosis, "c", "T")
    found = [
        (row["true_class"], row["predicted_class"], int(row["images"])) for row in rows(figure)
    ]
    assert found == diagnosis.confusions[:200]
    assert "The table has the 200 most frequent of" in figure.text
    assert figure.chart is not None
    assert figure.chart.wide.count("<rect") == 12
