"""Predictions of held-out samples by logistic regressions of the other ones, for many C.

For each set of domains to leave out, L2 logistic regressions with all values of C are fitted to the
samples of the other domains, and predict the left-out ones. Features are standardised over exactly
the training samples. The values of C form a path: each solution is the start of the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from joblib import cpu_count
from numpy.typing import NDArray
from scipy.special import log_softmax

from oodzoo.core.backend import Array, Backend, backend, to_numpy
from oodzoo.core.errors import InputError
from oodzoo.core.events import tracked
from oodzoo.core.threads import LARGE, Prefetch, blas_threads
from oodzoo.extraction.columns import Samples
from oodzoo.linear.heads.logistic import (
    MEMORY,
    Batch,
    Dual,
    Form,
    Matrix,
    Primal,
    gradient_at_zero,
    minimise,
    minimise_batch,
)
from oodzoo.linear.heads.samples import check_samples, mean_and_std, standardised

T = TypeVar("T")


def left_out_masks(
    samples: Samples, left_out: Sequence[AbstractSet[int]]
) -> list[NDArray[np.bool_]]:
    """For each set of domains, which samples are of one of them.

    Raises an InputError for a set without domains, with all of them, or with unknown ones.
    """
    domains = set(samples.domains.tolist())
    for some in left_out:
        if not some or not domains > some:
            raise InputError(
                "each set of left_out must have at least one, and not all, of the domains "
                f"{sorted(domains)}, got {sorted(some)}"
            )
    return [np.isin(samples.domains, list(some)) for some in left_out]


class Split(NamedTuple):
    """Samples to train heads on, and partitions of them into folds.

    Attributes
    ----------
    training : array (n,)
        Which samples are used; the others are only predicted, by a head of all of these.
    partitions : tuple of array (n,)
        The fold of each sample; those of the other samples do not matter.
    """

    training: NDArray[np.bool_]
    partitions: tuple[NDArray[np.int64], ...]

    @classmethod
    def of(cls, *partitions: NDArray[np.int64]) -> Split:
        """Train on all samples."""
        return cls(np.ones(len(partitions[0]), np.bool_), partitions)


class SplitOutputs(NamedTuple):
    """Outputs with each setting of a head for the samples of a split.

    Attributes
    ----------
    partitions : list of array (settings, n, C)
        For each partition those of the training samples, by heads of the other folds.
    rest : array (settings, n, C)
        Those of the other samples, by heads of all training samples.
    """

    partitions: list[Any]
    rest: Any


def predict_splits_by(
    left_out: Callable[..., list[NDArray[Any]]],
    samples: Samples,
    n_outputs: int,
    splits: Sequence[Split],
    *,
    device: str | None = None,
) -> list[SplitOutputs]:
    """Predict splits with a function that predicts held-out domains; a fit is made only once."""
    masks: dict[bytes, NDArray[np.bool_]] = {}

    def key(left: NDArray[np.bool_]) -> bytes:
        masks[left.tobytes()] = left
        return left.tobytes()

    wanted = []
    for training, partitions in splits:
        folds = [
            [
                (rows, key(rows | ~training))
                for fold in np.unique(each[training])
                if (rows := training & (each == fold)).any()
            ]
            for each in partitions
        ]
        wanted.append((folds, key(~training) if not training.all() else None))
    if not masks:  # nothing is left out
        return [SplitOutputs([], np.empty((0, 0, n_outputs))) for _ in splits]
    # all masks are unions of these cells
    _, cells = np.unique(np.stack(list(masks.values()), axis=1), axis=0, return_inverse=True)
    cells = cells.reshape(-1).astype(np.int64)  # NumPy 2.0 keeps a second axis
    sets = [set(cells[mask].tolist()) for mask in masks.values()]
    found = left_out(samples._replace(domains=cells), n_outputs, sets, device=device)
    outputs = dict(zip(masks, found, strict=True))
    shape = found[0].shape

    result = []
    for (training, _), (folds, rest) in zip(splits, wanted, strict=True):
        parts = []
        for each in folds:
            part = np.empty((shape[0], len(training), shape[2]), found[0].dtype)
            for rows, name in each:
                part[:, rows] = outputs[name][:, rows[masks[name]]]
            parts.append(part[:, training])
        none = np.empty((shape[0], 0, shape[2]), found[0].dtype)
        result.append(SplitOutputs(parts, none if rest is None else outputs[rest]))
    return result


def call_for_sets(
    function: Callable[..., T], calls: Sequence[tuple[Any, ...]], size: int, *, on_cpu: bool
) -> list[T]:
    """Call a function for each set of held-out domains, in parallel if that is faster.

    `size` is the number of feature values. For small products on a CPU, one thread per set is
    faster than threads within BLAS.
    """
    n_threads = cpu_count() if on_cpu and size < LARGE else 1
    with blas_threads(size, LARGE):
        results = Prefetch(function, calls, n_threads=n_threads)
        return list(tracked(results, len(calls)))


def iterate_for_sets(
    function: Callable[..., T], calls: Sequence[tuple[Any, ...]], size: int, *, on_cpu: bool
) -> Iterator[T]:
    """The same for large results: one for each thread, and the one that was taken, at a time."""
    n_threads = cpu_count() if on_cpu and size < LARGE else 1
    with blas_threads(size, LARGE):
        yield from Prefetch(function, calls, n_threads=n_threads, ahead=n_threads)


C_GRID = tuple(10.0**power for power in range(-5, 2))
PATH_TOLERANCE = 1e-3
"""A fit of a path ends when the norm of the gradient, relative to zero weights, is below this."""

_DEVICE_BYTES = 2**32
_SINGLE_TOLERANCE = 1e-4
"""The smallest tolerance that is reached in float32; fits with a smaller one are in float64."""

_SINGLE_ITERATIONS, _DOUBLE_ITERATIONS = 300, 10_000
"""Most iterations of a fit. Few need so many: ill-conditioned features with a weak penalty."""


def left_out_paths(
    samples: Samples,
    n_classes: int,
    left_out: Sequence[AbstractSet[int]],
    *,
    Cs: Sequence[float] = C_GRID,
    tol: float = PATH_TOLERANCE,
    device: str | None = None,
    offset: NDArray[np.floating[Any]] | None = None,
) -> list[NDArray[np.float32]]:
    """Predict held-out domains by heads fitted to the other domains, for each C.

    Held-out samples have no influence on the fit. All cores are used, so one call at a time is
    enough.

    Parameters
    ----------
    samples : Samples
    n_classes : int
    left_out : sequence of set of int
        For each head, the domains to leave out: at least one, and not all.
    Cs : sequence of float
        Inverse regularisation strengths, as in scikit-learn.
    tol : float
        A fit ends when the norm of the gradient, relative to zero weights, is below this.
    device : str, optional
        Compute with NumPy if None, else with PyTorch on this device, as one batched problem.
    offset : array (n, n_classes), optional
        Logits of each sample that those of the heads are added to; there is no penalty for them.

    Returns
    -------
    list of array (n_Cs, n, n_classes)
        For each set the log-probabilities of its n samples, in their order in `samples`. A class
        without training samples has log-probability -inf.

    Examples
    --------
    >>> labels, domains = np.array([0, 0, 1, 1] * 2), np.repeat([0, 1], 4)
    >>> features = np.float32([[0], [1], [2], [3], [0], [1], [2], [4]])
    >>> samples = Samples(features, labels, domains)
    >>> first, second = left_out_paths(samples, 2, [{0}, {1}])
    >>> first.shape
    (7, 4, 2)
    >>> first[-1].argmax(axis=1).tolist()
    [0, 0, 1, 1]
    """
    check_samples(samples, n_classes)
    check_Cs(Cs)
    masks = left_out_masks(samples, left_out)
    on = backend(device)
    if not on.is_numpy:
        return _on_device(samples, masks, n_classes, Cs, tol, on, offset)
    calls = [(samples, mask, n_classes, Cs, tol, offset) for mask in masks]
    return call_for_sets(_left_out_path, calls, samples.features.size, on_cpu=True)


def check_Cs(Cs: Sequence[float]) -> None:
    """Raise an InputError unless there are values of C, all positive."""
    if not len(Cs) or not all(math.isfinite(C) and C > 0 for C in Cs):
        raise InputError(f"C must be one or more numbers above 0, got {list(Cs)}")


def _left_out_path(
    samples: Samples,
    left_out: NDArray[np.bool_],
    n_classes: int,
    Cs: Sequence[float],
    tol: float,
    offset: NDArray[np.floating[Any]] | None = None,
) -> NDArray[np.float32]:
    """Log-probabilities (n_Cs, n, n_classes) of held-out samples."""
    training = samples.features[~left_out]
    mean, std = mean_and_std(training)
    dtype = _dtype(tol)
    targets, present = one_hot(samples.labels[~left_out])
    added = None if offset is None else offset[:, present].T.astype(dtype)
    weights = _path(
        standardised(training, mean, std, dtype),
        targets.astype(dtype),
        Cs,
        tol,
        None if added is None else added[:, ~left_out],
    )
    others = standardised(samples.features[left_out], mean, std, dtype)
    outputs = weights[:, :, :-1] @ others.T + weights[:, :, -1:]
    if added is not None:
        outputs = outputs + added[:, left_out]
    result = np.full((len(Cs), len(others), n_classes), -np.inf, np.float32)
    result[:, :, present] = np.moveaxis(log_softmax(outputs.astype(np.float64), axis=1), 1, 2)
    return result


def _path(
    features: Matrix,
    targets: Matrix,
    Cs: Sequence[float],
    tol: float,
    offset: Matrix | None = None,
) -> Matrix:
    """Weights and bias (n_Cs, classes, d + 1), each C starting from the next smaller one."""
    # A step takes one product with the Gram matrix (n, n), or two with the features (n, d).
    wide = len(features) < 1.5 * features.shape[1]
    form: Form = Dual(features @ features.T) if wide else Primal(features)
    max_iter = _max_iter(tol)
    tol = tol * gradient_at_zero(form, targets)
    solution = np.zeros((len(targets), form.size + 1), features.dtype)
    solutions = np.empty((len(Cs), *solution.shape), features.dtype)
    for at in np.argsort(Cs):
        solutions[at] = solution = minimise(form, targets, Cs[at], solution, tol, max_iter, offset)
    if not wide:
        return solutions
    return np.concatenate([solutions[:, :, :-1] @ features, solutions[:, :, -1:]], axis=2)


def _on_device(
    samples: Samples,
    left_out: Sequence[NDArray[np.bool_]],
    n_classes: int,
    Cs: Sequence[float],
    tol: float,
    on: Backend,
    offset: NDArray[np.floating[Any]] | None = None,
) -> list[NDArray[np.float32]]:
    """Log-probabilities of held-out samples for each set, in batches that fit into memory."""
    n, d = samples.features.shape
    values = n * (d + 1) + len(Cs) * n_classes * (6 * n + (2 * MEMORY + 6) * (d + 1))
    size = max(1, _DEVICE_BYTES // (values * np.dtype(_dtype(tol)).itemsize))
    features = on.asarray(np.ascontiguousarray(samples.features, np.float32))
    results = []
    for at in range(0, len(left_out), size):
        masks = left_out[at : at + size]
        batch = _batch(features, samples.labels, masks, n_classes, Cs, _dtype(tol), on)
        if offset is not None:
            added = np.ascontiguousarray(offset.T[None, None].astype(_dtype(tol)))
            batch = replace(batch, offset=on.asarray(added))
        outputs = batch.absent + batch.outputs(minimise_batch(batch, tol, _max_iter(tol)))
        if batch.offset is not None:
            outputs = outputs + batch.offset
        for mask, each in zip(masks, outputs, strict=True):
            part = to_numpy(each[:, :, on.asarray(mask)]).astype(np.float64)
            results.append(np.moveaxis(log_softmax(part, axis=1), 1, 2).astype(np.float32))
    return results


def _batch(
    features: Array,
    labels: NDArray[np.int64],
    left_out: Sequence[NDArray[np.bool_]],
    n_classes: int,
    Cs: Sequence[float],
    dtype: str,
    on: Backend,
) -> Batch:
    """The problems of some sets; held-out samples stay in, without a target."""
    import torch

    ones = on.asarray(np.ones((len(labels), 1), dtype))
    standard = []
    for mask in left_out:
        moments = mean_and_std(features[on.asarray(~mask)])
        standard.append(torch.cat([standardised(features, *moments, dtype), ones], dim=1))
    targets = np.stack([(labels == np.arange(n_classes)[:, None]) & ~mask for mask in left_out])
    absent = np.where(targets.any(axis=2), 0, -np.inf)
    penalty = np.repeat(1 / np.asarray(Cs)[:, None, None], features.shape[1] + 1, axis=2)
    penalty[:, :, -1] = 0
    return Batch(
        torch,
        torch.stack(standard),
        on.asarray(targets[:, None].astype(dtype)),
        on.asarray((~np.stack(left_out))[:, None, None].astype(dtype)),
        on.asarray(absent[:, None, :, None].astype(dtype)),
        on.asarray(penalty.astype(dtype)),
    )


def _dtype(tol: float) -> str:
    return "float32" if tol >= _SINGLE_TOLERANCE else "float64"


def _max_iter(tol: float) -> int:
    return _SINGLE_ITERATIONS if tol >= _SINGLE_TOLERANCE else _DOUBLE_ITERATIONS


def one_hot(labels: NDArray[np.int64]) -> tuple[Matrix, NDArray[np.int64]]:
    """Labels as a matrix (classes, n) of zeros and ones, and the classes among them."""
    present = np.unique(labels)
    return (labels == present[:, None]).astype(np.float32), present
