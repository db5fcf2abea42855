"""Scores of models that a person brings along, as a table."""

from __future__ import annotations

import csv
from pathlib import Path

from oodzoo.errors import InputError
from oodzoo.testbed.bed import Values


def read_values(path: Path) -> dict[str, Values]:
    """Read a CSV with a column `model` and one for each score; an empty cell is not known."""
    where = f"the table {str(path)!r}"
    try:
        rows = list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines()))
    except OSError as error:
        raise InputError(f"cannot read {where}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{where} is no CSV: {error}") from error
    rows = [row for row in rows if any(cell.strip() for cell in row)]
    if not rows or rows[0][0].strip() != "model" or len(rows[0]) < 2:
        found = ",".join(rows[0]) if rows else ""
        raise InputError(f"{where} must begin with the line model,SCORE,…, and not {found!r}")
    _, *names = (cell.strip() for cell in rows[0])
    if len(set(names)) < len(names):
        raise InputError(f"{where} names a score twice: {', '.join(names)}")
    values: dict[str, dict[str, float | None]] = {name: {} for name in names}
    for number, (model, *cells) in enumerate(rows[1:], start=2):
        if len(cells) != len(names):
            raise InputError(f"{where}, row {number}: {len(cells) + 1} cells, not {len(rows[0])}")
        for name, cell in zip(names, cells, strict=True):
            if model in values[name]:
                raise InputError(f"{where}, row {number}: the model {model!r} comes twice")
            values[name][model] = _number(cell.strip(), f"{where}, row {number}")
    return dict(values)


def _number(cell: str, where: str) -> float | None:
    if not cell:
        return None
    try:
        return float(cell)
    except ValueError as error:
        raise InputError(f"{where}: {cell!r} is no number") from error
