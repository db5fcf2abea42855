"""Accuracy by the number of images per class."""

from __future__ import annotations

from tests.report.example import DOMAINS, example_run
from tests.report.reader import Reader

from oodzoo.record import Run
from oodzoo.report.learning_curve import learning_curve_figure


def test_csv_equals_the_curve(run: Run, read: Reader) -> None:
    assert run.evaluation is not None
    curve = run.evaluation.learning_curve
    assert curve is not None
    rows = read.table("learning-curve")
    for row, point in zip(rows, curve.points, strict=True):
        assert float(row["images_per_class"]) == point.images_per_class
        assert float(row["average"]) == point.average
        assert {d: float(row[f"domain_{d}"]) for d in DOMAINS} == point.domains
    assert curve.text in read.text


def test_the_points_are_drawn(run: Run) -> None:
    assert run.evaluation is not None
    assert run.evaluation.learning_curve is not None
    figure = learning_curve_figure(run.evaluation.learning_curve)
    assert figure.chart is not None
    for drawn in (figure.chart.wide, figure.chart.narrow):
        assert drawn.count("<circle") == 4
        assert drawn.count('class="stroke"') == 4 * len(DOMAINS)
        for images in ("4.5", "9", "18", "36"):
            assert f">{images}<" in drawn


def test_other_tasks_count_all_training_images() -> None:
    evaluation = example_run(2, task="regression", classes=["age"]).evaluation
    assert evaluation is not None
    assert evaluation.learning_curve is not None
    figure = learning_curve_figure(evaluation.learning_curve)
    assert figure.table.columns[0].key == "training_images"
    assert figure.table.columns[1].title == "Average explained variance %"
