"""Scores computed elsewhere, for example read from a CSV file."""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Mapping
from pathlib import Path

from oodzoo._text import count
from oodzoo.errors import InputError
from oodzoo.testbed.agreement import Values


def read_values(path: Path) -> dict[str, Values]:
    """Read a CSV file with a column `model` and one column per score; empty cells are missing."""
    context = f"the table {str(path)!r}"
    try:
        rows = list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines()))
    except OSError as error:
        raise InputError(f"cannot read {context}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{context} is not a CSV file: {error}") from error
    rows = [row for row in rows if any(cell.strip() for cell in row)]
    if not rows or rows[0][0].strip() != "model" or len(rows[0]) < 2:
        found = ",".join(rows[0]) if rows else ""
        raise InputError(f"{context} must start with the line model,SCORE,…, got {found!r}")
    _, *names = (cell.strip() for cell in rows[0])
    if len(set(names)) < len(names):
        raise InputError(f"{context} has duplicate score names: {', '.join(names)}")
    values: dict[str, dict[str, float | None]] = {name: {} for name in names}
    for number, (model, *cells) in enumerate(rows[1:], start=2):
        if len(cells) != len(names):
            raise InputError(
                f"{context}, row {number}: expected {count(len(rows[0]), 'cell')}, "
                f"got {len(cells) + 1}"
            )
        for name, cell in zip(names, cells, strict=True):
            if model in values[name]:
                raise InputError(f"{context}, row {number}: duplicate model {model!r}")
            values[name][model] = _number(cell.strip(), f"{context}, row {number}")
    return dict(values)


def _number(cell: str, context: str) -> float | None:
    if not cell:
        return None
    try:
        value = float(cell)
    except ValueError as error:
        raise InputError(f"{context}: {cell!r} is not a number") from error
    if not math.isfinite(value):
        raise InputError(f"{context}: {cell!r} is not a finite number")
    return value


def require_valid(
    external: Mapping[str, Values], models: Collection[str], reserved: Collection[str]
) -> None:
    """Reject scores with a reserved name, unknown models, or values that are not finite."""
    for name, values in external.items():
        if name in reserved:
            raise InputError(f"the score name {name!r} is reserved; rename the external score")
        if not name.isidentifier():
            raise InputError(
                f"a score name must consist of letters, digits and underscores, got {name!r}"
            )
        for model, value in values.items():
            if model not in models:
                raise InputError(f"score {name!r}: no such model: {model!r}")
            if value is not None and not math.isfinite(value):
                raise InputError(f"score {name!r}: the value of {model!r} is not finite: {value}")
