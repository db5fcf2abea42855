"""Columns of tables: their roles, and their values as names."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from itertools import count
from textwrap import shorten
from typing import Any, TextIO

import numpy as np

from oodzoo.core.errors import InputError, NoDomainsError
from oodzoo.core.text import did_you_mean, printable

ROLES = ("path", "image", "text", "label", "domain", "group")
"""What a column can be used for; `path` names a file, `image` has its bytes, `text` a text."""

SEPARATOR = "+"
"""Between the names of several columns of labels: `--columns label=age+height`."""


def parse_columns(text: str) -> dict[str, str]:
    """Read `path=filepath,label=y,domain=site`: the column for each role.

    Examples
    --------
    >>> parse_columns("label=y, domain=site")
    {'label': 'y', 'domain': 'site'}
    """
    columns: dict[str, str] = {}
    for part in text.split(","):
        role, equals, name = (piece.strip() for piece in part.partition("="))
        if not (role and equals and name):
            raise InputError(f"columns must be ROLE=NAME,…, got {part.strip()!r} in {text!r}")
        _require_role(role, f"in {text!r}")
        if role in columns:
            raise InputError(f"columns name {role!r} twice: {text!r}")
        columns[role] = name
    return columns


def find_columns(
    available: Sequence[str],
    columns: Mapping[str, str] | None,
    needed: Sequence[str],
    source: str,
    *,
    optional: Sequence[str] = ("group",),
) -> dict[str, str]:
    """Find the column of each role: the one that `columns` names, or that of the role's name.

    Labels can be in several columns, as `age+height`; see :func:`split_columns`.

    Parameters
    ----------
    available : sequence of str
        The columns of the source.
    columns : dict of str to str, optional
        Names of columns by role.
    needed, optional : sequence of str
        Roles; a column that is needed, or named, must be there.
    source : str
        What messages call the source.

    Raises
    ------
    InputError
        If a column is missing, with near names; or if there are two of its name.
    """
    given = dict(columns or {})
    for role in given:
        _require_role(role, f"for {source!r}")
        if role not in (*needed, *optional):
            used = ", ".join((*needed, *optional))
            raise InputError(f"{source!r} has no use for a column {role!r}; it uses {used}")
    found, missing = {}, {}
    for role in (*needed, *optional):
        name = given.get(role, role)
        parts = split_columns(name, available) if role == "label" else [name]
        for part in parts:
            if list(available).count(part) > 1:
                raise InputError(f"{source!r} has the column {part!r} twice: {_listed(available)}")
            if parts.count(part) > 1:
                raise InputError(f"the labels {name!r} name the column {part!r} twice")
        absent = [part for part in parts if part not in available]
        if not absent:
            found[role] = name
        elif role in needed or role in given:
            missing[role] = absent[0]
    if missing:
        kind = NoDomainsError if {*missing} == {"domain"} and "domain" not in given else InputError
        raise kind(f"{source!r} {_without(missing, available)}")
    return found


def separator_of(table: TextIO) -> str:
    """Return what separates the columns of a CSV file: commas, or else semicolons or tabs.

    Examples
    --------
    >>> from io import StringIO
    >>> separator_of(StringIO("path;domain;label")), separator_of(StringIO("path,a;b"))
    (';', ',')
    """
    header = table.readline()
    table.seek(0)
    return "," if "," in header else max((",", ";", "\t"), key=header.count)


def split_columns(name: str, available: Sequence[str]) -> list[str]:
    """Return the columns that `age+height` names: the column of that name first, or else several.

    Examples
    --------
    >>> split_columns("age+height", ["age", "height", "site"])
    ['age', 'height']
    >>> split_columns("age+height", ["age+height", "site"])
    ['age+height']
    """
    if name in available or SEPARATOR not in name:
        return [name]
    return [part.strip() for part in name.split(SEPARATOR)]


def name_columns(roles: Iterable[str]) -> str:
    """How to name the columns of some roles, in the shell and in Python.

    Examples
    --------
    >>> name_columns(["label", "domain"])
    "--columns label=NAME,domain=NAME (in Python columns={'label': NAME, 'domain': NAME})"
    """
    names = dict.fromkeys(roles, "NAME")
    shell = ",".join(f"{role}={name}" for role, name in names.items())
    python = ", ".join(f"{role!r}: {name}" for role, name in names.items())
    return f"--columns {shell} (in Python columns={{{python}}})"


def _without(missing: Mapping[str, str], available: Sequence[str]) -> str:
    """Say which columns are missing, by role, and what to do."""
    if len(missing) == 1:
        [(role, name)] = missing.items()
        advice = printable(did_you_mean(name, available)) or "which one is it?"
        what = f"no column {name!r}" + (f" for the {role}" if name != role else "")
        advice = f"{advice} Name it"
    else:
        what = f"no columns {', '.join(map(repr, missing.values()))}"
        advice = "name them"
    message = f"has {what}, it has {_listed(available)}; {advice} with {name_columns(missing)}"
    if "domain" in missing:
        message += ", or have domains proposed with --domains propose (domains='propose')"
    return message


def as_names(
    values: Iterable[Any], role: str, source: str, rows: Iterable[int] | None = None
) -> list[str]:
    """Convert labels or domains to text; all must be strings, or all integers or booleans.

    `rows` has the row of each value for messages; by default they are numbered from 0.

    Raises
    ------
    InputError
        For a missing value, another kind of value, or values of several kinds; with the row.
    """
    names: list[str] = []
    kinds: dict[str, tuple[int, Any]] = {}
    for row, value in zip(count() if rows is None else rows, values, strict=False):
        kind, name = kind_and_name(value)
        if kind is None or not name.strip():
            what = "is missing"
            if kind is None and not is_missing(value):
                what = f"is {shorten(repr(value), 80, placeholder=' …')}"
            raise InputError(
                f"{source!r}, row {row}: the {role} {what}; give a string or an integer to each"
            )
        kinds.setdefault(kind, (row, value))
        if len(kinds) > 1:
            (first, (at, one)), (second, (here, other)) = kinds.items()
            raise InputError(
                f"{source!r} has {role}s of mixed kinds: {one!r} ({first}) in row {at} and "
                f"{other!r} ({second}) in row {here}; give all as strings or all as integers"
            )
        names.append(name.strip())
    return names


def as_groups(values: Sequence[Any], source: str) -> list[str | None]:
    """Convert groups to text; missing ones are None."""
    known = [row for row, value in enumerate(values) if not is_missing(value)]
    names = as_names([values[row] for row in known], "group", source, known)
    groups: list[str | None] = [None] * len(values)
    for row, name in zip(known, names, strict=True):
        groups[row] = name
    return groups


def kind_and_name(value: Any) -> tuple[str | None, str]:
    """Return the kind and the text of a value; None and no text if it cannot be a name."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        return "string", value
    if isinstance(value, bool):
        return "boolean", str(value)
    if isinstance(value, int):
        return "integer", str(value)
    # A column of integers with a missing value becomes one of floats in many libraries.
    if isinstance(value, float) and value.is_integer():
        return "integer", str(int(value))
    return None, ""


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, a missing value of pandas, or an empty string."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return True
    return type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, str) and not value)


def _require_role(role: str, where: str) -> None:
    if role not in ROLES:
        raise InputError(f"unknown role {role!r} {where}; expected one of {', '.join(ROLES)}")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:20]))
    return shown + (", …" if len(names) > 20 else "") or "no columns"


# --- further columns, which domains can be proposed by --------------------------------------------

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
