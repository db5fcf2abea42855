"""What is predicted for a sample, by kind of task: a class, numbers, or labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo._text import count
from oodzoo.backend import to_numpy
from oodzoo.errors import InputError
from oodzoo.metrics import metric
from oodzoo.task import Kind, Labels, Task, as_labels

Floats = NDArray[np.float64]


def outcome(kind: Kind, values: Floats, classes: NDArray[Any]) -> Any:
    """Return the prediction for one sample from its probabilities or numbers (C,).

    The most probable class; a number, or a tuple of several; or a tuple of the labels whose
    probability is above one half.

    Examples
    --------
    >>> outcome("multilabel", np.array([0.9, 0.2, 0.6]), np.array(["cat", "dog", "fox"]))
    ('cat', 'fox')
    >>> outcome("regression", np.array([1.5]), np.array(["age"]))
    1.5
    """
    if kind == "classification":
        return classes[values.argmax()].item()
    if kind == "multilabel":
        return tuple(classes[values > 0.5].tolist())
    numbers = tuple(values.tolist())
    return numbers[0] if len(numbers) == 1 else numbers


def label_array(labels: Sequence[Any], dtype: Any = None) -> NDArray[Any]:
    """Classes as an array; those of mixed types keep their types."""
    if dtype is None:
        dtype = object if len({type(label) for label in labels}) > 1 else None
    return np.array(list(labels), dtype=dtype)


def outcome_array(kind: Kind, outcomes: Sequence[Any], classes: NDArray[Any]) -> NDArray[Any]:
    """Predictions of several samples as an array.

    Classes (n,), numbers (n,) or (n, C), or zeros and ones (n, C) in the order of the labels. A
    sample without a prediction has the class None, or NaN.

    Examples
    --------
    >>> outcome_array("multilabel", [("a",), None], np.array(["a", "b"]))
    array([[ 1.,  0.],
           [nan, nan]])
    """
    lacks = any(each is None for each in outcomes)
    if kind == "classification":
        return label_array(outcomes, object if lacks else classes.dtype)
    if kind == "regression":
        shape = (-1,) if len(classes) == 1 else (-1, len(classes))
        return np.array(list(outcomes), np.float64).reshape(shape)
    none = np.full(len(classes), np.nan)
    rows = [none if each is None else np.isin(classes, each) for each in outcomes]
    return np.array(rows, np.float64 if lacks else np.int64).reshape(-1, len(classes))


def score(
    kind: Kind, outcomes: Sequence[Any], values: Iterable[Floats | None], classes: NDArray[Any],
    y: Any, noun: str,
) -> float:  # fmt: skip
    """Compute the main metric of predictions, as a fraction.

    Parameters
    ----------
    kind : {"classification", "regression", "multilabel"}
    outcomes : sequence
        Of :func:`outcome`.
    values : iterable of arrays
        Their probabilities; not used for classes and numbers.
    classes : array (C,)
    y : sequence or array
        The true classes, numbers or labels; labels as zeros and ones or as lists of strings.
    noun : str
        What a sample is called in messages.
    """
    predicted = outcome_array(kind, outcomes, classes)
    if kind == "classification":
        truth: Any = np.array(_known(list(to_numpy(y).tolist()), classes), object)
    elif kind == "regression":
        truth = _in_order(as_labels(y, kind), y, classes)
        predicted = predicted.reshape(len(predicted), -1)
    else:
        truth = _indicators(y, classes)
        predicted = np.array(list(values)).reshape(-1, len(classes))
    if len(predicted) != len(truth):
        raise InputError(
            f"{noun}s and labels must have the same length, got {count(len(predicted), noun)} and "
            f"{count(len(truth), 'label')}"
        )
    if truth.shape[1:] != predicted.shape[1:]:
        raise InputError(
            f"the predictor predicts {count(predicted.shape[1], 'number')} per {noun}, the labels "
            f"have {truth.shape[1]}"
        )
    if kind == "classification":
        return float(np.mean([a == b for a, b in zip(predicted.tolist(), truth, strict=True)]))
    return metric(kind, predicted, truth)


def _known(truth: list[Any], classes: NDArray[Any]) -> list[Any]:
    """Reject labels none of which is a class."""
    known = classes.tolist()
    if truth and not any(label in known for label in truth):
        raise InputError(
            f"none of the labels is a known class: got {truth[0]!r} ({type(truth[0]).__name__}), "
            f"expected classes such as {known[0]!r} ({type(known[0]).__name__})"
        )
    return truth


def _in_order(labels: Labels, y: Any, classes: NDArray[Any]) -> Floats:
    """The columns of labels in the order of a predictor, by name if y is a data frame."""
    values: Floats = labels.values
    if not hasattr(y, "columns"):
        return values
    names = [str(name) for name in classes.tolist()]
    if sorted(labels.classes) != sorted(names):
        raise InputError(
            f"the columns of the labels are {', '.join(map(repr, labels.classes))}; the predictor "
            f"has {', '.join(map(repr, names))}"
        )
    return values[:, [labels.classes.index(name) for name in names]]


def _indicators(y: Any, classes: NDArray[Any]) -> Floats:
    """Labels as zeros and ones in the order of the labels of a predictor."""
    labels = as_labels(y, "multilabel")
    names = [str(name) for name in classes.tolist()]
    if getattr(y, "ndim", 1) == 2 and labels.values.shape[1] == len(names):
        return _in_order(labels, y, classes)
    if unknown := [name for name in labels.classes if name not in names]:
        raise InputError(
            f"the predictor does not know the label {unknown[0]!r}; it has "
            f"{', '.join(map(repr, names))}"
        )
    task = Task("multilabel", tuple(names))
    rows = [
        task.encode(name for name, has in zip(labels.classes, row, strict=True) if has)
        for row in labels.values
    ]
    return task.decode(rows)
