r"""A linear classifier on features: multinomial logistic regression with an L2 penalty.

.. math:: \min_{W,b}\; \frac1n\sum_i -\ln p(y_i\mid x_i) + \frac{1}{2nC}\lVert W\rVert^2,
   \qquad p(\cdot\mid x) = \operatorname{softmax}(Wx + b),

on features standardised over the training samples. The strength C is chosen by leaving each
training domain out in turn: for each of them a path of solutions from the strongest penalty to the
weakest, each starting where the last one ended.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from oodzoo.errors import InputError
from oodzoo.features.columns import Samples
from oodzoo.heads.logistic import Dual, Form, Matrix, Primal, gradient_at_zero, minimise

STRENGTHS = tuple(10.0**power for power in range(-5, 2))
TOLERANCE = 1e-4
"""Part of the gradient at zero weights that is left where a fit ends."""

PATH_TOLERANCE = 1e-3
"""The same while strengths are compared, which needs less."""

_PARTS = 5
_ROWS = 4096
_COPY_BYTES = 2**28
"""Copies up to this size are made where they make a fit faster or finer."""


@dataclass(frozen=True)
class LinearHead:
    """Class probabilities from features as they come: standardisation is part of the weights.

    Attributes
    ----------
    weights : array (n_classes, n_features)
    bias : array (n_classes,)
        A class that the training samples do not have has bias -inf and is never predicted.
    strength : float
        C, the inverse of the penalty.
    """

    weights: NDArray[np.float64]
    bias: NDArray[np.float64]
    C: float

    def logits(self, features: NDArray[np.floating]) -> NDArray[np.float64]:
        """Outputs (n, n_classes) before they are made probabilities."""
        logits: NDArray[np.float64] = features @ self.weights.T + self.bias
        return logits

    def probabilities(self, features: NDArray[np.floating]) -> NDArray[np.float64]:
        """Probability of each class for each sample, (n, n_classes)."""
        logits = self.logits(features)
        exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities: NDArray[np.float64] = exponentials / exponentials.sum(axis=1, keepdims=True)
        return probabilities


def fit_head(
    samples: Samples,
    n_classes: int,
    *,
    C: float | None = None,
    strengths: tuple[float, ...] = STRENGTHS,
) -> LinearHead:
    """Train a head on samples of one domain or more.

    A feature that does not vary gets no weight. A class that the samples do not have is never
    predicted. The result is deterministic.

    Parameters
    ----------
    samples : Samples
    n_classes : int
    strength : float, optional
        C; without it one of `strengths`, by accuracy on domains left out, averaged over the domains
        of `samples`: of those within a standard error of the best, the one that gives the labels
        the greatest likelihood, so that probabilities mean something. Where there is only one
        domain, its samples are left out in five parts with the same mixture of classes, which tells
        less about other domains.
    strengths : tuple of float

    Examples
    --------
    >>> labels, domains = np.array([0, 0, 1, 1] * 2), np.repeat([0, 1], 4)
    >>> features = np.float32([[0], [1], [2], [3], [0], [1], [2], [4]])
    >>> head = fit_head(Samples(features, labels, domains), 2)
    >>> head.logits(np.float32([[0.5], [2.5]])).argmax(axis=1).tolist()
    [0, 1]
    """
    _check(samples, n_classes, strengths if C is None else (C,))
    mean, std = _mean_and_std(samples.features)
    features = _standardised(samples.features, mean, std)
    problem = _Dual(features) if len(features) < features.shape[1] else _Primal(features)
    start = None
    if C is None:
        C, start = _chosen(problem, samples, n_classes, sorted(strengths))
    everything = np.ones(len(features), bool)
    targets, present = _targets(samples.labels, everything)
    found = problem.exact(targets, C, None if start is None else start[present])
    weights, bias = np.zeros((n_classes, features.shape[1])), np.full(n_classes, -np.inf)
    weights[present] = problem.weights(found) / np.where(std > 0, std, 1)
    bias[present] = found[:, -1] - weights[present] @ mean
    return LinearHead(weights, bias, float(C))


class _Primal:
    """Where weights are sought: at least as many samples as features."""

    def __init__(self, features: NDArray[np.float32]) -> None:
        self.features = features
        self._small = 8 * features.size <= _COPY_BYTES

    def path(
        self, targets: Matrix, train: NDArray[np.bool_], strengths: Sequence[float]
    ) -> Iterator[tuple[Matrix, Matrix]]:
        """For each strength the solution, and the outputs for the samples not trained on."""
        form = Primal(self.features)
        if self._small:  # else all rows are gone through, most of them to be trained on
            form, targets = Primal(self.features[train]), np.ascontiguousarray(targets[:, train])
        others = Primal(self.features[~train])
        for found in _path(form, targets, strengths):
            yield found, others.outputs(found, found)

    def exact(self, targets: Matrix, C: float, start: Matrix | None) -> Matrix:
        """The solution for all samples, in float64 where that takes little memory."""
        dtype = np.float64 if self._small else np.float32
        return _fit(Primal(self.features.astype(dtype, copy=False)), targets, C, start)

    def weights(self, found: Matrix) -> NDArray[np.float64]:
        return found[:, :-1].astype(np.float64)


class _Dual:
    """Where combinations of samples are sought: fewer samples than features."""

    def __init__(self, features: NDArray[np.float32]) -> None:
        self.features = features
        self._gram = np.zeros((len(features), len(features)))
        for left in range(0, features.shape[1], _ROWS):
            part = features[:, left : left + _ROWS].astype(np.float64)
            self._gram += part @ part.T
        self._single = self._gram.astype(np.float32)

    def path(
        self, targets: Matrix, train: NDArray[np.bool_], strengths: Sequence[float]
    ) -> Iterator[tuple[Matrix, Matrix]]:
        """For each strength the solution, and the outputs for the samples not trained on."""
        form = Dual(self._single[np.ix_(train, train)])
        others = self._single[np.ix_(train, ~train)]
        targets = np.ascontiguousarray(targets[:, train])
        for found in _path(form, targets, strengths):
            everywhere = np.zeros((len(targets), len(train) + 1), np.float32)
            everywhere[:, np.append(train, True)] = found
            yield everywhere, found[:, :-1] @ others + found[:, -1:]

    def exact(self, targets: Matrix, C: float, start: Matrix | None) -> Matrix:
        """The solution for all samples, in float64."""
        return _fit(Dual(self._gram), targets, C, start)

    def weights(self, found: Matrix) -> NDArray[np.float64]:
        weights = np.zeros((len(found), self.features.shape[1]))
        for top in range(0, len(self.features), _ROWS):
            part = self.features[top : top + _ROWS].astype(np.float64)
            weights += found[:, top : min(top + _ROWS, found.shape[1] - 1)] @ part
        return weights


def _path(form: Form, targets: Matrix, strengths: Sequence[float]) -> Iterator[Matrix]:
    """The solution for each strength, each from where the one before it ended."""
    found = np.zeros((len(targets), form.size + 1), np.float32)
    enough = PATH_TOLERANCE * gradient_at_zero(form, targets)
    for C in strengths:
        found = minimise(form, targets, C, found, enough)
        yield found


def _fit(form: Primal | Dual, targets: Matrix, C: float, start: Matrix | None) -> Matrix:
    """The solution for one strength, in the precision of the form."""
    dtype = (form.features if isinstance(form, Primal) else form.gram).dtype
    targets = targets.astype(dtype)
    if start is None:
        start = np.zeros((len(targets), form.size + 1))
    enough = TOLERANCE * gradient_at_zero(form, targets)
    return minimise(form, targets, C, start.astype(dtype), enough)


def _chosen(
    problem: _Primal | _Dual, samples: Samples, n_classes: int, strengths: Sequence[float]
) -> tuple[float, Matrix | None]:
    """The best strength, and from the fits for it a place to start the last one."""
    left_out = _left_out(samples)
    accuracy, likelihood = np.zeros(len(strengths)), np.zeros(len(strengths))
    starts: list[Matrix] = []
    parts = 0
    for part in np.unique(left_out):
        train = left_out != part
        if not train.any():
            continue
        parts += 1
        targets, present = _targets(samples.labels, train)
        for at, (found, outputs) in enumerate(problem.path(targets, train, strengths)):
            predicted = present[outputs.argmax(axis=0)]
            labels = samples.labels[~train]
            accuracy[at] += np.mean(predicted == labels)
            likelihood[at] += _likelihood(outputs, labels, present)
            if len(starts) <= at:
                starts.append(np.zeros((n_classes, found.shape[1])))
            starts[at][present] += found
    accuracy, likelihood = accuracy / max(parts, 1), likelihood / max(parts, 1)
    error = np.sqrt(accuracy.max() * (1 - accuracy.max()) / len(left_out))
    good = accuracy >= accuracy.max() - error - 1e-9
    best = int(np.argmax(np.where(good, likelihood, -np.inf)))
    return strengths[best], starts[best] / parts if starts else None


def _likelihood(outputs: Matrix, labels: NDArray[np.int64], present: NDArray[np.int64]) -> float:
    """Mean log-probability of the labels of classes that there are to predict, (classes, n)."""
    known = np.isin(labels, present)
    if not known.any():
        return 0.0
    outputs = outputs[:, known].astype(np.float64)
    right = outputs[np.searchsorted(present, labels[known]), np.arange(outputs.shape[1])]
    return float(np.mean(right - logsumexp(outputs, axis=0)))


def _left_out(samples: Samples) -> NDArray[np.int64]:
    """The part of each sample: its domain, or one of five where there is one domain."""
    if len(np.unique(samples.domains)) > 1:
        return samples.domains
    parts = np.empty(len(samples.labels), np.int64)
    for label in np.unique(samples.labels):
        rows = np.flatnonzero(samples.labels == label)
        parts[rows] = np.arange(len(rows)) % _PARTS
    return parts


def _targets(
    labels: NDArray[np.int64], train: NDArray[np.bool_]
) -> tuple[Matrix, NDArray[np.int64]]:
    """1 where a sample to train on is of a class, (classes, n), and the classes that there are."""
    present = np.unique(labels[train])
    return ((labels == present[:, None]) & train).astype(np.float32), present


def _mean_and_std(features: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """In float64, though never of more than some rows at a time."""
    mean, square = np.zeros(features.shape[1]), np.zeros(features.shape[1])
    for top in range(0, len(features), _ROWS):
        mean += features[top : top + _ROWS].sum(axis=0, dtype=np.float64)
    mean /= len(features)
    for top in range(0, len(features), _ROWS):
        square += np.square(features[top : top + _ROWS] - mean).sum(axis=0)
    std = np.sqrt(square / len(features))
    # What is left of a feature that does not vary is rounding.
    std[std <= 8 * np.finfo(np.float64).eps * np.abs(mean)] = 0
    return mean, std


def _standardised(
    features: NDArray[Any], mean: NDArray[np.float64], std: NDArray[np.float64]
) -> NDArray[np.float32]:
    result = np.empty(features.shape, np.float32)
    scale = np.divide(1, std, out=np.zeros_like(std), where=std > 0)
    for top in range(0, len(features), _ROWS):
        result[top : top + _ROWS] = (features[top : top + _ROWS] - mean) * scale
    return result


def _check(samples: Samples, n_classes: int, strengths: Sequence[float]) -> None:
    features, labels, domains = samples
    if features.ndim != 2 or not features.size or not len(features) == len(labels) == len(domains):
        raise InputError(
            f"features of shape {features.shape} with {len(labels)} labels and {len(domains)} "
            "domains; a head needs one of each for every sample, and at least one feature"
        )
    if labels.min() < 0 or labels.max() >= n_classes:
        raise InputError(
            f"labels go from {labels.min()} to {labels.max()}; "
            f"of {n_classes} classes they must lie between 0 and {n_classes - 1}"
        )
    if not strengths or not all(math.isfinite(s) and s > 0 for s in strengths):
        raise InputError(f"strengths {list(strengths)}; give at least one, each above 0")
    for top in range(0, len(features), _ROWS):
        bad = np.flatnonzero(~np.isfinite(features[top : top + _ROWS]).all(axis=1))
        if len(bad):
            raise InputError(
                f"features of sample {top + bad[0]} are not finite; "
                "remove the sample, or extract its features again"
            )
