"""The table of a summary: a row for each domain, and only columns that say something."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from oodzoo._text import file_size
from oodzoo.data.summary_rows import DomainSummary
from oodzoo.task import CLASSIFICATION, Task

_Cell = Callable[[DomainSummary], str]


MOST_NUMBERS = 4
"""Numbers to predict that the table of a data set shows."""


def columns_and_rows(
    rows: Sequence[DomainSummary], names: Sequence[str], task: Task = CLASSIFICATION
) -> tuple[list[str], list[list[str]]]:
    """Return the names of the columns, and the cells of each row; empty columns are left out.

    `names` are those of the classes, labels or numbers.
    """
    plural, noun = ("classes", "class") if task.is_classification else ("labels", "label")
    outputs: dict[str, _Cell] = {
        plural: lambda row: f"{row.classes}/{len(names)}",
        f"per {noun}": _per_class,
        "no label": lambda row: _number(row.without_label),
    }
    if task.kind == "regression":
        outputs = {}
        for name in names[:MOST_NUMBERS]:
            outputs[name] = partial(_mean, name)
            outputs[f"{name} range"] = partial(_range, name)
    cells: dict[str, _Cell] = {
        "domain": lambda row: row.domain,
        "images": lambda row: f"{row.images:,}",
        **outputs,
        "shift": lambda row: _percent(row.label_shift),
        "unreadable": lambda row: _number(row.unreadable),
        "copies": lambda row: _number(row.copies),
        "shared": lambda row: _number(row.shared),
        "size": _size,
        "sides": _sides,
        "grey": lambda row: _percent(row.greyscale) if row.greyscale else "",
        "bytes": lambda row: "" if row.n_bytes is None else file_size(row.n_bytes),
    }
    table = {name: [cell(row) for row in rows] for name, cell in cells.items()}
    shown = {name: column for name, column in table.items() if any(column)}
    return list(shown), [list(row) for row in zip(*shown.values(), strict=True)]


def _per_class(row: DomainSummary) -> str:
    return _span(row.fewest.images, row.most.images) if row.fewest and row.most else "0"


def _mean(name: str, row: DomainSummary) -> str:
    """Mean and standard deviation of a number."""
    spread = (row.numbers or {})[name]
    return f"{spread.mean:.3g} ± {spread.deviation:.3g}"


def _range(name: str, row: DomainSummary) -> str:
    spread = (row.numbers or {})[name]
    return f"{spread.smallest:.3g} to {spread.largest:.3g}"


def _span(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def _number(n: int | None) -> str:
    return f"{n:,}" if n else ""


def _percent(value: float | None) -> str:
    if value is None:
        return ""
    return "<1 %" if 0 < value < 0.5 else f"{value:.0f} %"


def _size(row: DomainSummary) -> str:
    """Median width and height."""
    return f"{row.width.median}×{row.height.median}" if row.width and row.height else ""


def _sides(row: DomainSummary) -> str:
    """The shortest and the longest side of an image; nothing if all have the same size."""
    if row.width is None or row.height is None:
        return ""
    if row.width.smallest == row.width.largest and row.height.smallest == row.height.largest:
        return ""
    shortest = min(row.width.smallest, row.height.smallest)
    return f"{shortest}–{max(row.width.largest, row.height.largest)}"
