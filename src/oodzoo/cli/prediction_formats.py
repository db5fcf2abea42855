"""Predictions as text: a table, CSV or lines of JSON, for each kind of task."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from oodzoo.core.text import csv_cell, printable

if TYPE_CHECKING:
    from oodzoo.predictor import Prediction
    from oodzoo.tasks import Task

Write = Callable[[Any], None]
"""Writes a prediction; or, but not in a table, `path` and `error` of a sample without one."""

_WIDEST = 40
"""Characters of a column of several classes in a table; longer ones shift the rest of the row."""


@dataclass(frozen=True)
class Wanted:
    """What is written of each prediction.

    Attributes
    ----------
    task : Task
    classes : sequence of str
        The classes, labels or names of the numbers.
    noun : str
        What a sample is called.
    top : int, optional
        Number of most probable classes to write, instead of all.
    abstains : bool
        Whether predictions may have no label.
    sets : bool
        Whether predictions have sets or intervals.
    """

    task: Task
    classes: Sequence[str]
    noun: str
    top: int | None = None
    abstains: bool = False
    sets: bool = False

    def probabilities(self, found: Prediction) -> dict[str, float]:
        """The probabilities to write: of all classes, or of the most probable ones in order."""
        values = dict(zip(self.classes, numbers(found), strict=True))
        if self.top is None:
            return values
        ranked = sorted(values, key=lambda name: -values[name])
        return {name: values[name] for name in ranked[: self.top]}


def fields(found: Prediction, wanted: Wanted) -> dict[str, Any]:
    """Return a prediction as a JSON document."""
    document: dict[str, Any] = {"path": found.path}
    if not wanted.task.has_probabilities:
        document["values"] = dict(zip(wanted.classes, numbers(found), strict=True))
    else:
        one = wanted.task.one_class
        document["label" if one else "labels"] = found.label if one else list(found.label)
        document["confidence"] = found.confidence
        document["probabilities"] = wanted.probabilities(found)
    document |= {"distance": found.distance, "out_of_domain": found.out_of_domain}
    if wanted.abstains:
        document["abstained"] = found.abstained
    if found.set is not None:
        document["set"] = list(found.set)
    if found.intervals is not None:
        document["intervals"] = dict(zip(wanted.classes, map(list, found.intervals), strict=True))
    return document


def writer(form: str, stream: TextIO, wanted: Wanted) -> Write:
    """Return a function that writes predictions in a form: "table", "csv" or "jsonl".

    The header is written at once.
    """
    return FORMS[form](stream, wanted)


def numbers(found: Prediction) -> list[float]:
    """Probabilities, or predicted numbers."""
    if found.probabilities is not None:
        probabilities: list[float] = found.probabilities.tolist()
        return probabilities
    return list(found.label) if isinstance(found.label, tuple) else [found.label]


def _jsonl(stream: TextIO, wanted: Wanted) -> Write:
    def write(found: Prediction | dict[str, Any]) -> None:
        document = found if isinstance(found, dict) else fields(found, wanted)
        stream.write(json.dumps(document, allow_nan=False) + "\n")

    return write


def _csv(stream: TextIO, wanted: Wanted) -> Write:
    rows = csv.writer(stream, lineterminator="\n")
    regression = not wanted.task.has_probabilities
    own = [] if regression else ["label" if wanted.task.one_class else "labels", "confidence"]
    own += ["abstained"] * wanted.abstains + ["set"] * (wanted.sets and not regression)
    names = list(wanted.classes) if regression else [f"p({name})" for name in wanted.classes]
    if wanted.top is not None:
        ranks = range(1, min(wanted.top, len(names)) + 1)
        names = [name for rank in ranks for name in (f"label_{rank}", f"p_{rank}")]
    if regression and wanted.sets:
        names += [f"{end}({name})" for name in wanted.classes for end in ("low", "high")]
    own += ["distance", "out_of_domain"]
    rows.writerow(["path", *own, "error", *map(csv_cell, names)])

    def write(found: Prediction | dict[str, Any]) -> None:
        if isinstance(found, dict):
            blank = [""] * len(own), [""] * len(names)
            rows.writerow([csv_cell(found["path"]), *blank[0], csv_cell(found["error"]), *blank[1]])
            return
        cells: list[Any] = [found.path]
        if not regression:
            cells.append(found.label if wanted.task.one_class else "|".join(found.label))
            cells.append(f"{found.confidence:.6g}")
        cells += [int(found.abstained)] * wanted.abstains
        if found.set is not None:
            cells.append("|".join(map(str, found.set)))
        cells += [f"{found.distance:.4g}", int(found.out_of_domain), ""]
        if regression:
            cells += [repr(value) for value in numbers(found)]
        else:
            for name, value in wanted.probabilities(found).items():
                cells += [f"{value:.6g}"] if wanted.top is None else [name, f"{value:.6g}"]
        cells += [repr(end) for interval in found.intervals or () for end in interval]
        rows.writerow(map(csv_cell, cells))

    return write


@dataclass(frozen=True)
class _Column:
    """A column of a table: its heading, its width, and the text of a cell."""

    heading: str
    width: int
    cell: Callable[[Prediction], str]
    right: bool = False

    def aligned(self, text: str) -> str:
        return f"{text:{'>' if self.right else '<'}{self.width}}"


def _table(stream: TextIO, wanted: Wanted) -> Write:
    # the names in a file stay as they are
    shown = printable if stream is sys.stdout else str
    columns = (_labels if wanted.task.has_probabilities else _numbers)(wanted, shown)
    heading = "  ".join(column.aligned(column.heading) for column in columns)
    stream.write(f"{heading}  dist.    {wanted.noun}\n")

    def write(found: Prediction) -> None:
        text = "  ".join(column.aligned(column.cell(found)) for column in columns)
        far = "far" if found.out_of_domain else ""
        stream.write(f"{text}  {found.distance:5.2f} {far:3} {shown(str(found.path))}\n")

    return write


def _numbers(wanted: Wanted, shown: Callable[[str], str]) -> list[_Column]:
    """Numbers, and the half-widths of their intervals."""
    columns = []
    for at, name in enumerate(map(shown, wanted.classes)):
        columns.append(
            _Column(name, max(9, len(name)), lambda x, at=at: f"{numbers(x)[at]:.4g}", True)  # type: ignore[misc]
        )
        if wanted.sets:
            columns.append(_Column("±", 7, lambda x, at=at: _half_width(x, at)))  # type: ignore[misc]
    return columns


def _half_width(found: Prediction, at: int) -> str:
    low, high = (found.intervals or ())[at]
    return f"{(high - low) / 2:.4g}"


def _labels(wanted: Wanted, shown: Callable[[str], str]) -> list[_Column]:
    """The label or labels, the most probable classes, and the set."""
    longest = max(len(shown(name)) for name in wanted.classes)
    # as wide as all classes together, if they are not many
    several = min(_WIDEST, max(longest, len(", ".join(map(shown, wanted.classes)))))

    def ranked(rank: int) -> list[_Column]:
        def at(found: Prediction) -> tuple[str, float]:
            return list(wanted.probabilities(found).items())[rank - 1]

        return [
            _Column(f"#{rank}", max(longest, 3), lambda found: shown(at(found)[0])),
            _Column("prob.", 5, lambda found: f"{at(found)[1]:5.3f}"),
        ]

    def label(found: Prediction) -> str:
        return "-" if found.abstained else shown(str(found.label))

    def together(names: Sequence[Any] | None) -> str:
        return shown(", ".join(map(str, names or ()))) or "-"

    if wanted.task.one_class:
        columns = [
            _Column("label", max(5, longest), label),
            _Column("prob.", 5, lambda found: f"{max(numbers(found)):5.3f}"),
        ]
        first = 2  # the label is the first one
    else:
        columns = [_Column("labels", max(6, several), lambda found: together(found.label))]
        first = 1
    for rank in range(first, min(wanted.top or 0, len(wanted.classes)) + 1):
        columns += ranked(rank)
    if wanted.sets:
        columns.append(_Column("set", max(3, several), lambda found: together(found.set)))
    return columns


FORMS = {"table": _table, "jsonl": _jsonl, "csv": _csv}
"""Functions that begin each form of output."""
