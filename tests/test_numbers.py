"""Numbers as text."""

from __future__ import annotations

import math

import pytest

from oodzoo.core.numbers import is_number, number, significant, span


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(1234567, 0, "1,234,567"), (-0.04, 1, "0.0"), (-1.5, 1, "\N{MINUS SIGN}1.5"),
     (None, 2, "–"), (math.nan, 2, "–"), (math.inf, 2, "–")],
)  # fmt: skip
def test_numbers(value: float | None, digits: int, text: str) -> None:
    assert number(value, digits) == text


def test_booleans_are_not_numbers() -> None:
    assert is_number(1)
    assert not is_number(True)


def test_intervals() -> None:
    assert span(1, 3) == "1–3"
    assert span(-1, 3) == "\N{MINUS SIGN}1 to 3"
    assert span(1, None) == "–"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1e-7, "1e\N{MINUS SIGN}07"),
        (2_974_377, "2,974,377"),
        (-0.5, "\N{MINUS SIGN}0.500"),
    ],
)
def test_significant_figures(value: float, text: str) -> None:
    assert significant(value) == text
