r"""Ridge regressions of the classes as linear heads, and their predictions of left-out domains.

.. math:: W = (Z^\top Z + \rho u I)^{-1} Z^\top (Y - \bar y), \qquad
   p(\cdot\mid z) = \operatorname{softmax}\bigl(t\,(W^\top z + \bar y)\bigr),

with features Z standardised over exactly the training samples, one-hot labels Y with mean
:math:`\bar y`, and :math:`u` the mean squared norm of a row of Z. The ridge :math:`\rho` is thus
relative to the scale of the features. The outputs of the regression are multiplied by the
temperature t: the larger it is, the more certain are the probabilities. The predicted class does
not depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from oodzoo._threads import blas_threads
from oodzoo.backend import Array, Backend, backend, to_numpy
from oodzoo.errors import InputError
from oodzoo.features.columns import Samples
from oodzoo.heads.classes import require_two_classes
from oodzoo.heads.left_out import call_for_sets, left_out_masks
from oodzoo.heads.linear import LinearHead
from oodzoo.heads.paths import one_hot
from oodzoo.heads.samples import check_samples, mean_and_std, standardised

RIDGES = tuple(10.0**power for power in (-2.5, -1.5, -0.5, 0.5, 1.5, 2.5))
TEMPERATURES = (2.0, 4.0, 8.0, 16.0, 32.0)
SETTINGS = tuple(product(RIDGES, TEMPERATURES))
"""All pairs of a ridge and a temperature; the temperature changes fastest."""


def left_out_ridges(
    samples: Samples,
    n_classes: int,
    left_out: Sequence[AbstractSet[int]],
    *,
    settings: Sequence[tuple[float, float]] = SETTINGS,
    device: str | None = None,
) -> list[NDArray[np.float32]]:
    """Predict left-out domains by ridge heads fitted to the other domains, for each setting.

    Left-out samples have no influence on the fit. All cores are used, so one call at a time is
    enough.

    Parameters
    ----------
    samples : Samples
    n_classes : int
    left_out : sequence of set of int
        For each head, the domains to leave out: at least one, and not all.
    settings : sequence of (float, float)
        Pairs of a ridge and a temperature. Each ridge is solved once.
    device : str, optional
        Compute with NumPy if None, else with PyTorch on this device.

    Returns
    -------
    list of array (n_settings, n, n_classes)
        For each set the log-probabilities of its n samples, in their order in `samples`. A class
        without training samples has log-probability -inf.

    Examples
    --------
    >>> labels, domains = np.array([0, 0, 1, 1] * 2), np.repeat([0, 1], 4)
    >>> features = np.float32([[0], [1], [2], [3], [0], [1], [2], [4]])
    >>> samples = Samples(features, labels, domains)
    >>> first, second = left_out_ridges(samples, 2, [{0}, {1}])
    >>> first.shape
    (30, 4, 2)
    >>> first[0].argmax(axis=1).tolist()
    [0, 0, 1, 1]
    """
    check_samples(samples, n_classes)
    _check_settings(settings)
    masks = left_out_masks(samples, left_out)
    on = backend(device)
    features = on.asarray(samples.features)
    calls = [(features, samples.labels, mask, n_classes, settings, on) for mask in masks]
    return call_for_sets(_left_out_ridges, calls, samples.features.size, on_cpu=on.is_numpy)


def fit_ridge_head(
    samples: Samples, n_classes: int, ridge: float, temperature: float
) -> LinearHead:
    """Fit a linear head by ridge regression of the classes.

    A constant feature gets zero weight. A class without samples is never predicted. The `C` of the
    head is the inverse of the penalty, which is the ridge times the mean squared norm of a
    standardised sample.

    Parameters
    ----------
    samples : Samples
    n_classes : int
    ridge, temperature : float
        One pair of the `settings` of :func:`left_out_ridges`.

    Examples
    --------
    >>> labels, domains = np.array([0, 0, 1, 1]), np.zeros(4, int)
    >>> samples = Samples(np.float32([[0], [1], [2], [3]]), labels, domains)
    >>> head = fit_ridge_head(samples, 2, ridge=0.1, temperature=8.0)
    >>> head.logits(np.float32([[0.5], [2.5]])).argmax(axis=1).tolist()
    [0, 1]
    """
    check_samples(samples, n_classes)
    require_two_classes(samples.labels)
    _check_settings([(ridge, temperature)])
    with blas_threads(samples.features.size):
        hot, present = one_hot(samples.labels)
        fit = solve_ridges(samples.features, hot.T, [ridge], backend())
    weights, bias = np.zeros((n_classes, len(fit.std))), np.full(n_classes, -np.inf)
    weights[present] = temperature * fit.weights[0].T / np.where(fit.std > 0, fit.std, 1)
    bias[present] = temperature * fit.prior - weights[present] @ fit.mean
    return LinearHead(weights, bias, 1 / (ridge * fit.unit))


class Ridges(NamedTuple):
    """Solutions for several ridges, for features standardised by `mean` and `std`."""

    mean: Array
    std: Array
    weights: Array
    """(n_ridges, d, outputs)"""
    prior: Array
    """Mean of the targets, (outputs,)."""
    unit: float

    def outputs(self, features: Array) -> NDArray[np.float64]:
        """Outputs (n_ridges, n, outputs) of features."""
        Z = standardised(features, self.mean, self.std, "float64")
        outputs: NDArray[np.float64] = to_numpy(Z @ self.weights + self.prior)
        return outputs


def solve_ridges(
    features: Array,
    targets: NDArray[np.floating],
    ridges: Sequence[float],
    on: Backend,
    *,
    blended: bool = False,
) -> Ridges:
    """Solve for each ridge, in the smaller of both forms: of the features, or of the samples.

    `targets` are (n, outputs). `blended` divides each feature by the root of the sum of its own
    variance and the mean variance of all features.
    """
    mean, std = mean_and_std(features)
    if blended:
        std = on.xp.sqrt(std**2 + on.xp.mean(std**2))
    Z = standardised(features, mean, std, "float64")
    targets = on.float64(targets)
    prior = on.xp.mean(targets, axis=0)
    dual = len(Z) < Z.shape[1]
    gram = on.gram(Z.T if dual else Z)
    right = targets - prior if dual else Z.T @ (targets - prior)
    unit = float(on.xp.linalg.trace(gram)) / len(Z) or 1.0  # constant features have no scale
    solutions = [on.solve_positive(gram, ridge * unit, right) for ridge in ridges]
    weights = on.xp.stack([Z.T @ each if dual else each for each in solutions])
    return Ridges(mean, std, weights, prior, unit)


def _left_out_ridges(
    features: Array,
    labels: NDArray[np.int64],
    left_out: NDArray[np.bool_],
    n_classes: int,
    settings: Sequence[tuple[float, float]],
    on: Backend,
) -> NDArray[np.float32]:
    """Log-probabilities (n_settings, n, n_classes) of left-out samples."""
    ridges = sorted({ridge for ridge, _ in settings})
    hot, present = one_hot(labels[~left_out])
    fit = solve_ridges(features[on.asarray(~left_out)], hot.T, ridges, on)
    outputs = fit.outputs(features[on.asarray(left_out)])
    result = np.full((len(settings), outputs.shape[1], n_classes), -np.inf, np.float32)
    for at, (ridge, temperature) in enumerate(settings):
        logits = temperature * outputs[ridges.index(ridge)]
        result[at][:, present] = log_softmax(logits, axis=1)
    return result


def _check_settings(settings: Sequence[tuple[float, float]]) -> None:
    """Raise an InputError unless there are pairs of positive numbers."""
    numbers = [number for pair in settings for number in pair]
    if not numbers or not all(math.isfinite(number) and number > 0 for number in numbers):
        raise InputError(
            "ridges and temperatures must be one or more pairs of numbers above 0, "
            f"got {list(settings)}"
        )
