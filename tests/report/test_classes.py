"""Recall and precision of each class, the worst first."""

from __future__ import annotations

from dataclasses import replace

from tests.report.diagnosis_example import example_diagnoses, example_diagnosis

from oodzoo.diagnostics.classes import ClassDiagnosis, add_up
from oodzoo.report.classes import classes_figure


def few() -> ClassDiagnosis:
    """Owls do not occur; nothing is predicted as a fox."""
    counts = ((3, 1, 0, 0), (0, 4, 0, 0), (0, 0, 0, 0), (1, 1, 0, 0))
    return replace(example_diagnosis(["cat", "dog", "owl", "fox"]), confusion=counts)


def test_the_worst_class_is_first() -> None:
    figure = classes_figure(few(), "classes", "Title")
    assert figure.table.rows == [
        ["fox", 2, 0.0, None, "cat (1)"],
        ["cat", 4, 75.0, 75.0, "dog (1)"],
        ["dog", 4, 100.0, 400 / 6, None],
        ["owl", 0, None, None, None],
    ]
    assert figure.text == (
        "fox is recognised worst: 0.0 % of 2 images; dog best: 100.0 % of 4 images."
    )
    assert figure.chart is not None
    assert figure.chart.wide.count('class="bar single"') == 3
    assert figure.chart.wide.count('class="dot neutral"') == 2


def test_one_class() -> None:
    one = replace(few(), classes=("cat",), confusion=((2,),))
    assert classes_figure(one, "c", "T").text == "100.0 % of the images of cat are recognised."


def test_the_table_has_the_recall_in_each_domain() -> None:
    classes = ["cat", "dog", "owl"]
    domains = example_diagnoses(classes, {"day": 90, "night": 40})
    figure = classes_figure(add_up(domains.values()), "c", "T", domains)
    keys = [column.key for column in figure.table.columns]
    assert keys[-2:] == ["recall_day", "recall_night"]
    for label, *_, day, night in figure.table.rows:
        assert day == domains["day"].per_class[label].recall
        assert night == domains["night"].per_class[label].recall


def test_of_many_classes_the_chart_shows_the_worst() -> None:
    figure = classes_figure(example_diagnosis([f"c{at}" for at in range(40)]), "c", "T")
    assert figure.text.endswith("The chart shows the worst 30; the table lists all.")
    assert len(figure.table.rows) == 40
    assert figure.chart is not None
    assert figure.chart.narrow.count('class="bar single"') == 30
