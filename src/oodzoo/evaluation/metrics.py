"""Accuracy and calibration of a classifier on a test domain, and the measures of other tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.metrics import metric, second_metric
from oodzoo.task import Kind

BINS = 15
"""As in Guo et al., "On Calibration of Modern Neural Networks", 2017."""


class Measures(NamedTuple):
    """Measures of one classifier on one test domain, in percent."""

    accuracy: float
    balanced: float
    calibration_error: float


class NumberMeasures(NamedTuple):
    """Measures of predicted numbers: explained variance in percent, error in their own units."""

    explained_variance: float
    absolute_error: float


class LabelMeasures(NamedTuple):
    """Measures of several labels per sample, in percent."""

    average_precision: float
    exact_match: float


if TYPE_CHECKING:
    AnyMeasures = Measures | NumberMeasures | LabelMeasures
    """The main metric first."""
else:
    AnyMeasures = tuple  # msgspec cannot read unions of named tuples

MEASURES: dict[Kind, type[AnyMeasures]] = {
    "classification": Measures,
    "regression": NumberMeasures,
    "multilabel": LabelMeasures,
}


def measures_of(kind: Kind, values: NDArray[np.float64], labels: NDArray[Any]) -> AnyMeasures:
    """Compute all measures of probabilities or numbers (n, C) against labels."""
    if kind == "classification":
        return measures(values, labels)
    first, second = 100 * metric(kind, values, labels), second_metric(kind, values, labels)
    if kind == "regression":
        return NumberMeasures(first, second)
    return LabelMeasures(first, 100 * second)


def by_output(
    kind: Kind, values: NDArray[np.float64], labels: NDArray[Any], names: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Compute the measures of each of several numbers, or of each label that a sample has.

    A single number or label has none, nor have classes.

    Examples
    --------
    >>> y = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    >>> by_output("regression", y + [0.5, 0.0], y, ["age", "height"])["age"]
    {'explained_variance': 62.5, 'absolute_error': 0.5}
    """
    found: dict[str, dict[str, float]] = {}
    if kind == "classification" or len(names) == 1:
        return found
    for column, name in enumerate(names):
        mine, known = values[:, [column]], labels[:, [column]]
        each = measures_of(kind, mine, known)
        if isinstance(each, NumberMeasures):
            found[name] = each._asdict()
        elif known.any():
            found[name] = {"average_precision": each[0]}
    return found


def measures(probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> Measures:
    """Compute all measures of probabilities (n, C) against labels (n,), in percent."""
    return Measures(
        100 * accuracy(probabilities, labels),
        100 * balanced_accuracy(probabilities, labels),
        100 * calibration_error(probabilities, labels),
    )


def accuracy(probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """Share of samples whose most probable class is correct."""
    return float(np.mean(probabilities.argmax(axis=1) == labels))


def balanced_accuracy(probabilities: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """Mean per-class accuracy over the classes that occur among the labels.

    Examples
    --------
    >>> certain, labels = np.eye(3)[[0, 0, 0, 0]], np.array([0, 0, 0, 1])
    >>> accuracy(certain, labels), balanced_accuracy(certain, labels)
    (0.75, 0.5)
    """
    correct = probabilities.argmax(axis=1) == labels
    return float(np.mean([correct[labels == label].mean() for label in np.unique(labels)]))


def calibration_error(
    probabilities: NDArray[np.float64], labels: NDArray[np.int64], bins: int = BINS
) -> float:
    r"""Expected calibration error.

    .. math:: \sum_b \frac{n_b}{n}\,\lvert \text{accuracy}_b - \text{confidence}_b\rvert,

    where bin b of B contains the samples whose highest probability is in ((b - 1)/B, b/B].

    Examples
    --------
    >>> calibration_error(np.array([[0.8, 0.2], [0.8, 0.2]]), np.array([0, 1]))
    0.30000000000000004
    """
    confidence = probabilities.max(axis=1)
    correct = (probabilities.argmax(axis=1) == labels).astype(np.float64)
    bin_of = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    # A bin contributes |Σ correct - Σ confidence| / n: its size cancels.
    gaps = np.bincount(bin_of, correct - confidence, minlength=bins)
    return float(np.abs(gaps).sum() / len(labels))
