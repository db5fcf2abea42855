r"""Ridge regressions of the classes as linear heads, and their predictions of held-out domains.

.. math:: W = (Z^\top Z + \rho u I)^{-1} Z^\top (Y - \bar y), \qquad
   p(\cdot\mid z) = \operatorname{softmax}\bigl(t\,(W^\top z + \bar y)\bigr),

with one-hot labels Y with mean :math:`\bar y`, and :math:`u` the mean squared norm of a row of Z.
The ridge :math:`\rho` is thus relative to the scale of the features. The outputs of the regression
are multiplied by the temperature t: the larger it is, the more certain are the probabilities. The
predicted class does not depend on it.

The features Z are centred and divided by :math:`\sqrt{s_j^2 + \overline{s^2}}`, where
:math:`s_j` is the standard deviation of feature j over exactly the training samples, and
:math:`\overline{s^2}` the mean of its square over all features. A feature that hardly varies in the
training domains may vary much in another one: divided by its own standard deviation alone, it would
decide the prediction.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import product
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax
from xxhash import xxh3_128

from oodzoo.core.backend import Array, Backend, backend, backend_of, to_numpy
from oodzoo.core.errors import InputError
from oodzoo.core.threads import blas_threads
from oodzoo.extraction.columns import Samples
from oodzoo.linear.heads.linear import LinearHead
from oodzoo.linear.heads.paths import (
    Split,
    SplitOutputs,
    call_for_sets,
    iterate_for_sets,
    left_out_masks,
    one_hot,
)
from oodzoo.linear.heads.samples import (
    check_samples,
    mean_and_std,
    standardised,
)
from oodzoo.tasks.classification import require_two_classes

RIDGES = tuple(10.0**power for power in range(-3, 3))
TEMPERATURES = tuple(2.0**power for power in range(5))
SETTINGS = tuple(product(RIDGES, TEMPERATURES))
"""All pairs of a ridge and a temperature; the temperature changes fastest."""


def left_out_ridges(
    samples: Samples,
    n_classes: int,
    left_out: Sequence[AbstractSet[int]],
    *,
    device: str | None = None,
) -> list[RidgeOutputs]:
    """Predict held-out domains by ridge heads fitted to the other domains, for each of `SETTINGS`.

    Held-out samples have no influence on the fit. All cores are used, so one call at a time is
    enough.

    Parameters
    ----------
    samples : Samples
    n_classes : int
    left_out : sequence of set of int
        For each head, the domains to leave out: at least one, and not all.
    device : str, optional
        Compute with NumPy if None, else with PyTorch on this device.

    Returns
    -------
    list of RidgeOutputs (n_settings, n, n_classes)
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
    masks = left_out_masks(samples, left_out)
    on = backend(device)
    features = on.asarray(samples.features)
    calls = [(features, samples.labels, mask, n_classes, on) for mask in masks]
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
        One of `SETTINGS`, or another pair of positive numbers.

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
    if not all(math.isfinite(number) and number > 0 for number in (ridge, temperature)):
        raise InputError(
            f"ridge and temperature must be numbers above 0, got {ridge!r} and {temperature!r}"
        )
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
        outputs: NDArray[np.float64] = to_numpy(_product(Z, self.weights) + self.prior)
        return outputs


def _product(features: Array, each: Array) -> Array:
    """Products (ridges, n, outputs) with each (ridges, d, outputs), in one pass of the features."""
    xp, (ridges, d, outputs) = backend_of(features).xp, each.shape
    together = xp.reshape(xp.permute_dims(each, (1, 0, 2)), (d, ridges * outputs))
    found = xp.reshape(features @ together, (len(features), ridges, outputs))
    return xp.permute_dims(found, (1, 0, 2))


_BLOCK = 2**15
"""Number of outputs that are exponentiated at a time."""


class RidgeOutputs:
    """Log-probabilities (n_settings, n, n_classes) by ridge heads, with each of `SETTINGS`.

    They are computed when they are read: all of one setting, ``[at]``, or of all settings those of
    one class a sample, ``[:, rows, classes]``. Of the samples, ``[:, rows]`` are a part.

    Parameters
    ----------
    outputs : array (n_ridges, n, present)
        Of the regressions; -inf for a class that cannot be predicted.
    present : array
        The classes that have outputs.
    n_classes : int
    rows : array, optional
        The samples; all if None.
    """

    def __init__(
        self,
        outputs: NDArray[np.float64],
        present: NDArray[np.int64],
        n_classes: int,
        rows: NDArray[np.int64] | None = None,
    ) -> None:
        self._outputs, self._present = outputs, present
        self._rows = np.arange(outputs.shape[1]) if rows is None else rows
        self.shape = (len(SETTINGS), len(self._rows), n_classes)
        self.dtype = np.dtype(np.float32)

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.stack([self[at] for at in range(len(self))]).astype(dtype or self.dtype)

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, tuple):
            return self._of_setting(int(key))
        some = RidgeOutputs(self._outputs, self._present, self.shape[2], self._rows[key[1]])
        return some if len(key) == 2 else some._of_classes(key[2])

    def _of_setting(self, at: int) -> NDArray[np.float32]:
        ridge, temperature = SETTINGS[at]
        result = np.full(self.shape[1:], -np.inf, np.float32)
        for part, outputs in self._blocks(RIDGES.index(ridge)):
            result[part, self._present] = log_softmax(temperature * outputs, axis=1)
        return result

    def _of_classes(self, classes: Any) -> NDArray[np.float32]:
        classes = np.broadcast_to(classes, self._rows.shape)
        columns = np.searchsorted(self._present, classes).clip(max=len(self._present) - 1)
        known = self._present[columns] == classes
        result = np.full(self.shape[:2], -np.inf, np.float32)
        for at in range(0, len(SETTINGS), len(TEMPERATURES)):
            for part, outputs in self._blocks(at // len(TEMPERATURES)):
                outputs -= outputs.max(axis=1, keepdims=True)
                chosen = outputs[np.arange(len(outputs)), columns[part]]
                powers = np.exp(outputs, out=outputs)
                for number, temperature in enumerate(TEMPERATURES):
                    if number:  # each temperature is twice the one before
                        np.square(powers, out=powers)
                    logs = temperature * chosen - np.log(powers.sum(axis=1))
                    result[at + number, part] = np.where(known[part], logs, -np.inf)
        return result

    def _blocks(self, ridge: int) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """Copies of the outputs for a ridge of a few samples: they stay in the cache of a core."""
        step = max(1, _BLOCK // len(self._present))
        for start in range(0, len(self._rows), step):
            part = slice(start, start + step)
            yield part, self._outputs[ridge][self._rows[part]]


class _Fits:
    """The last solutions for `RIDGES` on a CPU, by the content of features and targets.

    An evaluation asks for many twice: without a domain and then another, or the other way round.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._known: dict[bytes, Ridges] = {}
        self._lock = Lock()

    def solve(self, features: Array, targets: NDArray[np.floating], on: Backend) -> Ridges:
        if not on.is_numpy:
            return solve_ridges(features, targets, RIDGES, on)
        what = features.shape, features.dtype, targets.shape, targets.dtype
        digest = xxh3_128(repr(what).encode())
        for array in (features, targets):
            digest.update(np.ascontiguousarray(array).data)
        key = digest.digest()
        with self._lock:
            fit = self._known.pop(key, None)
        if fit is None:
            fit = solve_ridges(features, targets, RIDGES, on)
        with self._lock:
            self._known[key] = fit  # as the last one
            while sum(each.weights.nbytes for each in self._known.values()) > self._most:
                del self._known[next(iter(self._known))]
        return fit


_FITS = _Fits(2**27)


def solve_ridges(
    features: Array,
    targets: NDArray[np.floating],
    ridges: Sequence[float],
    on: Backend,
) -> Ridges:
    """Solve for each ridge, in the smaller of both forms: of the features, or of the samples.

    `targets` are (n, outputs).
    """
    mean, std = _mean_and_scale(features)
    Z = standardised(features, mean, std, "float64")
    targets = on.float64(targets)
    prior = on.xp.mean(targets, axis=0)
    dual = len(Z) < Z.shape[1]
    gram = on.gram(Z.T if dual else Z)
    right = targets - prior if dual else Z.T @ (targets - prior)
    unit = float(on.xp.linalg.trace(gram)) / len(Z) or 1.0  # constant features have no scale
    weights = on.xp.stack([on.solve_positive(gram, ridge * unit, right) for ridge in ridges])
    return Ridges(mean, std, _product(Z.T, weights) if dual else weights, prior, unit)


def _mean_and_scale(features: Array) -> tuple[Array, Array]:
    mean, std = mean_and_std(features)
    xp = backend_of(features).xp
    return mean, xp.sqrt(std**2 + xp.mean(std**2))


def solve_split(
    features: Array,
    targets: NDArray[np.floating],
    split: Split,
    ridges: Sequence[float],
    on: Backend,
) -> SplitOutputs:
    r"""Predict the folds of a split by ridge regressions of the other folds, for each ridge.

    The scale of the features and the penalty are those of all training samples; the mean of the
    targets and the weights are those of the other folds. With fewer samples than features, one
    inverse serves all folds: with the matrix M that takes the targets to the residuals of all
    samples, the residuals of a fold S without it are

    .. math:: M_{SS}^{-1} (M Y)_S.

    Else the products of the features of a fold are subtracted from those of all samples.

    Parameters
    ----------
    features : array (n, d)
    targets : array (n, outputs)
        Those of the training samples only.
    split : Split
    ridges : sequence of float
    on : Backend

    Examples
    --------
    >>> x = np.float32([[0], [1], [2], [3], [4]])
    >>> found = solve_split(x, 2.0 * x, Split.of(np.arange(5)), [1e-9], backend())
    >>> found.partitions[0].round(3)[0].T.tolist()
    [[0.0, 2.0, 4.0, 6.0, 8.0]]
    """
    training = on.asarray(split.training)
    rows, others = features[training], features[~training]
    scale = _mean_and_scale(rows)
    Z, rest = (standardised(each, *scale, "float64") for each in (rows, others))
    folds = [each[split.training] for each in split.partitions]
    parts = [
        (number, np.flatnonzero(each == fold))
        for number, each in enumerate(folds)
        for fold in np.unique(each)
    ]
    # an inverse for each ridge, or a Cholesky factor, a third of the work, for each fold, too
    dual = len(Z) ** 3 < (len(parts) + 1) / 3 * Z.shape[1] ** 3
    predict = _predict_dual if dual else _predict_primal
    outputs = [np.empty((len(ridges), *targets.shape)) for _ in folds]
    unseen = np.empty((len(ridges), len(others), targets.shape[1]))
    for at, part, found in predict(Z, on.float64(targets), rest, parts, ridges, on):
        if part is None:
            unseen[at] = to_numpy(found)
        else:
            outputs[part[0]][at, part[1]] = to_numpy(found)
    return SplitOutputs(list(outputs), unseen)


_Part = tuple[int, NDArray[np.int64]]
"""The number of a partition, and the samples of one of its folds."""

_Predicted = Iterator[tuple[int, _Part | None, Array]]
"""The number of a ridge, a fold, or None for the samples that are not used, and their outputs."""


def _predict_dual(
    Z: Array, Y: Array, rest: Array, parts: Sequence[_Part], ridges: Sequence[float], on: Backend
) -> _Predicted:
    xp, n = on.xp, len(Z)
    gram, prior = on.gram(Z.T), on.xp.mean(Y, axis=0)
    unit = float(xp.linalg.trace(gram)) / n or 1.0
    solutions = []
    for at, ridge in enumerate(ridges):
        inverse, solution = on.inverse_positive(gram, ridge * unit, Y - prior)
        solutions.append(solution)
        for part in parts:
            rows = on.asarray(part[1])
            block = ridge * unit * inverse[rows[:, None], rows] - 1 / n
            residuals = on.solve_positive(block.T, 0.0, ridge * unit * solution[rows])
            yield at, part, Y[rows] - residuals
    if len(rest):
        weights = _product(Z.T, xp.stack(solutions))
        for at, outputs in enumerate(_product(rest, weights)):
            yield at, None, outputs + prior


def _predict_primal(
    Z: Array, Y: Array, rest: Array, parts: Sequence[_Part], ridges: Sequence[float], on: Backend
) -> _Predicted:
    xp, gram, total = on.xp, on.gram(Z), on.xp.sum(Y, axis=0)
    unit = float(xp.linalg.trace(gram)) / len(Z) or 1.0
    products, prior = Z.T @ Y, total / len(Z)
    if len(rest):
        weights = [on.solve_positive(gram, ridge * unit, products) for ridge in ridges]
        for at, outputs in enumerate(_product(rest, xp.stack(weights))):
            yield at, None, outputs + prior
    for part in parts:
        rows = on.asarray(part[1])
        left_out, labels, n = Z[rows], Y[rows], len(Z) - len(part[1])
        mean = -xp.sum(left_out, axis=0) / n  # of the others: that of all samples is 0
        prior = (total - xp.sum(labels, axis=0)) / n
        others = gram - on.gram(left_out)
        others -= n * mean[:, None] * mean
        right = products - left_out.T @ labels - n * mean[:, None] * prior
        weights = [on.solve_positive(others, ridge * unit, right) for ridge in ridges]
        for at, outputs in enumerate(_product(left_out - mean, xp.stack(weights))):
            yield at, part, outputs + prior


def predict_ridge_splits(
    samples: Samples, n_classes: int, splits: Sequence[Split], *, device: str | None = None
) -> Iterator[SplitOutputs]:
    """Predict splits by ridge heads, with each of `SETTINGS`: one after the other, to save memory.

    Outputs are log-probabilities, as in :func:`left_out_ridges`.
    """
    check_samples(samples, n_classes)
    on = backend(device)
    features = on.asarray(samples.features)
    calls = [(features, samples.labels, split, n_classes, on) for split in splits]
    size = samples.features.size
    return iterate_for_sets(_predict_split, calls, size, on_cpu=on.is_numpy)


def _predict_split(
    features: Array, labels: NDArray[np.int64], split: Split, n_classes: int, on: Backend
) -> SplitOutputs:
    labels = labels[split.training]
    hot, present = one_hot(labels)
    found = solve_split(features, hot.T, split, RIDGES, on)
    for outputs, partition in zip(found.partitions, split.partitions, strict=True):
        folds = partition[split.training]
        for fold in np.unique(folds):
            missing = np.flatnonzero(~np.isin(present, labels[folds != fold]))
            outputs[:, np.flatnonzero(folds == fold)[:, None], missing] = -np.inf
    parts = [RidgeOutputs(each, present, n_classes) for each in found.partitions]
    return SplitOutputs(parts, RidgeOutputs(found.rest, present, n_classes))


def _left_out_ridges(
    features: Array,
    labels: NDArray[np.int64],
    left_out: NDArray[np.bool_],
    n_classes: int,
    on: Backend,
) -> RidgeOutputs:
    """Log-probabilities (n_settings, n, n_classes) of held-out samples."""
    hot, present = one_hot(labels[~left_out])
    fit = _FITS.solve(features[on.asarray(~left_out)], hot.T, on)
    outputs = fit.outputs(features[on.asarray(left_out)])
    return RidgeOutputs(outputs, present, n_classes)
