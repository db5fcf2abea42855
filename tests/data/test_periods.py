"""Columns of dates, and the periods that they are cut into."""

from __future__ import annotations

from collections import Counter
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oodzoo.data.proposals import PERIODS, equal_parts, period_of, read_dates

DAYS = st.dates(date(1900, 1, 1), date(2100, 12, 31))


@pytest.mark.parametrize(
    "text",
    [
        "2019-07-31",
        "2019-07-31T23:59:59",
        "2019-07-31 10:00",
        "2019/07/31",
        "20190731",
        "2019:07:31 10:00:00",
        "2019-07-31T10:00:00Z",
    ],
)
def test_dates_in_usual_forms(text: str) -> None:
    assert read_dates([text, None]) == [date(2019, 7, 31), None]


@pytest.mark.parametrize("text", ["summer", "12", "2019", "31.07.2019", "1234-05-06", "2019-13-01"])
def test_other_text_is_no_date(text: str) -> None:
    assert read_dates(["2019-07-31", text]) is None


def test_a_column_without_any_value_has_no_dates() -> None:
    assert read_dates([None, None]) is None


@given(DAYS, DAYS, st.sampled_from(PERIODS))
def test_names_of_periods_are_ordered_as_days(one: date, other: date, period: str) -> None:
    earlier, later = sorted([one, other])
    assert period_of(earlier, period) <= period_of(later, period)
    same = {"year": one.year == other.year, "month": one.timetuple()[:2] == other.timetuple()[:2]}
    if period in same:
        assert (period_of(one, period) == period_of(other, period)) == same[period]


def test_quarters() -> None:
    names = [period_of(date(2020, month, 1), "quarter") for month in range(1, 13)]
    assert names == [f"2020-Q{quarter}" for quarter in (1, 2, 3, 4) for _ in range(3)]


@given(st.lists(DAYS | st.none(), min_size=1, max_size=40), st.integers(2, 5))
def test_equal_parts_are_consecutive_and_keep_days_whole(
    dates: list[date | None], parts: int
) -> None:
    names = equal_parts(dates, parts)
    assert [name is None for name in names] == [day is None for day in dates]
    known = sorted((day, name) for day, name in zip(dates, names, strict=True) if day and name)
    order = list(dict.fromkeys(name for _, name in known))
    assert len(order) <= parts
    assert [name for _, name in known] == sorted((n for _, n in known), key=order.index)
    assert len({day for day, _ in known}) == len(set(known))


def test_distinct_days_give_parts_of_equal_size() -> None:
    names = equal_parts([date(2020, 1, day) for day in range(1, 21)], 4)
    assert list(Counter(names).values()) == [5, 5, 5, 5]
    assert names[0] == "2020-01-01 to 2020-01-05"
