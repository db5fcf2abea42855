"""Labels given in Python or as texts of a column: their kind of task, and values as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.backend import to_numpy
from oodzoo.core.errors import InputError
from oodzoo.core.text import count
from oodzoo.tasks.multilabel import SEPARATORS, Multilabel, json_lists
from oodzoo.tasks.task import TASKS, Kind, Labels, require_kind

MANY_VALUES = 20
"""Classes that are numbers are seldom more than this."""

FEW_PER_VALUE = 10
"""Samples per value below which many different integers are seldom classes."""


def kind_of_numbers(values: NDArray[Any], name: str) -> Kind:
    """Return the kind of task of one column of numbers.

    Integers are classes, and other numbers are to be predicted, but

    - more than 20 different integers with fewer than 10 samples each,
    - at most 20 different other numbers with 10 samples each or more

    could be either: an InputError asks for the task.

    Examples
    --------
    >>> kind_of_numbers(np.array([0.0, 1, 2, 1]), "y")
    'classification'
    >>> kind_of_numbers(np.array([0.3, 1.7, 2.2, 1.9]), "y")
    'regression'
    """
    distinct = np.unique(values)
    few = len(values) < FEW_PER_VALUE * len(distinct)
    many = len(distinct) > MANY_VALUES
    integers = distinct.dtype.kind in "iu" or bool(
        ((distinct == np.round(distinct)) & (np.abs(distinct) < 2**53)).all()
    )
    if integers and not (many and few):
        return "classification"
    if not integers and (many or few):
        return "regression"
    what = "integers" if integers else "numbers"
    shown = ", ".join(f"{value:g}" for value in distinct[:3])
    raise InputError(
        f"{name} has {len(distinct)} different {what} in {count(len(values), 'sample')} ({shown}, "
        "…), which could be classes or numbers to predict; say which with --task (task= in "
        "Python): classification or regression"
    )


def kind_of_texts(texts: Sequence[str], name: str) -> Kind:
    """Return the kind of task of a column of text.

    Numbers are judged by :func:`~oodzoo.tasks.arrays.kind_of_numbers`. JSON lists of strings, such
    as '["cat", "dog"]', are several labels. Other text is classes, unless labels such as "cat|dog"
    have parts that other labels have, too: these could be classes or several labels, and an
    InputError asks for the task.

    Examples
    --------
    >>> kind_of_texts(["cat", "dog"], "labels"), kind_of_texts(["0.51", "1.72"], "labels")
    ('classification', 'regression')
    """
    numbers = _numbers(texts)
    if numbers is not None:
        return kind_of_numbers(numbers, name)
    if json_lists(texts) is not None:
        return "multilabel"
    different = set(texts)
    for separator in SEPARATORS[:2]:
        for text in sorted(different):
            parts = {part.strip() for part in text.split(separator)}
            if len(parts) > 1 and any(parts & _parts(t, separator) for t in different - {text}):
                raise InputError(
                    f"{name} such as {text!r} could be classes or several labels separated by "
                    f"{separator!r}; say which with --task (task= in Python): classification or "
                    "multilabel"
                )
    return "classification"


def _parts(text: str, separator: str) -> set[str]:
    return {part.strip() for part in text.split(separator)}


def _numbers(texts: Sequence[str]) -> NDArray[np.float64] | None:
    """The texts as numbers, if they all are finite ones."""
    try:
        values = np.array([float(text) for text in texts])
    except ValueError:
        return None
    return values if len(values) and np.isfinite(values).all() else None


def as_labels(y: Any, task: str | None = None, name: str = "y") -> Labels:
    """Read labels of any kind.

    Parameters
    ----------
    y : array or sequence
        Strings or integers (classes); numbers (n,) or (n, C); zeros and ones (n, C), or a list of
        labels for each sample. A data frame also names the outputs.
    task : {"classification", "regression", "multilabel"}, optional
        By default, what the labels say; an InputError if they could be of two kinds.
    name : str
        What messages call the labels.

    Examples
    --------
    >>> as_labels(["b", "a", "b"]).values.tolist()
    [1, 0, 1]
    >>> as_labels([0.5, 2.25, 1.75]).task.kind
    'regression'
    >>> labels = as_labels([["cat"], ["cat", "dog"], []])
    >>> labels.classes, labels.values.tolist()
    (('cat', 'dog'), [[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    """
    kind = None if task is None else require_kind(task)
    lists = _lists(y, name)
    if lists is not None:
        if kind not in (None, "multilabel"):
            raise InputError(f"{name} has a list of labels for each sample, which is not {kind}")
        return Multilabel.of_lists(lists, name)
    _require_one_kind(y, name)
    try:
        array = to_numpy(y)
    except ValueError as error:
        raise InputError(f"{name} is not an array of labels: {error}") from error
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim not in (1, 2) or 0 in array.shape[1:]:
        raise InputError(
            f"{name} must have one value per sample, (n,), or several, (n, C), got shape "
            f"{array.shape}"
        )
    array = _plain(array, name)
    if array.ndim == 1:
        return _column(array, kind, _names(y, 1), name)
    return _matrix(array, kind, _names(y, array.shape[1]), name)


def _column(
    array: NDArray[Any], kind: Kind | None, names: tuple[str, ...] | None, name: str
) -> Labels:
    text = array.dtype.kind in "US"
    if text and kind != "classification":
        array = array.astype(str)  # bytes, too
    if kind is None:
        kind = "classification"
        # Numbers as text are classes in Python: an array of numbers says what it is.
        if text and any("|" in value or ";" in value for value in set(array.tolist())):
            kind = kind_of_texts(array.tolist(), name)
        elif array.dtype.kind in "iuf":
            kind = kind_of_numbers(array, name)
    return TASKS[kind].of_column(array, names, name)


def _matrix(
    array: NDArray[Any], kind: Kind | None, names: tuple[str, ...] | None, name: str
) -> Labels:
    if array.dtype.kind in "US":
        raise InputError(
            f"{name} has {array.shape[1]} columns of text; give one column of classes, or a matrix "
            "of numbers, or of zeros and ones"
        )
    values = array.astype(np.float64)
    binary = bool(np.isin(values, (0.0, 1.0)).all())
    if kind is None and binary and (values.sum(axis=1) == 1).all():
        raise InputError(
            f"{name} has exactly one 1 in each of {count(len(values), 'row')}, which could be "
            "classes or labels; say which with --task (task= in Python): classification or "
            "multilabel"
        )
    task = TASKS[kind or ("multilabel" if binary else "regression")]
    if task.has_probabilities and not binary:
        wrong = values[~np.isin(values, (0.0, 1.0))][0]
        raise InputError(f"{name} must be zeros and ones for the task {kind}, got {wrong:g}")
    return task.of_matrix(values, names, name)


def _lists(y: Any, name: str) -> list[list[str]] | None:
    """The labels of each sample, if they are lists of strings."""
    if isinstance(y, str) or not hasattr(y, "__iter__") or getattr(y, "ndim", 1) != 1:
        return None
    values = list(y)
    if not values or not all(isinstance(v, list | tuple | set | frozenset) for v in values):
        return None
    labels = [label for value in values for label in value]
    if not any(isinstance(label, str) for label in labels):
        return None  # rows of numbers
    for row, value in enumerate(values):
        for label in value:
            if not isinstance(label, str) or not label:
                raise InputError(
                    f"{name} has the label {label!r} in row {row}; expected strings that are not "
                    "empty"
                )
    return [list(dict.fromkeys(value)) for value in values]


def _require_one_kind(y: Any, name: str) -> None:
    """Reject a sequence of strings and numbers, which NumPy would turn into strings."""
    if hasattr(y, "dtype") and getattr(y.dtype, "kind", "O") != "O":
        return
    if hasattr(y, "columns") or not hasattr(y, "__iter__"):
        return
    first: dict[bool, tuple[int, Any]] = {}
    for row, value in enumerate(y):
        if isinstance(value, str | int | float | np.generic):
            first.setdefault(isinstance(value, str), (row, value))
        if len(first) == 2:
            (at_text, text), (at_number, number) = first[True], first[False]
            if number != number:
                raise _missing(name, at_number, number)
            raise InputError(
                f"{name} mixes strings and numbers: {text!r} in row {at_text}, {number!r} in row "
                f"{at_number}; use one kind"
            )


def _plain(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Convert objects to numbers or strings; reject missing values and other objects."""
    if array.dtype.kind == "O":
        flat = array.reshape(-1).tolist()
        width = array.shape[1] if array.ndim == 2 else 1
        for position, value in enumerate(flat):
            if _is_missing(value):
                raise _missing(name, position // width, value)
        if all(isinstance(value, int | np.integer) for value in flat):
            array = np.array(flat).reshape(array.shape)
        elif all(isinstance(value, int | float | np.number) for value in flat):
            array = np.array(flat, np.float64).reshape(array.shape)
        else:
            array = np.array([str(value) for value in flat]).reshape(array.shape)
    if array.dtype.kind == "f":
        wrong = np.argwhere(~np.isfinite(array))
        if len(wrong):
            raise _missing(name, int(wrong[0][0]), array[tuple(wrong[0])].item())
    elif array.dtype.kind not in "biuUS":
        raise InputError(f"{name} must be strings or numbers, got {array.dtype}")
    return array


def _is_missing(value: Any) -> bool:
    """Whether a value is None, NaN or the missing value of pandas."""
    try:
        return value is None or bool(value != value)
    except TypeError:
        return True


def _missing(name: str, row: int, value: Any) -> InputError:
    infinite = isinstance(value, float) and np.isinf(value)
    what = "an infinite value" if infinite else "no value"
    return InputError(
        f"{name} has {what} in row {row} (got {value!r}); correct it, or leave the sample out"
    )


def _names(y: Any, number: int) -> tuple[str, ...] | None:
    """Names of the columns of a data frame or the name of a series."""
    columns = getattr(y, "columns", None)
    if columns is not None and len(columns) == number:
        names = tuple(str(column) for column in columns)
        if len(set(names)) < number:
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f"two columns of the labels are named {twice!r}; rename one")
        return names
    name = getattr(y, "name", None)
    return (str(name),) if number == 1 and isinstance(name, str) else None
