"""Further columns of a table, which domains can be proposed by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from typing import Any

from oodzoo.data.sources.names import is_missing, kind_and_name

ONE_DOMAIN = "all"
"""The domain of all images, where none is known."""


def read_metadata(
    available: Iterable[str], used: Iterable[str], values: Callable[[str], Sequence[Any]]
) -> dict[str, list[str | None]]:
    """Read the columns that have no role as text; those without plain values are left out.

    Parameters
    ----------
    available : iterable of str
        The columns of the source.
    used : iterable of str
        The columns that have a role.
    values : callable
        Returns the values of a column.
    """
    taken = {*used, "path", "image", "label", "group", "domain"}
    columns = ((name, as_texts(values(name))) for name in available if name not in taken)
    return {name: texts for name, texts in columns if texts is not None}


def as_texts(values: Sequence[Any]) -> list[str | None] | None:
    """Convert strings, integers, booleans and dates to text; None for other values.

    Examples
    --------
    >>> as_texts(["a ", None, 3.0, True, date(2019, 7, 31)])
    ['a', None, '3', 'True', '2019-07-31']
    >>> as_texts([0.5]) is None
    True
    """
    texts: list[str | None] = []
    for value in values:
        if is_missing(value):
            texts.append(None)
            continue
        if isinstance(value, date | datetime):
            texts.append(value.isoformat())
            continue
        kind, name = kind_and_name(value)
        if kind is None:
            return None
        texts.append(name.strip() or None)
    return texts
