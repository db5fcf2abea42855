"""Figures of predicted numbers."""

from __future__ import annotations

from tests.report.assessment_example import example_test

from oodzoo.data.files import EmbeddedFile
from oodzoo.diagnostics.numbers import NumberDiagnosis
from oodzoo.report.blocks import Cards, Figure
from oodzoo.report.number_errors import numbers_blocks, thumbnail


def test_each_number_has_a_figure_and_its_largest_errors() -> None:
    found = example_test("regression", ["age", "height"]).diagnosis
    assert isinstance(found, NumberDiagnosis)
    first, errors, second, more = numbers_blocks(found, {}, "image")
    assert isinstance(first, Figure)
    assert isinstance(second, Figure)
    age = found.per_output["age"]
    assert [row[3] for row in first.table.rows] == [each.absolute_error for each in age.ranges]
    worst = max(age.ranges, key=lambda each: each.absolute_error)
    assert f"{worst.absolute_error:.2f}." in first.text
    assert isinstance(errors, Cards)
    assert [card.name for card in errors.cards] == [each.path for each in age.largest]
    assert isinstance(more, Cards)
    assert more.title == "height: largest errors"


def test_a_file_that_is_no_image_has_no_thumbnail() -> None:
    assert thumbnail("a", {}, "x") is None
    assert thumbnail("a", {"a": EmbeddedFile(b"text")}, "x") is None
