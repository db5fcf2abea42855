"""Scales, ticks and marks."""

from __future__ import annotations

import re

import pytest

from oodzoo.report.chart import (
    Scale,
    axis_above,
    covering,
    edge_note,
    in_both_sizes,
    mark,
    percent,
)
from oodzoo.report.svg import Drawing


def test_a_scale_is_linear_and_clips() -> None:
    scale = Scale(0, 10, 100, 200)
    assert [scale(value) for value in (-5, 0, 5, 10, 50)] == [100, 100, 150, 200, 200]


def test_ticks_are_round() -> None:
    assert [label for _, label in Scale(0, 1, 0, 100).ticks(6)] == [
        "0.0", "0.2", "0.4", "0.6", "0.8", "1.0"
    ]  # fmt: skip
    assert [value for value, _ in Scale(17, 83, 0, 100).ticks(5)] == [20, 40, 60, 80]


@pytest.mark.parametrize(
    ("values", "zero", "ends"),
    [([2, 4], False, (2, 4)), ([2, 4], True, (0, 4)), ([-3], True, (-3, 0)), ([], True, (0, 1)),
     ([5, 5], False, (4.5, 5.5)), ([0], True, (0, 1))],
)  # fmt: skip
def test_a_scale_covers_all_values(
    values: list[float], zero: bool, ends: tuple[float, float]
) -> None:
    scale = covering(values, 0, 1, zero=zero)
    assert (scale.low, scale.high) == ends


@pytest.mark.parametrize(
    ("values", "ends"),
    [([43, 58], (40, 60)), ([-2, 104], (0, 100)), ([100], (100, 110)), ([50], (50, 60))],
)
def test_percentages_run_between_multiples_of_ten(
    values: list[float], ends: tuple[float, float]
) -> None:
    scale = percent(values, 0, 1)
    assert (scale.low, scale.high) == ends


@pytest.mark.parametrize(
    ("values", "ends"),
    [([43, 58], (40, 60)), ([-23, 71], (-30, 80)), ([-400, 20], (-100, 20)),
     ([-400], (-100, -90))],
)  # fmt: skip
def test_percentages_may_be_negative_down_to_the_lowest(
    values: list[float], ends: tuple[float, float]
) -> None:
    scale = percent(values, 0, 1, lowest=-100)
    assert (scale.low, scale.high) == ends


def test_values_at_the_edge_are_noted() -> None:
    assert edge_note([-30.0, 50.0], -30) == ""
    assert edge_note([-30.5, 50.0], -30) == (
        " Values below \N{MINUS SIGN}30 % are at the edge of the chart."
    )


def test_an_axis_has_only_as_many_labels_as_fit() -> None:
    wide, narrow = Drawing(400, 50, "", ""), Drawing(400, 50, "", "")
    axis_above(wide, Scale(0, 100, 0, 400), 20, 50, most=11)
    axis_above(narrow, Scale(0, 100, 0, 60), 20, 50, most=11)
    assert wide.render().count("<text") == 11
    assert narrow.render().count("<text") < 4


def test_labels_stay_inside_the_drawing() -> None:
    drawing = Drawing(100, 50, "", "")
    axis_above(drawing, Scale(-100, 100, 2, 98), 20, 50, unit=" %")
    places = [float(x) for x in re.findall(r'<text x="([0-9.]+)"', drawing.render())]
    assert places[0] > 15
    assert places[-1] < 85


def test_marks_differ_in_shape() -> None:
    drawn = []
    for shape in ("circle", "triangle", "wedge", "square", "diamond", "star", "line"):
        drawing = Drawing(10, 10, "", "")
        mark(drawing, shape, 5, 5, "dot", "tip")
        drawn.append(drawing.render())
    assert len(set(drawn)) == 7


def test_charts_come_in_two_sizes() -> None:
    chart = in_both_sizes(lambda size: Drawing(size.width, 10, "Title", "Text"))
    assert 'viewBox="0 0 960 10"' in chart.wide
    assert 'viewBox="0 0 340 10"' in chart.narrow
