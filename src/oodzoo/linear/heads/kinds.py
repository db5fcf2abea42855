r"""Heads for each kind of task: ridge regressions of numbers, a logistic regression of each label.

.. math:: W = (Z^\top Z + \rho u I)^{-1} Z^\top (Y - \bar y), \qquad \hat y = W^\top z + \bar y,

with labels Y with mean :math:`\bar y`; the features Z, their scale and :math:`u` are as in
:mod:`oodzoo.linear.heads.ridge`. A prediction is not bounded as a probability is, so the scale
matters.

The predictions of an output do not depend on the others, and follow its units: those of
:math:`aY + b` are :math:`a \hat y + b`.

.. math:: \min_{w,b}\; \sum_i \ln\bigl(1 + e^{-s_i (w^\top z_i + b)}\bigr)
   + \frac{1}{2C}\lVert w\rVert^2, \qquad s_i = \pm 1,

with features standardised over exactly the training samples: scikit-learn's `LogisticRegression`.
The outputs are log-odds :math:`w^\top z + b`. The labels share the C, and are optimised together.

A label that all training samples have, or none, has nothing to learn from. Its log-odds are those
of its smoothed rate, :math:`(k + 1/2) / (n + 1)` for k of n samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from oodzoo.core.backend import Array, Backend, backend
from oodzoo.core.errors import InputError
from oodzoo.core.threads import blas_threads
from oodzoo.extraction.columns import Samples
from oodzoo.linear.heads.linear import TOLERANCE, LinearHead, stratified_folds
from oodzoo.linear.heads.logistic import (
    Dual,
    Form,
    Matrix,
    Primal,
    gradient_norm,
    minimise,
    sigmoid_residuals,
)
from oodzoo.linear.heads.paths import (
    C_GRID,
    PATH_TOLERANCE,
    Split,
    SplitOutputs,
    call_for_sets,
    check_Cs,
    left_out_masks,
    predict_splits_by,
)
from oodzoo.linear.heads.ridge import (
    RIDGES,
    SETTINGS,
    fit_ridge_head,
    left_out_ridges,
    predict_ridge_splits,
    solve_ridges,
    solve_split,
)
from oodzoo.linear.heads.samples import (
    Groups,
    check_numbers,
    group_numbers,
    mean_and_std,
    standardised,
)
from oodzoo.tasks import CLASSIFICATION, Task
from oodzoo.tasks.multilabel import Multilabel
from oodzoo.tasks.regression import Regression


def left_out_regressions(
    samples: Samples,
    n_outputs: int,
    left_out: Sequence[AbstractSet[int]],
    *,
    device: str | None = None,
) -> list[NDArray[np.float64]]:
    """Predict held-out domains by ridge regressions of the other domains, for each of `RIDGES`.

    Held-out samples have no influence on the fit. All cores are used, so one call at a time is
    enough.

    Parameters
    ----------
    samples : Samples
        With labels (n, n_outputs).
    n_outputs : int
    left_out : sequence of set of int
        For each head, the domains to leave out: at least one, and not all.
    device : str, optional
        Compute with NumPy if None, else with PyTorch on this device.

    Returns
    -------
    list of array (n_ridges, n, n_outputs)
        For each set the predictions of its n samples, in their order in `samples`.

    Examples
    --------
    >>> features, domains = np.float32([[0], [1], [2], [0], [1], [2]]), np.repeat([0, 1], 3)
    >>> samples = Samples(features, 10.0 * features, domains)
    >>> (first,) = left_out_regressions(samples, 1, [{0}])
    >>> first[0].round(1).tolist()
    [[0.0], [10.0], [20.0]]
    """
    check_numbers(samples, n_outputs)
    masks = left_out_masks(samples, left_out)
    on = backend(device)
    features = on.asarray(samples.features)
    calls = [(features, samples.labels, mask, on) for mask in masks]
    return call_for_sets(_left_out_regressions, calls, samples.features.size, on_cpu=on.is_numpy)


def predict_regression_splits(
    samples: Samples, n_outputs: int, splits: Sequence[Split], *, device: str | None = None
) -> list[SplitOutputs]:
    """Predict splits by ridge regressions, with each of `RIDGES`."""
    check_numbers(samples, n_outputs)
    on = backend(device)
    features = on.asarray(samples.features)
    calls = [(features, samples.labels[each.training], each, RIDGES, on) for each in splits]
    return call_for_sets(solve_split, calls, samples.features.size, on_cpu=on.is_numpy)


def fit_regression_head(samples: Samples, n_outputs: int, ridge: float) -> LinearHead:
    """Fit a linear head by ridge regression of numbers.

    A constant feature gets zero weight. The `C` of the head is the inverse of the penalty, which is
    the ridge times the mean squared norm of a standardised sample.

    Parameters
    ----------
    samples : Samples
        With labels (n, n_outputs).
    n_outputs : int
    ridge : float

    Examples
    --------
    >>> features = np.float32([[0], [1], [2], [3]])
    >>> samples = Samples(features, 2.0 * features + 1, np.zeros(4, int))
    >>> fit_regression_head(samples, 1, 1e-6).values(np.float32([[4]])).round(2).tolist()
    [[9.0]]
    """
    check_numbers(samples, n_outputs)
    if not (math.isfinite(ridge) and ridge > 0):
        raise InputError(f"the ridge must be a number above 0, got {ridge!r}")
    with blas_threads(samples.features.size):
        fit = solve_ridges(samples.features, samples.labels, [ridge], backend())
    weights = fit.weights[0].T / np.where(fit.std > 0, fit.std, 1)
    return LinearHead(weights, fit.prior - weights @ fit.mean, 1 / (ridge * fit.unit), Regression())


def _left_out_regressions(
    features: Array,
    labels: NDArray[np.float64],
    left_out: NDArray[np.bool_],
    on: Backend,
) -> NDArray[np.float64]:
    rows = features[on.asarray(~left_out)]
    fit = solve_ridges(rows, labels[~left_out], RIDGES, on)
    return fit.outputs(features[on.asarray(left_out)])


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
    """Predict held-out domains by heads fitted to the other domains, for each C.

    Held-out samples have no influence on the fit. All cores are used, so one call at a time is
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
    return LinearHead(weights, bias - weights @ mean, C, Multilabel())


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


Outputs = Any
"""Outputs (settings, n, C) of a head with each setting, see :class:`oodzoo.tasks.Task`.

An array, or :class:`~oodzoo.linear.heads.ridge.RidgeOutputs`.
"""


@dataclass(frozen=True)
class HeadPath:
    """A kind of head, with all settings of its regularisation.

    Attributes
    ----------
    predict : callable
        Predicts splits, as :func:`~oodzoo.linear.heads.ridge.predict_ridge_splits`.
    left_out : callable
        Predicts held-out domains, as :func:`~oodzoo.linear.heads.ridge.left_out_ridges`.
    fit : callable
        Fits a head with one setting.
    """

    predict: Callable[..., Iterable[SplitOutputs]]
    left_out: Callable[..., list[Outputs]]
    fit: Callable[[Samples, int, int], LinearHead]


RIDGE = HeadPath(
    predict_ridge_splits,
    left_out_ridges,
    lambda samples, n, at: fit_ridge_head(samples, n, *SETTINGS[at]),
)
REGRESSION = HeadPath(
    predict_regression_splits,
    left_out_regressions,
    lambda samples, n, at: fit_regression_head(samples, n, RIDGES[at]),
)
LABELS = HeadPath(
    partial(predict_splits_by, left_out_labels),
    left_out_labels,
    lambda samples, n, at: fit_label_head(samples, n, C_GRID[at]),
)

PATHS = {"softmax": RIDGE, "identity": REGRESSION, "sigmoid": LABELS}
"""The heads of a task by its link."""


def best_setting(
    left_out: Sequence[Outputs],
    within: Sequence[Outputs] | None,
    labels: Sequence[NDArray[Any]],
    task: Task = CLASSIFICATION,
    share: float = 0.5,
) -> int:
    """Position of the setting with the highest quality; all domains weigh alike.

    Parameters
    ----------
    left_out, within : sequence of array (settings, n, C)
        Outputs for the samples of each domain: by heads of the other domains, and by heads of the
        other folds of all domains. None if there are no folds.
    labels : sequence of array
    task : Task
    share : float
        Weight of the held-out domains; the rest is that of the folds.
    """
    return best_settings(left_out, within, labels, task, [share])[0]


def best_settings(
    left_out: Sequence[Outputs],
    within: Sequence[Outputs] | None,
    labels: Sequence[NDArray[Any]],
    task: Task,
    shares: Sequence[float],
) -> list[int]:
    """Position of the best setting for each share, as :func:`best_setting`."""
    quality = task.quality
    outside = inside = quality(left_out, labels).mean(axis=0)
    if within is not None:
        inside = quality(within, labels).mean(axis=0)
    return [int((share * outside + (1 - share) * inside).argmax()) for share in shares]


def folds_within(
    task: Task,
    labels: NDArray[Any],
    domains: NDArray[np.int64],
    groups: Groups | None = None,
) -> NDArray[np.int64]:
    """Assign samples to five folds with about equal shares of each domain and class.

    Groups are kept whole. Numbers and labels have strata in place of classes. With few groups some
    folds have no samples.

    Examples
    --------
    >>> labels, domains = np.array([0, 0, 1, 1, 1, 1]), np.array([0, 0, 0, 1, 1, 1])
    >>> folds_within(CLASSIFICATION, labels, domains).tolist()
    [0, 1, 2, 3, 4, 0]
    """
    of_labels = task.strata(labels)
    cells = domains * (int(of_labels.max()) + 1) + of_labels
    return stratified_folds(cells, group_numbers(groups, len(labels)))


def split_without(
    task: Task,
    samples: Samples,
    groups: Groups | None = None,
    test: int | None = None,
    kept: NDArray[np.bool_] | None = None,
) -> Split:
    """Train on all domains but a held-out domain: leave each out, and cross-validate within them.

    `kept` are the samples that may be used. The folds depend on the training samples only.
    """
    training = np.ones(len(samples.domains), np.bool_) if kept is None else kept
    if test is not None:
        training = training & (samples.domains != test)
    rows = np.flatnonzero(training)
    some = None if groups is None else [groups[row] for row in rows.tolist()]
    folds = np.full(len(samples.domains), -1)
    folds[rows] = folds_within(task, samples.labels[rows], samples.domains[rows], some)
    several = [each for each in (samples.domains, folds) if len(np.unique(each[rows])) > 1]
    return Split(training, tuple(several))


class ByDomain(NamedTuple):
    """Outputs (settings, n, C) for the training samples of each domain, and their labels.

    `left_out` and `within` are as in :func:`best_setting`; with one domain, `left_out` are those of
    the folds, and with one sample, there are none.
    """

    left_out: list[Outputs]
    within: list[Outputs] | None
    labels: list[NDArray[Any]]

    @classmethod
    def of(cls, samples: Samples, split: Split, outputs: SplitOutputs) -> ByDomain:
        domains, labels = samples.domains[split.training], samples.labels[split.training]
        rows = [domains == number for number in np.unique(domains)]
        found = [[each[:, of_domain] for of_domain in rows] for each in outputs.partitions]
        known = [labels[of_domain] for of_domain in rows]
        return cls(found[0] if found else [], found[1] if len(found) > 1 else None, known)

    def best_settings(self, task: Task, shares: Sequence[float]) -> list[int]:
        """Position of the best setting for each share; 0 if there are no predictions."""
        if not self.left_out:
            return [0] * len(shares)
        return best_settings(self.left_out, self.within, self.labels, task, shares)

    def best_setting(self, task: Task) -> int:
        """Position of the best setting for the share ½."""
        return self.best_settings(task, [0.5])[0]


def fit_head_of(
    task: Task, samples: Samples, n_outputs: int, *, groups: Groups | None = None
) -> LinearHead:
    """Fit a head for a task to samples of one or more domains.

    The regularisation is chosen by held-out domains and cross-validation within the domains.

    Parameters
    ----------
    task : Task
    samples : Samples
        With classes (n,), or labels (n, n_outputs).
    n_outputs : int
        Number of classes, numbers or labels.
    groups : sequence, optional
        Group of each sample (a patient, a video), None for a sample without one.

    Examples
    --------
    >>> x = np.float32([[0], [1], [2], [3], [0], [1], [2], [4]])
    >>> head = fit_head_of(Regression(), Samples(x, 2.0 * x, np.repeat([0, 1], 4)), 1)
    >>> head.values(np.float32([[5]])).round(1).tolist()
    [[10.0]]
    """
    return fit_with(task, samples, n_outputs, chosen_setting(task, samples, n_outputs, groups))


def chosen_setting(
    task: Task, samples: Samples, n_outputs: int, groups: Groups | None = None
) -> int:
    """Position of the setting that :func:`fit_head_of` chooses."""
    split = split_without(task, samples, groups)
    (outputs,) = PATHS[task.link].predict(samples, n_outputs, [split])
    return ByDomain.of(samples, split, outputs).best_setting(task)


def fit_with(task: Task, samples: Samples, n_outputs: int, setting: int) -> LinearHead:
    """Fit a head for a task with a setting."""
    return replace(PATHS[task.link].fit(samples, n_outputs, setting), task=task)


def left_out_metrics(
    task: Task, samples: Samples, n_outputs: int, groups: Groups | None = None
) -> list[float]:
    """Compute the main metric on each domain, in order, of a head fitted to the other domains.

    All domains together choose the regularisation.
    """
    split = split_without(task, samples, groups)
    (outputs,) = PATHS[task.link].predict(samples, n_outputs, [split])
    found = ByDomain.of(samples, split, outputs)
    setting = found.best_setting(task)
    return [
        task.score(each[setting], y) for each, y in zip(found.left_out, found.labels, strict=True)
    ]
