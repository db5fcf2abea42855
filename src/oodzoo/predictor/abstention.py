"""Predictions that are left out because they are not confident, and what that gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oodzoo.errors import InputError

CONFIDENCES = (*(round(0.05 * step, 2) for step in range(20)), 0.99)
"""Where the curve is recorded; 0 keeps all predictions."""


@dataclass(frozen=True)
class ConfidencePoint:
    """Left-out domains, if predictions below a confidence are left out.

    Attributes
    ----------
    confidence : float
        Smallest probability of the most probable class, from 0 to 1.
    kept : float
        Share of the samples that are kept, in percent; domains weigh alike.
    accuracy : float or None
        Accuracy of those, in percent: the mean over the domains that have any. None if there are
        none.
    worst : float or None
        The lowest accuracy of one of these domains.
    """

    confidence: float
    kept: float
    accuracy: float | None
    worst: float | None


def confidence_curve(
    probabilities: Mapping[str, NDArray[np.float64]],
    labels: Mapping[str, NDArray[np.int64]],
    confidences: Sequence[float] = CONFIDENCES,
) -> tuple[ConfidencePoint, ...]:
    """Measure accuracy and share of the samples of left-out domains that are kept.

    Parameters
    ----------
    probabilities : dict of str to array (n, C)
        Of the samples of each domain, by a head that was trained without it.
    labels : dict of str to array (n,)
        Their classes, numbered from 0.
    confidences : sequence of float

    Examples
    --------
    >>> probabilities = {"photo": np.array([[0.9, 0.1], [0.4, 0.6]])}
    >>> confidence_curve(probabilities, {"photo": np.array([0, 0])}, [0.65])
    (ConfidencePoint(confidence=0.65, kept=50.0, accuracy=100.0, worst=100.0),)
    """
    confident = {name: each.max(axis=1) for name, each in probabilities.items()}
    correct = {name: each.argmax(axis=1) == labels[name] for name, each in probabilities.items()}
    points = []
    for confidence in confidences:
        kept = {name: each >= confidence for name, each in confident.items()}
        found = [100 * correct[name][each].mean() for name, each in kept.items() if each.any()]
        points.append(
            ConfidencePoint(
                confidence,
                100 * float(np.mean([each.mean() for each in kept.values()])),
                float(np.mean(found)) if found else None,
                float(min(found)) if found else None,
            )
        )
    return tuple(points)


def at_confidence(curve: Sequence[ConfidencePoint], confidence: float) -> ConfidencePoint:
    """The recorded point of a confidence, or of the nearest one below it."""
    return max(
        (point for point in curve if point.confidence <= confidence + 1e-9),
        key=lambda point: point.confidence,
    )


def require_confidence(confidence: float) -> None:
    """Raise an InputError unless a confidence is a probability."""
    if not 0 <= confidence <= 1:
        raise InputError(f"the confidence must be from 0 to 1, got {confidence!r}")
