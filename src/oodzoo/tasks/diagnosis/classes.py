r"""Predicted classes: how many are right, what they are taken for, how surely; calibration.

The images are put into bins by the probability of the predicted class, the *confidence*. In a bin b
of :math:`n_b` images, a calibrated predictor is correct as often as it is confident. The *expected
calibration error* is the mean distance,

.. math:: \sum_b \frac{n_b}{n}\,\lvert \text{accuracy}_b - \text{confidence}_b\rvert

(Guo et al., "On Calibration of Modern Neural Networks", 2017).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from oodzoo.core.io import structured

BINS = 15
"""As in Guo et al."""


@dataclass(frozen=True)
class Bin:
    """Images of similar confidence; all but their number in percent.

    Attributes
    ----------
    low, high : float
        The confidence of its images is above `low` and at most `high`.
    images : int
    confidence, accuracy : float
        Means over its images.
    """

    low: float
    high: float
    images: int
    confidence: float
    accuracy: float

    def __post_init__(self) -> None:
        if self.images < 1 or not 0 <= self.low < self.high <= 100:
            raise ValueError(f"{self.images} images from {self.low} to {self.high} % are no bin")


@dataclass(frozen=True)
class Reliability:
    """Confidence and accuracy by bins.

    Attributes
    ----------
    bins : tuple of Bin
        Those with images, by ascending confidence.
    error : float
        Expected calibration error, in points.
    """

    bins: tuple[Bin, ...]
    error: float

    @property
    def images(self) -> int:
        """Number of images."""
        return sum(each.images for each in self.bins)

    @property
    def confidence(self) -> float:
        """Mean confidence in percent."""
        return sum(each.images * each.confidence for each in self.bins) / self.images

    @property
    def accuracy(self) -> float:
        """Accuracy in percent."""
        return sum(each.images * each.accuracy for each in self.bins) / self.images


def reliability(
    confidence: NDArray[np.floating[Any]], correct: NDArray[np.bool_], n_bins: int = BINS
) -> Reliability:
    """Compare the confidence of predictions, from 0 to 1, with their accuracy.

    Parameters
    ----------
    confidence : array (n,)
        Probabilities of the predicted classes.
    correct : array of bool (n,)
    n_bins : int
        Number of bins of equal width: bin b contains ((b - 1)/n_bins, b/n_bins].

    Examples
    --------
    >>> found = reliability(np.array([0.9, 0.9, 0.3]), np.array([True, False, False]), n_bins=5)
    >>> [(each.low, each.high, each.images, each.accuracy) for each in found.bins]
    [(20.0, 40.0, 1, 0.0), (80.0, 100.0, 2, 50.0)]
    >>> round(found.error, 2)
    36.67
    """
    if len(confidence) != len(correct) or not len(confidence):
        raise ValueError(f"got {len(confidence)} confidences of {len(correct)} predictions")
    bin_of = np.clip(np.ceil(confidence * n_bins).astype(np.int64) - 1, 0, n_bins - 1)
    images = np.bincount(bin_of, minlength=n_bins)
    sure = np.bincount(bin_of, confidence, minlength=n_bins)
    right = np.bincount(bin_of, correct.astype(np.float64), minlength=n_bins)
    return _reliability(
        Bin(
            100 * b / n_bins,
            100 * (b + 1) / n_bins,
            int(images[b]),
            float(100 * sure[b] / images[b]),
            float(100 * right[b] / images[b]),
        )
        for b in np.flatnonzero(images).tolist()
    )


def merged(parts: Iterable[Reliability]) -> Reliability:
    """Put images together that were counted apart, in the same bins."""
    bins: dict[tuple[float, float], list[Bin]] = {}
    for each in (each for part in parts for each in part.bins):
        bins.setdefault((each.low, each.high), []).append(each)
    found = sorted((reduce(_together, same) for same in bins.values()), key=lambda each: each.low)
    for below, above in pairwise(found):
        if above.low < below.high:
            raise ValueError(f"the bins overlap from {above.low} to {below.high}")
    return _reliability(found)


def _together(one: Bin, other: Bin) -> Bin:
    images = one.images + other.images
    confidence = one.images * one.confidence + other.images * other.confidence
    accuracy = one.images * one.accuracy + other.images * other.accuracy
    return Bin(one.low, one.high, images, confidence / images, accuracy / images)


def _reliability(bins: Iterable[Bin]) -> Reliability:
    found = tuple(bins)
    total = sum(each.images for each in found)
    gaps = (each.images * abs(each.accuracy - each.confidence) for each in found)
    return Reliability(found, sum(gaps) / total if total else 0.0)


MOST = 12
"""Number of mistakes that are listed."""


@dataclass(frozen=True)
class Mistake:
    """An image whose class was predicted wrongly.

    Attributes
    ----------
    path, domain : str
        As in the data.
    label, predicted : str
        Its class, and the one predicted.
    confidence : float
        Probability of the predicted class, in percent.
    """

    path: str
    domain: str
    label: str
    predicted: str
    confidence: float

    @property
    def key(self) -> str:
        """Name of the image that no other has: a path occurs once in a domain."""
        return f"{self.domain}: {self.path}"


def most_confident(mistakes: Iterable[Mistake], most: int = MOST) -> tuple[Mistake, ...]:
    """Return the mistakes of the highest confidence; equal ones in the order given."""
    return tuple(sorted(mistakes, key=lambda each: -each.confidence)[:most])


@dataclass(frozen=True)
class ClassFigures:
    """Figures of one class.

    Attributes
    ----------
    images : int
        Number of images of the class.
    recall : float, optional
        Share of its images that are predicted as such, in percent; None without images.
    precision : float, optional
        Share of the images predicted as the class that are of it, in percent; None if it is never
        predicted.
    """

    images: int
    recall: float | None
    precision: float | None


@dataclass(frozen=True)
class ClassDiagnosis:
    """What a predictor of classes gets right and wrong.

    Attributes
    ----------
    classes : tuple of str
    confusion : tuple of tuple of int
        Number of images by true class (rows) and predicted class (columns).
    reliability : Reliability
        Confidence and accuracy.
    mistakes : tuple of Mistake
        The mistakes of the highest confidence, most confident first.
    """

    classes: tuple[str, ...]
    confusion: tuple[tuple[int, ...], ...]
    reliability: Reliability
    mistakes: tuple[Mistake, ...] = ()

    def __post_init__(self) -> None:
        n = len(self.classes)
        if len(self.confusion) != n or any(len(row) != n for row in self.confusion):
            raise ValueError(f"the confusion matrix of {n} classes must be {n} × {n}")

    @property
    def images(self) -> int:
        """Number of images."""
        return sum(map(sum, self.confusion))

    @property
    def accuracy(self) -> float:
        """Share of images whose class is predicted, in percent."""
        return 100 * sum(row[c] for c, row in enumerate(self.confusion)) / self.images

    @property
    def balanced_accuracy(self) -> float:
        """Mean recall of the classes that have images, in percent."""
        recalls = [each.recall for each in self.per_class.values() if each.recall is not None]
        return sum(recalls) / len(recalls)

    @property
    def per_class(self) -> dict[str, ClassFigures]:
        """Images, recall and precision of each class."""
        found = {}
        for c, name in enumerate(self.classes):
            images, predicted = sum(self.confusion[c]), sum(row[c] for row in self.confusion)
            right = 100 * self.confusion[c][c]
            found[name] = ClassFigures(
                images, right / images if images else None, right / predicted if predicted else None
            )
        return found

    @property
    def confusions(self) -> list[tuple[str, str, int]]:
        """True class, class that it is taken for, and number of images; most frequent first."""
        wrong = [
            (self.classes[row], self.classes[column], images)
            for row, counts in enumerate(self.confusion)
            for column, images in enumerate(counts)
            if images and row != column
        ]
        return sorted(wrong, key=lambda each: -each[2])

    def to_dict(self) -> dict[str, Any]:
        """Convert to a JSON document, with the figures that follow from the confusion matrix."""
        return {
            "images": self.images,
            "accuracy": self.accuracy,
            "balanced_accuracy": self.balanced_accuracy,
            "per_class": msgspec.to_builtins(self.per_class),
            **msgspec.to_builtins(self),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> ClassDiagnosis:
        """Restore a diagnosis from :meth:`to_dict`."""
        return structured(document, cls, "the diagnosis")


def diagnose_classes(
    probabilities: NDArray[np.floating[Any]],
    y: NDArray[np.integer[Any]],
    classes: Sequence[str],
    *,
    paths: Sequence[str],
    domains: str | Sequence[str],
    most: int = MOST,
) -> ClassDiagnosis:
    """Compare predicted probabilities with true classes.

    Parameters
    ----------
    probabilities : array (n, C)
        The class of the highest one is predicted.
    y : array of int (n,)
        Positions of the true classes in `classes`.
    classes : sequence of str
        The C classes. A class that cannot be predicted has a column of zeros.
    paths : sequence of str
        Of the n images.
    domains : str or sequence of str
        The domain of all images, or of each.
    most : int
        Number of mistakes to list.

    Examples
    --------
    >>> found = diagnose_classes(
    ...     np.array([[0.9, 0.1], [0.7, 0.3], [0.2, 0.8]]),
    ...     np.array([0, 1, 1]),
    ...     ["cat", "dog"],
    ...     paths=["a.jpg", "b.jpg", "c.jpg"],
    ...     domains="photo",
    ... )
    >>> found.confusion, found.balanced_accuracy
    (((1, 0), (1, 1)), 75.0)
    >>> found.mistakes[0].path, found.mistakes[0].predicted
    ('b.jpg', 'cat')
    """
    n, n_classes = len(y), len(classes)
    domains = [domains] * n if isinstance(domains, str) else domains
    if not n or probabilities.shape != (n, n_classes) or len(paths) != n or len(domains) != n:
        raise ValueError(
            f"got probabilities {probabilities.shape}, {n} labels, {n_classes} classes, "
            f"{len(paths)} paths and {len(domains)} domains"
        )
    if y.min() < 0 or y.max() >= n_classes:
        raise ValueError(f"labels must be from 0 to {n_classes - 1}, got {y.min()} to {y.max()}")
    predicted, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
    counts = np.bincount(y * n_classes + predicted, minlength=n_classes**2)
    wrong = np.flatnonzero(predicted != y)
    surest = wrong[np.argsort(-confidence[wrong], kind="stable")][:most]
    return ClassDiagnosis(
        tuple(classes),
        tuple(map(tuple, counts.reshape(n_classes, n_classes).tolist())),
        reliability(confidence, predicted == y),
        tuple(
            Mistake(
                paths[row],
                domains[row],
                classes[y[row]],
                classes[predicted[row]],
                100 * float(confidence[row]),
            )
            for row in surest.tolist()
        ),
    )


def add_up(diagnoses: Iterable[ClassDiagnosis], most: int = MOST) -> ClassDiagnosis:
    """Put the images of several diagnoses together, such as those of several domains.

    The classes are those of all diagnoses, in the order in which they occur first.
    """
    parts = tuple(diagnoses)
    if not parts:
        raise ValueError("no diagnosis to add up")
    classes = tuple(dict.fromkeys(name for part in parts for name in part.classes))
    total = np.zeros((len(classes), len(classes)), np.int64)
    for part in parts:
        at = [classes.index(name) for name in part.classes]
        total[np.ix_(at, at)] += np.asarray(part.confusion, np.int64)
    return ClassDiagnosis(
        classes,
        tuple(map(tuple, total.tolist())),
        merged(part.reliability for part in parts),
        most_confident((mistake for part in parts for mistake in part.mistakes), most),
    )
