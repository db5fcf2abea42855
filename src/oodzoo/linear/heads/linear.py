r"""Linear classifier on features: multinomial logistic regression with an L2 penalty.

.. math:: \min_{W,b}\; \frac1n\sum_i -\ln p(y_i\mid x_i) + \frac{1}{2nC}\lVert W\rVert^2,
   \qquad p(\cdot\mid x) = \operatorname{softmax}(Wx + b),

on features standardised over the training samples. C is chosen by leave-one-domain-out validation
over the training domains: for each held-out domain a path of solutions from the strongest penalty
to the weakest is computed, each initialised with the previous one.

A text tower gives an embedding :math:`t_c` of each class. On features z of unit length, zero-shot
classification is a linear head that needs no training,

.. math:: \ell_c(z) = s\,t_c^\top z + b.

A head that starts from it adds a logistic regression, :math:`\ell(z) + Wz + a`, whose L2 penalty is
that of W: the distance from the zero-shot head, which is the limit of small C but for a.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, logsumexp

from oodzoo.core.threads import blas_threads
from oodzoo.extraction.columns import Samples
from oodzoo.linear.heads.logistic import Dual, Form, Matrix, Primal, gradient_at_zero, minimise
from oodzoo.linear.heads.paths import (
    C_GRID,
    PATH_TOLERANCE,
    call_for_sets,
    check_Cs,
    left_out_masks,
    left_out_paths,
)
from oodzoo.linear.heads.samples import (
    Groups,
    check_samples,
    group_numbers,
    grouped_folds,
    mean_and_std,
    standardised,
)
from oodzoo.tasks import CLASSIFICATION, Task
from oodzoo.tasks.classification import require_two_classes

TOLERANCE = 1e-4
"""A fit ends when the norm of the gradient, relative to zero weights, falls below this."""

FOLDS = 5
_ROWS = 4096
_COPY_BYTES = 2**28
"""Features up to this size are copied where that makes a fit faster or more precise."""


@dataclass(frozen=True)
class LinearHead:
    """A linear head of unscaled features: standardisation is folded into the weights.

    Attributes
    ----------
    weights : array (n_outputs, n_features)
        An output is a class, a number or a label.
    bias : array (n_outputs,)
        -inf for a class without training samples, which is never predicted.
    C : float
        Inverse regularisation strength, as in scikit-learn.
    task : Task
        What is predicted.
    """

    weights: NDArray[np.float64]
    bias: NDArray[np.float64]
    C: float
    task: Task = CLASSIFICATION

    @property
    def digest(self) -> str:
        """SHA-256 of the weights and the bias."""
        return hashlib.sha256(self.weights.tobytes() + self.bias.tobytes()).hexdigest()

    def logits(self, features: NDArray[np.floating]) -> NDArray[np.float64]:
        """Compute the logits of classes, the log-odds of labels, or numbers: (n, outputs)."""
        logits: NDArray[np.float64] = features @ self.weights.T + self.bias
        return logits

    def probabilities(self, features: NDArray[np.floating]) -> NDArray[np.float64]:
        """Compute the probabilities of the classes, or of each label: (n, outputs)."""
        if not self.task.has_probabilities:
            raise ValueError("a head that predicts numbers has no probabilities")
        return self.values(features)

    def values(self, features: NDArray[np.floating]) -> NDArray[np.float64]:
        """Compute the predicted numbers of a regression, else the probabilities: (n, outputs)."""
        return self.task.values_of_logits(self.logits(features))


def fit_head(
    samples: Samples,
    n_classes: int,
    *,
    C: float | None = None,
    Cs: tuple[float, ...] = C_GRID,
    groups: Groups | None = None,
    offset: NDArray[np.floating[Any]] | None = None,
) -> LinearHead:
    """Fit a linear head to samples of one or more domains.

    A constant feature gets zero weight. A class without samples is never predicted. The result is
    deterministic.

    Parameters
    ----------
    samples : Samples
    n_classes : int
    C : float, optional
        Inverse regularisation strength, as in scikit-learn. If None, it is chosen from `Cs` by the
        accuracy on held-out domains: of all values within a standard error of the best, the one
        with the highest likelihood of the labels, so that probabilities are calibrated. A single
        domain is split into five stratified folds instead, a weaker guide to other domains.
    Cs : tuple of float
        Values of C to choose from.
    groups : sequence, optional
        Group of each sample (a patient, a video), None for a sample without one. The folds of a
        single domain keep groups whole.
    offset : array (n, n_classes), optional
        Logits of each sample that those of the head are added to; only with a given C.

    Examples
    --------
    >>> labels, domains = np.array([0, 0, 1, 1] * 2), np.repeat([0, 1], 4)
    >>> features = np.float32([[0], [1], [2], [3], [0], [1], [2], [4]])
    >>> head = fit_head(Samples(features, labels, domains), 2)
    >>> head.logits(np.float32([[0.5], [2.5]])).argmax(axis=1).tolist()
    [0, 1]
    """
    check_samples(samples, n_classes)
    require_two_classes(samples.labels)
    numbers = group_numbers(groups, len(samples.labels))
    check_Cs(Cs if C is None else (C,))
    with blas_threads(samples.features.size):
        return _fit_head(samples, n_classes, C, Cs, numbers, offset)


def _fit_head(
    samples: Samples,
    n_classes: int,
    C: float | None,
    Cs: tuple[float, ...] = (),
    groups: NDArray[np.int64] | None = None,
    offset: NDArray[np.floating[Any]] | None = None,
) -> LinearHead:
    mean, std = mean_and_std(samples.features)
    features = standardised(samples.features, mean, std)
    wide = len(features) < features.shape[1]
    problem = _DualProblem(features) if wide else _PrimalProblem(features)
    start = None
    if C is None:
        C, start = _select_C(problem, samples, n_classes, sorted(Cs), _folds(samples, groups))
    targets, present = _targets(samples.labels, np.ones(len(features), bool))
    added = None if offset is None else offset[:, present].T
    solution = problem.fit(targets, C, None if start is None else start[present], added)
    weights, bias = np.zeros((n_classes, features.shape[1])), np.full(n_classes, -np.inf)
    weights[present] = problem.weights(solution) / np.where(std > 0, std, 1)
    bias[present] = solution[:, -1] - weights[present] @ mean
    return LinearHead(weights, bias, float(C))


class _PrimalProblem:
    """Optimise the weights: for at least as many samples as features."""

    def __init__(self, features: NDArray[np.float32]) -> None:
        self.features = features
        self._small = 8 * features.size <= _COPY_BYTES

    def path(
        self, targets: Matrix, train: NDArray[np.bool_], Cs: Sequence[float]
    ) -> Iterator[tuple[Matrix, Matrix]]:
        """Yield for each C the solution, and the logits of the held-out samples."""
        form = Primal(self.features)
        if self._small:  # otherwise the held-out rows, few of all, stay in and have no target
            form, targets = Primal(self.features[train]), np.ascontiguousarray(targets[:, train])
        held_out = Primal(self.features[~train])
        for solution in _path(form, targets, Cs):
            yield solution, held_out.outputs(solution, solution)

    def fit(
        self, targets: Matrix, C: float, start: Matrix | None, offset: Matrix | None = None
    ) -> Matrix:
        """Fit to all samples, in float64 if memory allows."""
        dtype = np.float64 if self._small else np.float32
        return _fit(Primal(self.features.astype(dtype, copy=False)), targets, C, start, offset)

    def weights(self, solution: Matrix) -> NDArray[np.float64]:
        return solution[:, :-1].astype(np.float64)


class _DualProblem:
    """Optimise combinations of samples: for fewer samples than features."""

    def __init__(self, features: NDArray[np.float32]) -> None:
        self.features = features
        self._gram = np.zeros((len(features), len(features)))
        for left in range(0, features.shape[1], _ROWS):
            part = features[:, left : left + _ROWS].astype(np.float64)
            self._gram += part @ part.T
        self._single = self._gram.astype(np.float32)

    def path(
        self, targets: Matrix, train: NDArray[np.bool_], Cs: Sequence[float]
    ) -> Iterator[tuple[Matrix, Matrix]]:
        """Yield for each C the solution, and the logits of the held-out samples."""
        form = Dual(self._single[np.ix_(train, train)])
        held_out = self._single[np.ix_(train, ~train)]
        targets = np.ascontiguousarray(targets[:, train])
        for solution in _path(form, targets, Cs):
            padded = np.zeros((len(targets), len(train) + 1), np.float32)
            padded[:, np.append(train, True)] = solution
            yield padded, solution[:, :-1] @ held_out + solution[:, -1:]

    def fit(
        self, targets: Matrix, C: float, start: Matrix | None, offset: Matrix | None = None
    ) -> Matrix:
        """Fit to all samples, in float64."""
        return _fit(Dual(self._gram), targets, C, start, offset)

    def weights(self, solution: Matrix) -> NDArray[np.float64]:
        weights = np.zeros((len(solution), self.features.shape[1]))
        for top in range(0, len(self.features), _ROWS):
            part = self.features[top : top + _ROWS].astype(np.float64)
            weights += solution[:, top : min(top + _ROWS, solution.shape[1] - 1)] @ part
        return weights


def _path(form: Form, targets: Matrix, Cs: Sequence[float]) -> Iterator[Matrix]:
    """Yield the solution for each C, each initialised with the previous one."""
    solution = np.zeros((len(targets), form.size + 1), np.float32)
    tol = PATH_TOLERANCE * gradient_at_zero(form, targets)
    for C in Cs:
        solution = minimise(form, targets, C, solution, tol)
        yield solution


def _fit(
    form: Primal | Dual,
    targets: Matrix,
    C: float,
    start: Matrix | None,
    offset: Matrix | None = None,
) -> Matrix:
    """Solve for one C, in the precision of the form."""
    dtype = (form.features if isinstance(form, Primal) else form.gram).dtype
    targets = targets.astype(dtype)
    if start is None:
        start = np.zeros((len(targets), form.size + 1))
    tol = TOLERANCE * gradient_at_zero(form, targets)
    added = None if offset is None else offset.astype(dtype)
    return minimise(form, targets, C, start.astype(dtype), tol, offset=added)


def _select_C(
    problem: _PrimalProblem | _DualProblem,
    samples: Samples,
    n_classes: int,
    Cs: Sequence[float],
    folds: NDArray[np.int64],
) -> tuple[float, Matrix | None]:
    """Select the best C, and average its solutions as a start for the final fit."""
    masks = [folds != fold for fold in np.unique(folds)]
    calls = [(problem, samples, n_classes, Cs, train) for train in masks if train.any()]
    found = call_for_sets(_left_out_fold, calls, samples.features.size, on_cpu=True)
    n_folds = len(found)
    accuracy, likelihood = np.zeros(len(Cs)), np.zeros(len(Cs))
    starts: Matrix | None = None
    for accuracies, likelihoods, solutions in found:  # in order: sums do not depend on threads
        accuracy += accuracies
        likelihood += likelihoods
        starts = solutions.astype(np.float64) if starts is None else starts + solutions
    accuracy, likelihood = accuracy / max(n_folds, 1), likelihood / max(n_folds, 1)
    error = np.sqrt(accuracy.max() * (1 - accuracy.max()) / len(folds))
    good = accuracy >= accuracy.max() - error - 1e-9
    best = int(np.argmax(np.where(good, likelihood, -np.inf)))
    return Cs[best], None if starts is None else starts[best] / n_folds


def _left_out_fold(
    problem: _PrimalProblem | _DualProblem,
    samples: Samples,
    n_classes: int,
    Cs: Sequence[float],
    train: NDArray[np.bool_],
) -> tuple[Matrix, Matrix, Matrix]:
    """Accuracy and likelihood on a held-out fold for each C, and the solutions for all classes."""
    accuracy, likelihood, solutions = [], [], []
    targets, present = _targets(samples.labels, train)
    labels = samples.labels[~train]
    for solution, outputs in problem.path(targets, train, Cs):
        accuracy.append(np.mean(present[outputs.argmax(axis=0)] == labels))
        likelihood.append(_likelihood(outputs, labels, present))
        solutions.append(np.zeros((n_classes, solution.shape[1]), solution.dtype))
        solutions[-1][present] = solution
    return np.array(accuracy), np.array(likelihood), np.stack(solutions)


def _likelihood(outputs: Matrix, labels: NDArray[np.int64], present: NDArray[np.int64]) -> float:
    """Mean log-probability of the labels whose class is present in training."""
    known = np.isin(labels, present)
    if not known.any():
        return 0.0
    outputs = outputs[:, known].astype(np.float64)
    correct = outputs[np.searchsorted(present, labels[known]), np.arange(outputs.shape[1])]
    return float(np.mean(correct - logsumexp(outputs, axis=0)))


def _folds(samples: Samples, groups: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """The fold of each sample: its domain, or one of five if there is a single domain."""
    if len(np.unique(samples.domains)) > 1:
        return samples.domains
    return stratified_folds(samples.labels, groups)


def stratified_folds(
    strata: NDArray[np.int64], groups: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Assign samples to five folds with about equal shares of each stratum.

    Samples of the same of the numbered groups are in the same fold.
    """
    if groups is not None:
        return grouped_folds(strata, groups, FOLDS)
    folds = np.empty(len(strata), np.int64)
    folds[np.argsort(strata, kind="stable")] = np.arange(len(strata)) % FOLDS
    return folds


def _targets(
    labels: NDArray[np.int64], train: NDArray[np.bool_]
) -> tuple[Matrix, NDArray[np.int64]]:
    """One-hot labels of the training samples (classes, n), and the classes among them."""
    present = np.unique(labels[train])
    return ((labels == present[:, None]) & train).astype(np.float32), present


# --- heads made of class embeddings -----------------------------------------------------------


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
