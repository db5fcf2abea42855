"""Figures of several labels."""

from __future__ import annotations

import numpy as np
from tests.report.assessment_example import example_test

from oodzoo.diagnostics.labels import LabelDiagnosis, diagnose_labels
from oodzoo.report.blocks import Cards, Figure
from oodzoo.report.label_figures import labels_blocks, labels_figure


def test_the_worst_label_comes_first() -> None:
    found = example_test("multilabel").diagnosis
    assert isinstance(found, LabelDiagnosis)
    figure, mistakes = labels_blocks(found, {}, "image")
    assert isinstance(figure, Figure)
    values = [row[2] for row in figure.table.rows]
    assert values == sorted(values)
    assert figure.text.startswith(f"{figure.table.rows[0][0]} is predicted worst")
    assert isinstance(mistakes, Cards)
    assert len(mistakes.cards) == 12
    first = found.mistakes[0]
    assert mistakes.cards[0].pairs[0] == (
        "true",
        f"{'has' if first.has else 'has not'} {first.label}",
    )


def test_a_label_without_images_is_last() -> None:
    y = np.array([[1.0, 0.0], [0.0, 0.0]])
    found = diagnose_labels(y, y, ["cat", "dog"], paths=["a", "b"], domains="d")
    figure = labels_figure(found, "image")
    assert [row[:3] for row in figure.table.rows] == [["cat", 1, 100.0], ["dog", 0, None]]
    assert len(labels_blocks(found, {}, "image")) == 1
