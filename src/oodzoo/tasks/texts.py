"""The kind of task of a column: of numbers, and of text with numbers or separated labels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.core.text import count
from oodzoo.tasks.kinds import Kind

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

    Numbers are judged by :func:`~oodzoo.tasks.texts.kind_of_numbers`. JSON lists of strings, such
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
