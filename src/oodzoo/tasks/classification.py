r"""One of several classes: accuracy and balanced accuracy, calibration, what is confused.

The accuracy is the share of correct classes, the balanced accuracy the mean recall over the classes
of the samples.

The images are put into bins by the probability of the predicted class, the *confidence*. In a bin b
of :math:`n_b` images, a calibrated predictor is correct as often as it is confident. The *expected
calibration error* is the mean distance,

.. math:: \sum_b \frac{n_b}{n}\,\lvert \text{accuracy}_b - \text{confidence}_b\rvert

(Guo et al., "On Calibration of Modern Neural Networks", 2017).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from oodzoo.core.errors import InputError
from oodzoo.core.text import count
from oodzoo.tasks.task import (
    MOST,
    Arrays,
    Diagnosis,
    Floats,
    Labels,
    Measure,
    Task,
    Truth,
    Z,
    none_known,
    register,
)

BINS = 15
"""As in Guo et al."""


class Measures(NamedTuple):
    """Measures of one classifier on one held-out domain, in percent."""

    accuracy: float
    balanced: float
    calibration_error: float


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


def wilson(correct: int, n: int) -> tuple[float, float]:
    r"""Compute the 90 % interval of an accuracy, as fractions.

    For an accuracy p of n images, the interval of Wilson (1927), which is never empty and stays
    within 0 and 1, with the quantile z of the normal distribution:

    .. math:: \frac{p + \frac{z^2}{2n} \pm z\sqrt{\frac{p(1-p)}{n} + \frac{z^2}{4n^2}}}{1 + z^2/n}.

    Examples
    --------
    >>> [round(end, 3) for end in wilson(9, 10)]
    [0.652, 0.977]
    >>> [round(end, 3) for end in wilson(10, 10)]
    [0.787, 1.0]
    """
    p = correct / n
    middle = p + Z**2 / (2 * n)
    margin = Z * math.sqrt(p * (1 - p) / n + Z**2 / (4 * n**2))
    low, high = (middle - margin) / (1 + Z**2 / n), (middle + margin) / (1 + Z**2 / n)
    # exactly 0 or 1 without rounding
    return (0.0 if correct == 0 else low), (1.0 if correct == n else high)


def label_likelihood(
    log_probabilities: NDArray[np.floating[Any]], labels: NDArray[np.int64]
) -> Floats:
    """Mean log-probability of the labels whose class was in training, for each head; 0 if none."""
    of_labels = log_probabilities[:, np.arange(len(labels)), labels].astype(np.float64)
    known = np.isfinite(of_labels[0])
    if not known.any():
        return np.zeros(len(of_labels))
    likelihood: Floats = of_labels[:, known].mean(axis=1)
    return likelihood


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
class ClassDiagnosis(Diagnosis):
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


@register(
    accuracy=Measure("accuracy", short="acc."),
    balanced_accuracy=Measure("balanced accuracy"),
    calibration_error=Measure("calibration error"),
)
class Classification(Task):
    """One of several classes, which are those of the samples.

    Examples
    --------
    >>> Classification().count_outputs(3)
    '3 classes'
    """

    kind = "classification"
    metric, second_metric = "accuracy", "balanced_accuracy"
    quality_measure = Measure("log-likelihood", unit="", digits=3)
    noun, nouns = "class", "classes"
    output_noun, output_nouns = "class", "classes"
    stratum = "class"
    estimator, action = "classifier", "classifies"
    several_words = "classes"
    pooled_words = "the log-probabilities"
    one_class = True
    interval_words = "Wilson"
    link, loss = "softmax", "cross_entropy"
    diagnosis = ClassDiagnosis
    achievement = "classifies {value:.1f} % of the images of unseen domains correctly"
    expectation = "Of 100 images of {place}, expect about {value} to be classified correctly"
    measures = Measures

    def names_of(self, text: str) -> list[str]:
        return [text]

    def shown(self, text: str) -> str:
        return text

    @classmethod
    def of_column(cls, array: NDArray[Any], names: tuple[str, ...] | None, name: str) -> Labels:
        if array.dtype.kind == "f" and (array == np.round(array)).all():
            array = array.astype(np.int64)
        classes, codes = np.unique(array, return_inverse=True)
        return Labels(CLASSIFICATION, tuple(classes.tolist()), codes.astype(np.int64))

    @classmethod
    def of_matrix(cls, values: Floats, names: tuple[str, ...] | None, name: str) -> Labels:
        """Read one-hot labels."""
        wrong = np.flatnonzero(values.sum(axis=1) != 1)
        if len(wrong):
            raise InputError(
                f"{name} must have exactly one 1 in each row for the task classification, row "
                f"{wrong[0]} has {values[wrong[0]].sum():g}"
            )
        present, positions = np.unique(values.argmax(axis=1), return_inverse=True)
        given: Sequence[Any] = names or range(values.shape[1])
        return Labels(
            CLASSIFICATION, tuple(given[at] for at in present.tolist()), positions.astype(np.int64)
        )

    def require_variation(self, labels: Labels, name: str = "y") -> None:
        require_two_classes(labels.values, labels.classes)

    def strata(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        """The classes themselves."""
        return labels.astype(np.int64)

    def strata_of(self, texts: Sequence[str]) -> list[str]:
        return list(texts)

    def truth(self, texts: Sequence[str], known: tuple[str, ...], source: str) -> Truth:
        """Classes that the predictor does not know follow those that it knows."""
        counts = Counter(texts)
        unknown = {name: counts[name] for name in sorted(counts) if name not in known}
        if len(unknown) == len(counts):
            raise none_known(self, known, unknown, source)
        names = (*known, *unknown)
        position = {name: at for at, name in enumerate(names)}
        absent = tuple(name for name in known if name not in counts)
        return Truth(names, np.array([position[text] for text in texts], np.int64), unknown, absent)

    def outcome(self, values: Floats, classes: NDArray[Any]) -> Any:
        return classes[values.argmax()].item()

    def outcome_array(self, outcomes: Sequence[Any], classes: NDArray[Any]) -> NDArray[Any]:
        lacks = any(each is None for each in outcomes)
        return label_array(outcomes, object if lacks else classes.dtype)

    def values_of_logits(self, logits: Floats) -> Floats:
        values: Floats = softmax(logits, axis=1)
        return values

    def values(self, outputs: NDArray[Any]) -> Floats:
        return np.exp(outputs.astype(np.float64))

    def pooled(self, outputs: NDArray[Any], weights: Sequence[float]) -> Floats:
        total = super().pooled(outputs, weights)
        pool: Floats = total - logsumexp(total, axis=1, keepdims=True)
        return pool

    def quality(self, outputs: Arrays, labels: Arrays) -> Floats:
        """Mean log-probability of the labels."""
        return np.array([label_likelihood(p, y) for p, y in zip(outputs, labels, strict=True)])

    def contributions(self, predicted: NDArray[Any], labels: NDArray[Any]) -> Floats:
        correct: Floats = (_classes(predicted) == labels).astype(np.float64)
        return correct

    def second_score(self, predicted: NDArray[Any], labels: NDArray[Any]) -> float:
        """Compute the balanced accuracy, as a fraction.

        Examples
        --------
        >>> certain, labels = np.eye(3)[[0, 0, 0, 0]], np.array([0, 0, 0, 1])
        >>> Classification().score(certain, labels), Classification().second_score(certain, labels)
        (0.75, 0.5)
        """
        correct = _classes(predicted) == labels
        return float(np.mean([correct[labels == label].mean() for label in np.unique(labels)]))

    def interval(self, predicted: NDArray[Any], labels: NDArray[Any]) -> tuple[float, float] | None:
        """Compute the 90 % interval of the accuracy, in percent: see :func:`wilson`."""
        low, high = wilson(int(self.contributions(predicted, labels).sum()), len(labels))
        return 100 * low, 100 * high

    def measured(self, values: Floats, labels: NDArray[Any]) -> Measures:
        return Measures(
            100 * self.score(values, labels),
            100 * self.second_score(values, labels),
            100 * calibration_error(values, labels),
        )

    def diagnose(
        self,
        values: Floats,
        labels: NDArray[Any],
        names: Sequence[str],
        *,
        paths: Sequence[str],
        domains: str | Sequence[str],
        most: int = MOST,
    ) -> ClassDiagnosis:
        """Compare predicted probabilities with true classes.

        A class that cannot be predicted has a column of zeros.

        Examples
        --------
        >>> found = CLASSIFICATION.diagnose(
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
        n, n_classes = len(labels), len(names)
        domains = [domains] * n if isinstance(domains, str) else domains
        if not n or values.shape != (n, n_classes) or len(paths) != n or len(domains) != n:
            raise ValueError(
                f"got probabilities {values.shape}, {n} labels, {n_classes} classes, "
                f"{len(paths)} paths and {len(domains)} domains"
            )
        if labels.min() < 0 or labels.max() >= n_classes:
            raise ValueError(
                f"labels must be from 0 to {n_classes - 1}, got {labels.min()} to {labels.max()}"
            )
        predicted, confidence = values.argmax(axis=1), values.max(axis=1)
        counts = np.bincount(labels * n_classes + predicted, minlength=n_classes**2)
        wrong = np.flatnonzero(predicted != labels)
        surest = wrong[np.argsort(-confidence[wrong], kind="stable")][:most]
        return ClassDiagnosis(
            tuple(names),
            tuple(map(tuple, counts.reshape(n_classes, n_classes).tolist())),
            reliability(confidence, predicted == labels),
            tuple(
                Mistake(
                    paths[row],
                    domains[row],
                    names[labels[row]],
                    names[predicted[row]],
                    100 * float(confidence[row]),
                )
                for row in surest.tolist()
            ),
        )


CLASSIFICATION = Classification()


def label_array(labels: Sequence[Any], dtype: Any = None) -> NDArray[Any]:
    """Classes as an array; those of mixed types keep their types."""
    if dtype is None:
        dtype = object if len({type(label) for label in labels}) > 1 else None
    return np.array(list(labels), dtype=dtype)


def _classes(predicted: NDArray[Any]) -> NDArray[Any]:
    """The most probable classes of values (n, C), or classes (n,) as they are."""
    return predicted if predicted.ndim == 1 else predicted.argmax(axis=1)


def require_two_classes(labels: NDArray[np.int64], classes: Sequence[Any] | None = None) -> None:
    """Raise an InputError if all labels, positions in `classes`, are the same."""
    if len(labels) and (labels == labels[0]).all():
        only = labels[0].item() if classes is None else classes[labels[0]]
        raise InputError(
            f"all labels are of one class, {only!r} ({count(len(labels), 'sample')}); at least two "
            "classes are needed"
        )
