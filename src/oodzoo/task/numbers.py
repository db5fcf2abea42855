"""Whether numbers are classes or numbers to predict."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo._text import count
from oodzoo.errors import InputError
from oodzoo.task.kinds import Kind

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
