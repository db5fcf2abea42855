"""Labels given in Python or as texts of a column: their kind of task, and values as arrays."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.backend import to_numpy
from oodzoo.core.errors import InputError
from oodzoo.core.text import count
from oodzoo.tasks.kinds import CLASSIFICATION, Kind, Task, require_kind

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


SEPARATORS = ("|", ";", ",")
"""What separates the labels of a sample, the first one that occurs."""


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
    if _json_lists(texts) is not None:
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


def read_numbers(texts: Sequence[str], name: str) -> NDArray[np.float64]:
    """Read a column of numbers; reject other text, and missing values."""
    values = np.empty(len(texts))
    for row, text in enumerate(texts):
        try:
            values[row] = float(text)
        except ValueError as error:
            reason = "has no value" if not text.strip() else f"has {text!r}, which is not a number,"
            raise InputError(
                f"{name} {reason} in row {row}; correct it, or leave the sample out"
            ) from error
        if not np.isfinite(values[row]):
            raise InputError(
                f"{name} has no finite value in row {row} ({text!r}); correct it, or leave the "
                "sample out"
            )
    return values


def split_labels(texts: Sequence[str], separator: str | None = None) -> list[list[str]]:
    """Split text such as "cat|dog" into labels; empty text is a sample without labels.

    The separator is by default the first of "|", ";" and "," that occurs in any text. Without a
    given one, JSON lists of strings are read as such if all texts are.

    Examples
    --------
    >>> split_labels(["cat|dog", "dog", ""])
    [['cat', 'dog'], ['dog'], []]
    """
    if separator is None:
        if (lists := _json_lists(texts)) is not None:
            return lists
        separator = next((s for s in SEPARATORS if any(s in text for text in texts)), "|")
    return [[p.strip() for p in text.split(separator) if p.strip()] for text in texts]


def _parts(text: str, separator: str) -> set[str]:
    return {part.strip() for part in text.split(separator)}


def _json_lists(texts: Sequence[str]) -> list[list[str]] | None:
    """The labels in JSON, if all texts that are not empty are lists of strings."""
    if not any(text.strip() for text in texts):
        return None
    rows = []
    for text in texts:
        try:
            row = json.loads(text) if text.strip() else []
        except (ValueError, RecursionError):
            return None
        if not isinstance(row, list) or not all(isinstance(label, str) for label in row):
            return None
        rows.append(row)
    return rows


def _numbers(texts: Sequence[str]) -> NDArray[np.float64] | None:
    """The texts as numbers, if they all are finite ones."""
    try:
        values = np.array([float(text) for text in texts])
    except ValueError:
        return None
    return values if len(values) and np.isfinite(values).all() else None


SIZES = (1e-100, 1e100)
"""Sizes of numbers to predict."""


class Labels(NamedTuple):
    """Labels of n samples.

    Attributes
    ----------
    task : Task
    classes : tuple
        The classes, sorted, or the names of the outputs.
    values : array
        Positions in `classes` (n,), or numbers (n, C), or zeros and ones (n, C).
    """

    task: Task
    classes: tuple[Any, ...]
    values: NDArray[Any]


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
        return _multilabel(lists, name)
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


def require_variation(labels: Labels, name: str = "y") -> None:
    """Reject labels from which nothing can be learned: all the same."""
    task, classes, values = labels
    n = count(len(values), "sample")
    if not len(values):
        return
    if task.is_classification:
        if (values == values[0]).all():
            raise InputError(
                f"all labels are of one class, {classes[values[0]]!r} ({n}); at least two classes "
                "are needed"
            )
        return
    constant = (values == values[0]).all(axis=0)
    if task.kind == "multilabel":
        if constant.all():
            raise InputError(
                f"{name} has the same labels in all {n}; nothing can be learned from them"
            )
        return
    for column in np.flatnonzero(constant).tolist():
        which = f" ({classes[column]!r})" if len(classes) > 1 else ""
        raise InputError(
            f"{name}{which} is constant: {values[0, column]:g} in all {n}; nothing can be learned "
            "from it"
        )


def _column(
    array: NDArray[Any], kind: Kind | None, names: tuple[str, ...] | None, name: str
) -> Labels:
    text = array.dtype.kind in "US"
    if text and kind != "classification":
        array = array.astype(str)  # bytes, too
    if kind is None:
        if text:
            # Numbers as text are classes in Python: an array of numbers says what it is.
            kind = "classification"
            if any("|" in value or ";" in value for value in set(array.tolist())):
                kind = kind_of_texts(array.tolist(), name)
        elif array.dtype.kind == "b":
            kind = "classification"
        else:
            kind = kind_of_numbers(array, name)
    if kind == "regression":
        numbers = read_numbers(array.tolist(), name) if text else array.astype(np.float64)
        _require_size(numbers, name)
        return Labels(Task(kind, names or (name,)), names or (name,), numbers[:, None])
    if kind == "multilabel":
        if not text:
            raise InputError(
                f"{name} has one number per sample, got {array[0].item()!r}; for several labels "
                "give a matrix of zeros and ones, or a list of labels for each sample"
            )
        return _multilabel(split_labels(array.tolist()), name)
    if array.dtype.kind == "f" and (array == np.round(array)).all():
        array = array.astype(np.int64)
    classes, codes = np.unique(array, return_inverse=True)
    return Labels(CLASSIFICATION, tuple(classes.tolist()), codes.astype(np.int64))


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
    if kind is None:
        kind = "multilabel" if binary else "regression"
    if kind == "regression":
        outputs = names or tuple(f"{name}{column}" for column in range(values.shape[1]))
        _require_size(values, name)
        return Labels(Task(kind, outputs), outputs, values)
    if not binary:
        wrong = values[~np.isin(values, (0.0, 1.0))][0]
        raise InputError(f"{name} must be zeros and ones for the task {kind}, got {wrong:g}")
    if kind == "multilabel":
        outputs = names or tuple(str(column) for column in range(values.shape[1]))
        return Labels(Task(kind, outputs), outputs, values)
    wrong_rows = np.flatnonzero(values.sum(axis=1) != 1)
    if len(wrong_rows):
        raise InputError(
            f"{name} must have exactly one 1 in each row for the task classification, row "
            f"{wrong_rows[0]} has {values[wrong_rows[0]].sum():g}"
        )
    codes = values.argmax(axis=1)
    present, positions = np.unique(codes, return_inverse=True)
    given: Sequence[Any] = names or range(values.shape[1])
    return Labels(
        CLASSIFICATION, tuple(given[at] for at in present.tolist()), positions.astype(np.int64)
    )


def _multilabel(lists: Sequence[Sequence[str]], name: str) -> Labels:
    outputs = tuple(sorted({label for labels in lists for label in labels}))
    if not outputs:
        raise InputError(f"{name} has no label for any of {count(len(lists), 'sample')}")
    columns = {label: column for column, label in enumerate(outputs)}
    values = np.zeros((len(lists), len(outputs)))
    for row, labels in enumerate(lists):
        values[row, [columns[label] for label in labels]] = 1
    return Labels(Task("multilabel", outputs), outputs, values)


def _require_size(values: NDArray[np.float64], name: str) -> None:
    """Reject numbers whose squares float64 cannot represent."""
    largest = float(np.abs(values).max(initial=0))
    if largest and not SIZES[0] <= largest <= SIZES[1]:
        raise InputError(
            f"{name} has the number {largest:.3g}; rescale it, the largest must be between "
            f"{SIZES[0]:g} and {SIZES[1]:g}"
        )


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
