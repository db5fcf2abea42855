"""How well each of several numbers or labels is predicted."""

from __future__ import annotations

from statistics import fmean

import pytest
from tests.report.example import example_run
from tests.report.reader import Reader

from oodzoo.report import page
from oodzoo.report.outputs import outputs_figure


def test_the_measures_of_each_number() -> None:
    run = example_run(classes=["age", "height"], task="regression")
    text = page(run)
    read = Reader(text)
    assert run.evaluation is not None
    average = run.evaluation.recommended.average
    rows = read.table("outputs")
    assert [(row["output"], row["method"]) for row in rows] == [
        (output, method)
        for output in ("age", "height")
        for method in ("Recommended", "Pool", "Single")
    ]
    assert float(rows[0]["explained_variance"]) == pytest.approx(average)
    assert float(rows[3]["explained_variance"]) == pytest.approx(average - 5)
    single = fmean(run.evaluation.single.measure("explained_variance").values())
    assert float(rows[5]["explained_variance"]) == pytest.approx(single - 5)
    assert float(rows[5]["absolute_error"]) == pytest.approx(0.02)
    assert "Explained variance of each output" in read.text
    expected = f"age ({average:.1f} %) is predicted best and height ({average - 5:.1f} %) worst"
    assert expected in read.text
    assert "each absolute error is in the unit of its output" in read.text
    assert "Absolute error, mean over outputs<" in text


def test_the_precision_of_each_label() -> None:
    evaluation = example_run(classes=["cat", "dog"], task="multilabel").evaluation
    assert evaluation is not None
    figure = outputs_figure(evaluation)
    assert [column.title for column in figure.table.columns] == [
        "Label",
        "Method",
        "Average precision %",
    ]
    assert "over the test domains in which the label occurs" in figure.text


def test_a_single_number_and_classes_have_no_table() -> None:
    for run in (example_run(classes=["age"], task="regression"), example_run()):
        with pytest.raises(ValueError, match="not enough values"):
            Reader(page(run)).table("outputs")
