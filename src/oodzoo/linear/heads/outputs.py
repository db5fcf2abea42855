r"""What the outputs of heads are and how good they are; heads made of class embeddings.

Heads and pools of heads have outputs (n, C):

- Classification: log-probabilities of the classes, -inf for a class without training samples.
- Regression: the predicted numbers, each in its own units.
- Several labels per sample: log-odds of each label.

Settings and pools are chosen by the *quality* of outputs on left-out domains. It is the mean
log-probability of the labels for classes; the mean of
:math:`y \ln p + (1 - y) \ln (1 - p)` over samples and labels for several labels; and minus the mean
squared error for numbers, each output relative to its variance over all given samples.

A text tower gives an embedding :math:`t_c` of each class. On features z of unit length, zero-shot
classification is a linear head that needs no training,

.. math:: \ell_c(z) = s\,t_c^\top z + b.

A head that starts from it adds a logistic regression, :math:`\ell(z) + Wz + a`, whose L2 penalty is
that of W: the distance from the zero-shot head, which is the limit of small C but for a.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_softmax, logsumexp

from oodzoo.extraction.columns import Samples
from oodzoo.linear.heads.linear import LinearHead, fit_head
from oodzoo.linear.heads.paths import label_likelihood, left_out_masks, left_out_paths
from oodzoo.linear.heads.samples import check_samples
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


def zero_shot_head(
    class_embeddings: NDArray[np.floating[Any]], scale: float, bias: float = 0.0
) -> LinearHead:
    """Make the head of features of unit length; its C is 0, because nothing was trained.

    Examples
    --------
    >>> head = zero_shot_head(np.float32([[1, 0], [0, 1]]), 100.0)
    >>> head.probabilities(np.float32([[0.8, 0.6]])).round(3).tolist()
    [[1.0, 0.0]]
    """
    weights = scale * np.asarray(class_embeddings, np.float64)
    return LinearHead(weights, np.full(len(weights), float(bias)), 0.0)


def left_out_zero_shot(
    samples: Samples,
    n_classes: int,
    left_out: Sequence[AbstractSet[int]],
    *,
    zero_shot: LinearHead,
    device: str | None = None,
) -> list[NDArray[np.float32]]:
    """Predict domains by the zero-shot head, in the form of :func:`~.paths.left_out_paths`.

    There is one setting, and the training domains do not matter.
    """
    check_samples(samples, n_classes)
    masks = left_out_masks(samples, left_out)
    predicted = log_softmax(zero_shot.logits(samples.features), axis=1).astype(np.float32)
    return [predicted[None, mask] for mask in masks]


def left_out_from_zero_shot(
    samples: Samples,
    n_classes: int,
    left_out: Sequence[AbstractSet[int]],
    *,
    zero_shot: LinearHead,
    device: str | None = None,
) -> list[NDArray[np.float32]]:
    """Predict domains by heads that start from the zero-shot head, for each C."""
    offset = zero_shot.logits(samples.features)
    return left_out_paths(samples, n_classes, left_out, device=device, offset=offset)


def fit_from_zero_shot(
    samples: Samples, n_classes: int, C: float, zero_shot: LinearHead
) -> LinearHead:
    """Fit a head that starts from the zero-shot head; the result includes it."""
    fitted = fit_head(samples, n_classes, C=C, offset=zero_shot.logits(samples.features))
    return LinearHead(fitted.weights + zero_shot.weights, fitted.bias + zero_shot.bias, fitted.C)
