"""Labels of any kind, from one column or several: the task, and the label of each sample as text.

- One column of text or integers: classes. One of other numbers: numbers to predict.
- One column of lists of labels, or of text such as "cat|dog": several labels.
- Several columns: zeros and ones are several labels, other numbers are to be predicted.

What could be of two kinds is asked about: the message names `--task`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from textwrap import shorten
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.core.text import count
from oodzoo.data.sources.column_roles import as_names, is_missing
from oodzoo.tasks import CLASSIFICATION, TASKS, Kind, Labels, Task, task_of
from oodzoo.tasks.arrays import kind_of_numbers, kind_of_texts
from oodzoo.tasks.multilabel import split_labels

_FLAGS = {"true": 1.0, "false": 0.0}
_MOSTLY = 0.9
"""Share of zeros and ones from which another number in such columns is a mistake."""

Columns = Sequence[Any] | Mapping[str, Sequence[Any]]
"""The labels of samples, or a column of values for each name."""
Place = Callable[[int], str]
"""What messages call a row, with the source."""


class Targets(NamedTuple):
    """What is predicted, and the label of each sample as text."""

    task: Task
    texts: list[str]


def read_targets(
    given: Columns,
    source: str,
    task: Kind | None = None,
    *,
    rows: Sequence[int] | None = None,
    unit: str = "row",
) -> Targets:
    """Read labels of any kind.

    Parameters
    ----------
    given : sequence or dict of str to sequence
        The label of each sample, or columns by name.
    source : str
        What messages call the source.
    task : {"classification", "regression", "multilabel"}, optional
        By default, what the labels say.
    rows : sequence of int, optional
        The number of each row for messages; by default they are counted from 0.
    unit : str
        What these numbers count.

    Raises
    ------
    InputError
        For a missing value, values of several kinds, and what could be read in two ways.

    Examples
    --------
    >>> read_targets(["cat", "dog"], "table").texts
    ['cat', 'dog']
    >>> read_targets({"age": [61.5, 44.25]}, "table")
    Targets(task=Regression(outputs=('age',)), texts=['61.5', '44.25'])
    >>> read_targets([["dog", "cat"], []], "table").texts
    ['["cat", "dog"]', '[]']
    """

    def place(at: int) -> str:
        return f"{source!r}, {unit} {at if rows is None else rows[at]}"

    columns = dict(given) if isinstance(given, Mapping) else {"label": given}
    if len(columns) > 1:
        return _matrix(columns, task, source, place)
    [(name, values)] = columns.items()
    plain = [value.item() if isinstance(value, np.generic) else value for value in values]
    if any(_is_list(value) for value in plain):
        return _lists(name, plain, task, source, place)
    return _column(name, plain, task, source, place)


def require_varied(task: Task, texts: Sequence[str], source: str) -> None:
    """Reject numbers and labels that are the same in all samples."""
    if texts and not task.one_class:
        labels = Labels(task, task.outputs, task.decode(texts))
        task.require_variation(labels, f"the label of {source!r}")


def join_targets(parts: Sequence[Task], source: str) -> Task:
    """Return the task of several sources together; their kinds and numbers must be the same."""
    kinds = sorted({part.kind for part in parts})
    if len(kinds) > 1:
        raise InputError(
            f"the domains of {source!r} have labels of several kinds: {' and '.join(kinds)}; say "
            f"which with --task (task= in Python): {' or '.join(kinds)}"
        )
    outputs = {part.outputs for part in parts}
    if not parts[0].has_probabilities and len(outputs) > 1:
        one, two = sorted(outputs)[:2]
        raise InputError(
            f"the domains of {source!r} have different numbers: {', '.join(map(repr, one))} and "
            f"{', '.join(map(repr, two))}; give the same to all"
        )
    return parts[0] if parts[0].one_class else task_of(kinds[0], sorted(set().union(*outputs)))


# --- one column ------------------------------------------------------------------------------


def _column(name: str, values: list[Any], task: Kind | None, source: str, place: Place) -> Targets:
    kind = task or _kind(name, values, source, place)
    if not TASKS[kind].has_probabilities:
        numbers = [_number(value, name, place, at) for at, value in enumerate(values)]
        return _numbers(kind, (name,), np.array(numbers)[:, None])
    if not TASKS[kind].one_class:
        return _separated(kind, values, source, place)
    is_number = task is not None and all(map(_is_number, values))
    if is_number and not all(float(value).is_integer() for value in values):
        values = [repr(float(value)) for value in values]
    return Targets(CLASSIFICATION, as_names(values, "label", source))


def _kind(name: str, values: list[Any], source: str, place: Place) -> Kind:
    known = [value for value in values if not is_missing(value)]
    what = f"the label of {source!r}" if name == "label" else f"the label {name!r} of {source!r}"
    if known and all(map(_is_number, known)):
        return _kind_of_numbers([float(value) for value in known], what)
    if known and all(isinstance(value, str) for value in known):
        _require_no_text(known, values, what, place)
        numbers = _floats(known)
        if len(numbers) == len(known):
            return _kind_of_numbers(numbers, what)
        return kind_of_texts(known, f"labels of {source!r}")
    return "classification"


def _kind_of_numbers(numbers: list[float], what: str) -> Kind:
    if len(set(numbers)) == 1 and not numbers[0].is_integer():
        return "regression"  # a constant, which is refused, not asked about
    return kind_of_numbers(np.array(numbers), what)


def _require_no_text(known: list[str], values: list[Any], what: str, place: Place) -> None:
    """Reject a few texts, such as "n/a", among numbers to predict."""
    numbers = _floats(known)
    if not len(known) / 2 <= len(numbers) < len(known):
        return
    try:
        if kind_of_numbers(np.array(numbers), what) == "classification":
            return
    except InputError:  # numbers of either kind
        pass
    at = next(at for at, value in enumerate(values) if value in known and not _floats([value]))
    raise InputError(
        f"{place(at)}: the label {values[at]!r} is not a number, as most others are; correct it, "
        "leave the row out, or say that these are classes with --task classification (task= in "
        "Python)"
    )


def _separated(kind: Kind, values: list[Any], source: str, place: Place) -> Targets:
    """Labels in text: "cat|dog", or a JSON list."""
    for at, value in enumerate(values):
        if not isinstance(value, str) and not is_missing(value):
            raise InputError(
                f"{place(at)}: the label is {value!r}, which is not several labels; give text such "
                "as 'cat|dog', a list, or a column of zeros and ones for each label"
            )
    texts = ["" if is_missing(value) else value.strip() for value in values]
    if all(text.startswith("[") for text in texts if text):
        return _named(kind, [_json(text, place, at) for at, text in enumerate(texts)], source)
    return _named(kind, split_labels(texts), source)


def _json(text: str, place: Place, at: int) -> list[str]:
    try:
        found = json.loads(text or "[]")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        shown = shorten(repr(text), 80, placeholder=" …")
        raise InputError(
            f"{place(at)}: the label {shown} is not a JSON list of strings; write it as "
            '["cat", "dog"], or as cat|dog'
        )
    return found


# --- lists -----------------------------------------------------------------------------------


def _lists(name: str, values: list[Any], task: Kind | None, source: str, place: Place) -> Targets:
    rows = []
    for at, value in enumerate(values):
        if not _is_list(value):
            what = "is missing" if is_missing(value) else f"is {value!r}"
            raise InputError(
                f"{place(at)}: the label {what}; give a list to each, as to the others"
            )
        row = value.tolist() if isinstance(value, np.ndarray) else value
        row = sorted(row) if isinstance(row, set | frozenset) else list(row)
        rows.append([v.item() if isinstance(v, np.generic) else v for v in row])
    flat = [(at, item) for at, row in enumerate(rows) for item in row]
    if all(isinstance(item, str) for _, item in flat):
        if task in (None, "multilabel"):
            return _named("multilabel", rows, source)
        raise InputError(f"{place(0)}: the label is a list of labels, which is not {task}")
    for at, item in flat:
        if not isinstance(item, bool) and not _is_number(item):
            raise InputError(
                f"{place(at)}: the label has {item!r} in its list, and there are numbers in "
                "others; give strings only, or numbers only"
            )
    lengths = {len(row) for row in rows}
    whole = all(float(item).is_integer() for _, item in flat)
    binary = all(item in (0, 1) for _, item in flat)
    if whole and task in (None, "multilabel") and (len(lengths) > 1 or (task and not binary)):
        return _named("multilabel", [[str(int(item)) for item in row] for row in rows], source)
    if len(lengths) > 1:
        raise InputError(
            f"the labels of {source!r} are lists of {min(lengths)} to {max(lengths)} numbers; give "
            "the same numbers to each"
        )
    [width] = lengths
    if width == 1:
        return _column(name, [row[0] for row in rows], task, source, place)
    start = "" if binary else name
    columns = {f"{start}{at}": [row[at] for row in rows] for at in range(width)}
    return _matrix(columns, task, source, place)


def _named(kind: Kind, rows: list[list[str]], source: str) -> Targets:
    """Several labels by name."""
    named = [list(dict.fromkeys(filter(None, map(str.strip, row)))) for row in rows]
    outputs = tuple(sorted({label for row in named for label in row}))
    if not outputs:
        raise InputError(f"no sample of {source!r} has a label ({count(len(rows), 'sample')})")
    task = task_of(kind, outputs)
    return Targets(task, [task.encode(row) for row in named])


# --- several columns -------------------------------------------------------------------------


def _matrix(
    columns: Mapping[str, Sequence[Any]], task: Kind | None, source: str, place: Place
) -> Targets:
    names = tuple(columns)
    values = np.array(
        [[_number(v, name, place, at) for at, v in enumerate(columns[name])] for name in names]
    ).T
    binary = np.isin(values, (0.0, 1.0))
    one_each = binary.all() and bool((values.sum(axis=1) == 1).all())
    what = f"the columns {', '.join(map(repr, names[:5]))}{', …' if len(names) > 5 else ''}"
    if task is None:
        if one_each:
            raise InputError(
                f"{what} of {source!r} have exactly one 1 in each row, which could be classes or "
                "labels; say which with --task (task= in Python): classification or multilabel"
            )
        if not binary.all() and binary.mean() >= _MOSTLY:
            raise InputError(
                f"{_wrong(names, values, ~binary, place)}, the other values of {what} are zeros "
                "and ones; correct it, or say with --task regression (task= in Python) that these "
                "are numbers to predict"
            )
    kind = task or ("multilabel" if binary.all() else "regression")
    if not TASKS[kind].has_probabilities:
        return _numbers(kind, names, values)
    if not binary.all():
        wrong = _wrong(names, values, ~binary, place)
        raise InputError(f"{wrong}; the task {kind} needs zeros and ones in {what}")
    if not TASKS[kind].one_class:
        found = task_of(kind, sorted(names))
        rows = [[names[at] for at in np.flatnonzero(row)] for row in values]
        return Targets(found, [found.encode(row) for row in rows])
    if not one_each:
        at = int(np.flatnonzero(values.sum(axis=1) != 1)[0])
        raise InputError(
            f"{place(at)}: {what} have {values[at].sum():g} ones; the task classification needs "
            "exactly one"
        )
    return Targets(CLASSIFICATION, [names[at] for at in values.argmax(axis=1)])


def _wrong(
    names: Sequence[str], values: NDArray[np.float64], wrong: NDArray[np.bool_], place: Place
) -> str:
    row, column = np.argwhere(wrong)[0].tolist()
    return f"{place(row)}: the column {names[column]!r} has {values[row, column]:g}"


def _numbers(kind: Kind, names: tuple[str, ...], values: NDArray[np.float64]) -> Targets:
    task = task_of(kind, names)
    return Targets(task, [task.encode(row.tolist()) for row in values])


# --- values ----------------------------------------------------------------------------------


def _number(value: Any, column: str, place: Place, at: int) -> float:
    label = "the label" if column == "label" else f"the label {column!r}"
    if is_missing(value):
        raise InputError(
            f"{place(at)}: {label} is missing; give a number to each, or leave the row out"
        )
    number: float | None = None
    if isinstance(value, str):
        with suppress(ValueError):
            flag = _FLAGS.get(value.strip().lower())
            number = float(value) if flag is None else flag
    elif isinstance(value, bool) or _is_number(value):
        number = float(value)
    if number is None or not np.isfinite(number):
        what = "a finite number" if number is not None else "a number"
        shown = shorten(repr(value), 80, placeholder=" …")
        raise InputError(
            f"{place(at)}: {label} is {shown}, which is not {what}; correct it, or leave the row "
            "out"
        )
    return number


def _floats(texts: Sequence[str]) -> list[float]:
    """Return those texts that are finite numbers, as numbers."""
    found = []
    for text in texts:
        try:
            number = float(text)
        except ValueError:
            continue
        if np.isfinite(number):
            found.append(number)
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple | set | frozenset) or (
        isinstance(value, np.ndarray) and value.ndim == 1
    )
