r"""One logistic regression with an L2 penalty for each label, as linear heads.

.. math:: \min_{w,b}\; \sum_i \ln\bigl(1 + e^{-s_i (w^\top z_i + b)}\bigr)
   + \frac{1}{2C}\lVert w\rVert^2, \qquad s_i = \pm 1,

with features standardised over exactly the training samples: scikit-learn's `LogisticRegression`.
The outputs are log-odds :math:`w^\top z + b`. The labels share the C, and are optimised together.

A label that all training samples have, or none, has nothing to learn from. Its log-odds are those
of its smoothed rate, :math:`(k + 1/2) / (n + 1)` for k of n samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from oodzoo.core.threads import blas_threads
from oodzoo.extraction.columns import Samples
from oodzoo.linear.heads.left_out import call_for_sets, left_out_masks
from oodzoo.linear.heads.linear import TOLERANCE, LinearHead
from oodzoo.linear.heads.logistic import (
    Dual,
    Form,
    Matrix,
    Primal,
    gradient_norm,
    minimise,
    sigmoid_residuals,
)
from oodzoo.linear.heads.paths import C_GRID, PATH_TOLERANCE, check_Cs
from oodzoo.linear.heads.samples import check_numbers, mean_and_std, standardised

Floats = NDArray[np.float64]


def left_out_labels(
    samples: Samples,
    n_labels: int,
    left_out: Sequence[AbstractSet[int]],
    *,
    Cs: Sequence[float] = C_GRID,
    tol: float = PATH_TOLERANCE,
    device: str | None = None,
) -> list[NDArray[np.float32]]:
    """Predict left-out domains by heads fitted to the other domains, for each C.

    Left-out samples have no influence on the fit. All cores are used, so one call at a time is
    enough.

    Parameters
    ----------
    samples : Samples
        With labels (n, n_labels), zeros and ones.
    n_labels : int
    left_out : sequence of set of int
        For each head, the domains to leave out: at least one, and not all.
    Cs : sequence of float
        Inverse regularisation strengths, as in scikit-learn.
    tol : float
        A fit ends when the norm of the gradient, relative to that at the rates of the labels, is
        below this.
    device : str, optional
        Ignored: these heads are always computed with NumPy.

    Returns
    -------
    list of array (n_Cs, n, n_labels)
        For each set the log-odds of its n samples, in their order in `samples`.

    Examples
    --------
    >>> features, domains = np.float32([[0], [1], [2], [3]] * 2), np.repeat([0, 1], 4)
    >>> labels = np.concatenate([features > 0.5, features > 1.5], axis=1).astype(float)
    >>> (first,) = left_out_labels(Samples(features, labels, domains), 2, [{0}])
    >>> (first[-1] > 0).astype(int).tolist()
    [[0, 0], [1, 0], [1, 1], [1, 1]]
    """
    check_numbers(samples, n_labels)
    check_Cs(Cs)
    masks = left_out_masks(samples, left_out)
    calls = [(samples, mask, Cs, tol) for mask in masks]
    return call_for_sets(_left_out_labels, calls, samples.features.size, on_cpu=True)


def fit_label_head(samples: Samples, n_labels: int, C: float) -> LinearHead:
    """Fit a linear head with a logistic regression for each label.

    A constant feature gets zero weight.

    Parameters
    ----------
    samples : Samples
        With labels (n, n_labels), zeros and ones.
    n_labels : int
    C : float
        Inverse regularisation strength, as in scikit-learn.
    """
    check_numbers(samples, n_labels)
    check_Cs([C])
    with blas_threads(samples.features.size):
        mean, std = mean_and_std(samples.features)
        features = standardised(samples.features, mean, std, "float64")
        ((weights, bias),) = _path(features, samples.labels, [C], TOLERANCE)
    weights /= np.where(std > 0, std, 1)
    return LinearHead(weights, bias - weights @ mean, C, "multilabel")


def _left_out_labels(
    samples: Samples, left_out: NDArray[np.bool_], Cs: Sequence[float], tol: float
) -> NDArray[np.float32]:
    training = samples.features[~left_out]
    mean, std = mean_and_std(training)
    solutions = _path(standardised(training, mean, std), samples.labels[~left_out], Cs, tol)
    others = standardised(samples.features[left_out], mean, std)
    return np.stack([others @ weights.T + bias for weights, bias in solutions]).astype(np.float32)


def _path(
    features: Matrix, labels: Floats, Cs: Sequence[float], tol: float
) -> list[tuple[Floats, Floats]]:
    """Weights (labels, d) and biases (labels,) for each C, in the order given.

    Each solution is the start of that for the next larger C.
    """
    n, d = features.shape
    rates = logit((labels.sum(axis=0) + 0.5) / (n + 1))
    varied = np.flatnonzero((labels != labels[0]).any(axis=0))
    targets = np.ascontiguousarray(labels[:, varied].T, features.dtype)
    wide = n < d
    form: Form = Dual(features @ features.T) if wide else Primal(features)
    solution = np.zeros((len(varied), form.size + 1), features.dtype)
    solution[:, -1] = rates[varied]
    outputs = np.broadcast_to(solution[:, -1:], targets.shape)
    residuals = sigmoid_residuals(outputs, targets, targets)
    tol = tol * gradient_norm(form, residuals, solution)
    result: list[tuple[Floats, Floats]] = [(np.zeros((labels.shape[1], d)), rates.copy())] * len(Cs)
    if not len(varied):
        return result
    for at in np.argsort(Cs):
        solution = minimise(form, targets, Cs[at], solution, tol, residuals_of=sigmoid_residuals)
        weights, bias = np.zeros((labels.shape[1], d)), rates.copy()
        weights[varied] = solution[:, :-1] @ features if wide else solution[:, :-1]
        bias[varied] = solution[:, -1]
        result[at] = weights, bias
    return result
