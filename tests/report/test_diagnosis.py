"""Figures of classes and labels, for counts that can be checked by hand."""

from __future__ import annotations

from dataclasses import replace

from tests.report.diagnosis_example import example_diagnosis

from oodzoo.report.diagnosis import classes_figure
from oodzoo.report.page import Figure


def drawn(figure: Figure) -> list[str]:
    assert figure.chart is not None
    return [figure.chart.wide.render(), figure.chart.narrow.render()]


def test_the_worst_class_is_first() -> None:
    """Owls do not occur; nothing is predicted as a fox."""
    counts = ((3, 1, 0, 0), (0, 4, 0, 0), (0, 0, 0, 0), (1, 1, 0, 0))
    few = replace(example_diagnosis(["cat", "dog", "owl", "fox"]), confusion=counts)
    figure = classes_figure(few, "classes", "Title")
    assert figure.table.rows == [
        ["fox", 2, 0.0, None, "cat (1)"],
        ["cat", 4, 75.0, 75.0, "dog (1)"],
        ["dog", 4, 100.0, 400 / 6, None],
        ["owl", 0, None, None, None],
    ]
    assert figure.text == (
        "fox is recognised worst: 0.0 % of 2 images; dog best: 100.0 % of 4 images."
    )
    for each in drawn(figure):
        assert (each.count('class="bar single"'), each.count('class="dot neutral"')) == (3, 2)
    one = replace(few, classes=("cat",), confusion=((2,),))
    assert classes_figure(one, "c", "T").text == "100.0 % of the images of cat are recognised."
