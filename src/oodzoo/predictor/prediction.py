"""Predictions of single samples or as arrays, and their score."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.backend import to_numpy
from oodzoo.core.errors import InputError
from oodzoo.core.text import count, short_name
from oodzoo.predictor.prediction_sets import LeftOut, SetLevel
from oodzoo.tasks import Labels, Task, as_labels, task_of

Floats = NDArray[np.float64]


def score(
    task: Task, outcomes: Sequence[Any], values: Iterable[Floats | None], classes: NDArray[Any],
    y: Any, noun: str,
) -> float:  # fmt: skip
    """Compute the main metric of predictions, as a fraction.

    Parameters
    ----------
    task : Task
    outcomes : sequence
        Of :meth:`oodzoo.tasks.Task.outcome`.
    values : iterable of arrays
        Their probabilities; not used for classes and numbers.
    classes : array (C,)
    y : sequence or array
        The true classes, numbers or labels; labels as zeros and ones or as lists of strings.
    noun : str
        What a sample is called in messages.
    """
    predicted = task.outcome_array(outcomes, classes)
    if task.one_class:
        truth: Any = np.array(_known(list(to_numpy(y).tolist()), classes), object)
    elif not task.has_probabilities:
        truth = _in_order(as_labels(y, task.kind), y, classes)
        predicted = predicted.reshape(len(predicted), -1)
    else:
        truth = _indicators(y, task, classes)
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
    if task.one_class:
        return float(np.mean([a == b for a, b in zip(predicted.tolist(), truth, strict=True)]))
    return task.score(predicted, truth)


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


def _indicators(y: Any, task: Task, classes: NDArray[Any]) -> Floats:
    """Labels as zeros and ones in the order of the labels of a predictor."""
    labels = as_labels(y, task.kind)
    names = [str(name) for name in classes.tolist()]
    if getattr(y, "ndim", 1) == 2 and labels.values.shape[1] == len(names):
        return _in_order(labels, y, classes)
    if unknown := [name for name in labels.classes if name not in names]:
        raise InputError(
            f"the predictor does not know the label {unknown[0]!r}; it has "
            f"{', '.join(map(repr, names))}"
        )
    task = task_of(task.kind, names)
    rows = [
        task.encode(name for name, has in zip(labels.classes, row, strict=True) if has)
        for row in labels.values
    ]
    return task.decode(rows)


@dataclass(frozen=True)
class Prediction:
    """The prediction for one sample.

    Attributes
    ----------
    position : int
        Position among the given samples.
    path : str or None
        Path of an image; None for an image in memory, and for any other sample.
    label
        The most probable class. For other tasks, the predicted number, or a tuple of several; or
        the tuple of labels whose probability is above one half.
    probabilities : array (n_classes,) or None
        Probability of each class or label, in the order of `classes_`; None for numbers.
    distance : float
        Distance from the training samples; above 1 the sample is unlike them.
    out_of_domain : bool
        Whether the distance is above 1.
    abstained : bool
        Whether the label is None because the most probable class is not probable enough.
    set : tuple or None
        The prediction set, if one is wanted: classes, the most probable first.
    intervals : tuple of (low, high), or None
        The interval of each number, if they are wanted.
    """

    position: int
    path: str | None
    label: Any
    probabilities: NDArray[np.float64] | None
    distance: float
    out_of_domain: bool
    abstained: bool = False
    set: tuple[Any, ...] | None = None
    intervals: tuple[tuple[float, float], ...] | None = None

    @property
    def confidence(self) -> float | None:
        """Probability of the most probable class or label; None for numbers."""
        return None if self.probabilities is None else float(self.probabilities.max())

    def __repr__(self) -> str:
        sample = self.position if self.path is None else short_name(self.path, 80)
        sure = "" if self.confidence is None else f", {100 * self.confidence:.0f} %"
        unlike = ", unlike the training samples" if self.out_of_domain else ""
        return f"Prediction({sample!r}: {short_name(repr(self.label), 80)}{sure}{unlike})"


@dataclass(frozen=True)
class Unreadable:
    """A sample without a prediction, and the reason."""

    position: int
    path: str | None
    reason: str


def missing(found: Unreadable, task: Task, classes: NDArray[Any]) -> Prediction:
    """What stands for a sample without a prediction: no class, and NaN."""
    nan = np.full(len(classes), np.nan)
    label = None if task.has_probabilities else task.outcome(nan, classes)
    probabilities = nan if task.has_probabilities else None
    return Prediction(found.position, found.path, label, probabilities, np.nan, out_of_domain=False)


def require_sets(task: Task, left_out: LeftOut | None, coverage: float) -> SetLevel:
    """The recorded sets of a coverage; an InputError if a predictor has none."""
    if not task.has_sets:
        raise InputError(
            "prediction sets are of one class per sample, and the predictor predicts several "
            "labels; leave out coverage (--coverage)"
        )
    if left_out is None or not left_out.sets:
        raise InputError(
            "this predictor has no record of prediction sets on held-out domains: it was "
            "fine-tuned, or has too few samples; fit again with oodzoo fit, or leave out coverage "
            "(--coverage)"
        )
    return left_out.at_coverage(coverage)
