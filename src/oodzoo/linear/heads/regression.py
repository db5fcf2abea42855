r"""Ridge regressions of numbers as linear heads, and their predictions of left-out domains.

.. math:: W = (Z^\top Z + \rho u I)^{-1} Z^\top (Y - \bar y), \qquad \hat y = W^\top z + \bar y,

with labels Y with mean :math:`\bar y`; the features Z, their scale and :math:`u` are as in
:mod:`oodzoo.linear.heads.ridge`. A prediction is not bounded as a probability is, so the scale
matters.

The predictions of an output do not depend on the others, and follow its units: those of
:math:`aY + b` are :math:`a \hat y + b`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.backend import Array, Backend, backend
from oodzoo.core.errors import InputError
from oodzoo.core.threads import blas_threads
from oodzoo.extraction.columns import Samples
from oodzoo.linear.heads.left_out import Split, SplitOutputs, call_for_sets, left_out_masks
from oodzoo.linear.heads.linear import LinearHead
from oodzoo.linear.heads.ridge import RIDGES, solve_ridges, solve_split
from oodzoo.linear.heads.samples import check_numbers


def left_out_regressions(
    samples: Samples,
    n_outputs: int,
    left_out: Sequence[AbstractSet[int]],
    *,
    device: str | None = None,
) -> list[NDArray[np.float64]]:
    """Predict left-out domains by ridge regressions of the other domains, for each of `RIDGES`.

    Left-out samples have no influence on the fit. All cores are used, so one call at a time is
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
    return LinearHead(weights, fit.prior - weights @ fit.mean, 1 / (ridge * fit.unit), "regression")


def _left_out_regressions(
    features: Array,
    labels: NDArray[np.float64],
    left_out: NDArray[np.bool_],
    on: Backend,
) -> NDArray[np.float64]:
    rows = features[on.asarray(~left_out)]
    fit = solve_ridges(rows, labels[~left_out], RIDGES, on)
    return fit.outputs(features[on.asarray(left_out)])
