r"""What the outputs of heads are for each kind of task, and how good they are.

Heads and pools of heads have outputs (n, C):

- Classification: log-probabilities of the classes, -inf for a class without training samples.
- Regression: the predicted numbers, each in its own units.
- Several labels per sample: log-odds of each label.

Settings and pools are chosen by the *quality* of outputs on left-out domains. It is the mean
log-probability of the labels for classes; the mean of
:math:`y \ln p + (1 - y) \ln (1 - p)` over samples and labels for several labels; and minus the mean
squared error for numbers, each output relative to its variance over all given samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp

from oodzoo.linear.heads.paths import label_likelihood
from oodzoo.tasks import Kind, metrics

_ROUNDING = 1e-12
"""Numbers that differ by less than this, relative to their size, are constant."""

Floats = NDArray[np.float64]
Arrays = Sequence[NDArray[Any]]


class Outputs(Protocol):
    """The meaning of the outputs of heads for one kind of task."""

    def values(self, outputs: NDArray[Any]) -> Floats:
        """Probabilities of the classes or of each label, or the numbers themselves, (n, C)."""
        ...

    def contributions(self, outputs: NDArray[Any], labels: NDArray[Any]) -> Floats:
        """Contribution (n,) of each sample to the main metric, see :mod:`oodzoo.tasks.metrics`."""
        ...

    def quality(self, outputs: Arrays, labels: Arrays) -> Floats:
        """Quality (domains, heads) of the outputs (heads, n, C) of each domain."""
        ...

    def pooled(self, outputs: NDArray[Any], weights: Sequence[float]) -> Floats:
        """Outputs (n, C) of a pool of heads (heads, n, C), whose weights add up to 1."""
        ...


class ClassOutputs:
    """Log-probabilities of classes."""

    def values(self, outputs: NDArray[Any]) -> Floats:
        return np.exp(outputs.astype(np.float64))

    def contributions(self, outputs: NDArray[Any], labels: NDArray[Any]) -> Floats:
        return metrics.contributions("classification", outputs.argmax(axis=1), labels)

    def quality(self, outputs: Arrays, labels: Arrays) -> Floats:
        return np.array([label_likelihood(p, y) for p, y in zip(outputs, labels, strict=True)])

    def pooled(self, outputs: NDArray[Any], weights: Sequence[float]) -> Floats:
        total = _weighted(outputs, weights)
        pool: Floats = total - logsumexp(total, axis=1, keepdims=True)
        return pool


class _Averaged:
    """Outputs whose mean is the output of a pool."""

    def pooled(self, outputs: NDArray[Any], weights: Sequence[float]) -> Floats:
        return _weighted(outputs, weights)


class NumberOutputs(_Averaged):
    """Predicted numbers."""

    def values(self, outputs: NDArray[Any]) -> Floats:
        return outputs.astype(np.float64)

    def contributions(self, outputs: NDArray[Any], labels: NDArray[Any]) -> Floats:
        return metrics.contributions("regression", outputs, labels)

    def quality(self, outputs: Arrays, labels: Arrays) -> Floats:
        errors = relative_errors(outputs, labels)
        return np.array([-np.mean(each**2, axis=(1, 2)) for each in errors])


class LabelOutputs(_Averaged):
    """Log-odds of labels."""

    def values(self, outputs: NDArray[Any]) -> Floats:
        probabilities: Floats = expit(outputs.astype(np.float64))
        return probabilities

    def contributions(self, outputs: NDArray[Any], labels: NDArray[Any]) -> Floats:
        return metrics.contributions("multilabel", outputs, labels)

    def quality(self, outputs: Arrays, labels: Arrays) -> Floats:
        return np.array(
            [
                bernoulli_likelihood(z.astype(np.float64), y).mean(axis=(1, 2))
                for z, y in zip(outputs, labels, strict=True)
            ]
        )


def _weighted(outputs: NDArray[Any], weights: Sequence[float]) -> Floats:
    """Weighted sum over heads; -inf of a class that a head does not know stays."""
    total = np.zeros(outputs.shape[1:])
    for head, weight in zip(outputs, weights, strict=True):
        total += weight * head.astype(np.float64)
    return total


def relative_errors(outputs: Arrays, labels: Arrays) -> list[Floats]:
    """Errors (heads, n, C) in each domain, in standard deviations of the labels of all domains.

    An output that is constant in all domains has no such scale; its errors count as they are.
    """
    together = np.concatenate(labels)
    scale = together.std(axis=0)
    scale = np.where(scale > _ROUNDING * np.abs(together).max(axis=0), scale, 1.0)
    return [(p - y) / scale for p, y in zip(outputs, labels, strict=True)]


def bernoulli_likelihood(log_odds: NDArray[Any], labels: NDArray[Any]) -> NDArray[Any]:
    """Log-probability of each label, zero or one, of the same shape as the log-odds."""
    likelihood: NDArray[Any] = labels * log_odds - np.logaddexp(0, log_odds)
    return likelihood


_OUTPUTS: dict[Kind, Outputs] = {
    "classification": ClassOutputs(),
    "regression": NumberOutputs(),
    "multilabel": LabelOutputs(),
}


def outputs_of(kind: Kind) -> Outputs:
    """Return the meaning of the outputs of heads for a kind of task."""
    return _OUTPUTS[kind]
