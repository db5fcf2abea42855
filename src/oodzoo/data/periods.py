"""Columns of dates, and the periods that they are cut into."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime

PERIODS = ("year", "quarter", "month")
PARTS = 4
"""Number of periods with equally many images."""

_YEARS = range(1900, 2101)
_EXIF = re.compile(r"(\d{4}):(\d\d):(\d\d)(?=\s|$)")


def read_dates(values: Sequence[str | None]) -> list[date | None] | None:
    """Read dates such as 2019-07-31, 2019-07-31T12:00, 2019/07/31, 20190731 or 2019:07:31 12:00:00.

    Returns None if a value is not a date; missing dates are None.

    Examples
    --------
    >>> read_dates(["2019-07-31", "2019:08:01 10:00:00", None])
    [datetime.date(2019, 7, 31), datetime.date(2019, 8, 1), None]
    >>> read_dates(["2019-07-31", "summer"]) is None
    True
    """
    dates: list[date | None] = []
    known: dict[str, date | None] = {}
    for value in values:
        if value is None:
            dates.append(None)
            continue
        if value not in known:
            known[value] = _date(value)
        if known[value] is None:
            return None
        dates.append(known[value])
    return dates if known else None


def _date(text: str) -> date | None:
    try:
        found = datetime.fromisoformat(_EXIF.sub(r"\1-\2-\3", text.strip()).replace("/", "-"))
    except ValueError:
        return None
    return found.date() if found.year in _YEARS else None


def period_of(day: date, period: str) -> str:
    """Name the period that a day is in; names are sorted as the days are.

    Examples
    --------
    >>> [period_of(date(2019, 7, 31), period) for period in PERIODS]
    ['2019', '2019-Q3', '2019-07']
    """
    if period == "year":
        return f"{day.year}"
    if period == "quarter":
        return f"{day.year}-Q{(day.month + 2) // 3}"
    return f"{day.year}-{day.month:02d}"


def equal_parts(dates: Sequence[date | None], parts: int) -> list[str | None]:
    """Cut dates into consecutive periods with about equally many images; a day is kept whole.

    Examples
    --------
    >>> equal_parts([date(2019, 1, day) for day in (1, 2, 9)], 2)
    ['2019-01-01 to 2019-01-02', '2019-01-01 to 2019-01-02', '2019-01-09']
    """
    days = sorted(day for day in dates if day is not None)
    before: dict[date, int] = {}
    for number, day in enumerate(days):
        before.setdefault(day, number)
    part_of = {day: number * parts // len(days) for day, number in before.items()}
    names = {}
    for part in set(part_of.values()):
        inside = [day for day, number in part_of.items() if number == part]
        ends = (min(inside), max(inside))
        names[part] = " to ".join(dict.fromkeys(day.isoformat() for day in ends))
    return [None if day is None else names[part_of[day]] for day in dates]
