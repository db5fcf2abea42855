"""Budgets of time as users write them."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oodzoo.errors import InputError
from oodzoo.racing.policy import parse_budget


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("30m", 1800),
        ("30min", 1800),
        ("2h", 7200),
        ("1h30m", 5400),
        ("1h 30m 5s", 5405),
        ("90s", 90),
        (" 1.5H ", 5400),
        (0.25, 0.25),
        (7, 7),
    ],
)
def test_durations(given: str | float, seconds: float) -> None:
    assert parse_budget(given) == seconds


@pytest.mark.parametrize(
    "given",
    [
        *("", " ", "m", "30 minutes", "30m1h", "-5m", "1e3", "0", "0s", "nan", "inf", "1h90", "½h"),
        *("٣m", 0, -1, math.nan, math.inf, True),
    ],
)
def test_what_is_not_a_duration_is_quoted(given: str | float) -> None:
    with pytest.raises(InputError, match=re.escape(f"got {given!r}")) as raised:
        parse_budget(given)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("given", ["30", " 1.5 "])
def test_a_number_without_a_unit_is_refused_with_the_spellings(given: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"got {given!r}")) as raised:
        parse_budget(given)
    for unit in "smh":
        assert parse_budget(given.strip() + unit) > 0
        assert f"{given.strip()}{unit} (" in str(raised.value)


@given(st.integers(0, 99), st.integers(0, 999), st.integers(0, 9999))
def test_parts_add_up(hours: int, minutes: int, seconds: int) -> None:
    total = 3600 * hours + 60 * minutes + seconds
    if total:
        assert parse_budget(f"{hours}h{minutes}m{seconds}s") == total
