r"""Calibration: how often predictions of a given confidence are correct.

The images are put into bins by the probability of the predicted class, the *confidence*. In a bin b
of :math:`n_b` images, a calibrated predictor is correct as often as it is confident. The *expected
calibration error* is the mean distance,

.. math:: \sum_b \frac{n_b}{n}\,\lvert \text{accuracy}_b - \text{confidence}_b\rvert

(Guo et al., "On Calibration of Modern Neural Networks", 2017).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
