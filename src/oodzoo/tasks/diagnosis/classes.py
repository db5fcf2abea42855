"""Predicted classes: how many of each class are right, what they are taken for, how surely."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from oodzoo.core.io import structured
from oodzoo.tasks.diagnosis.reliability import Reliability, merged, reliability

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
