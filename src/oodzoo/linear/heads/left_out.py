"""Fits that leave samples out: domains or folds, and the threads that compute them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple, TypeVar

import numpy as np
from joblib import cpu_count
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.core.threads import LARGE, Prefetch, blas_threads
from oodzoo.extraction.columns import Samples

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

    partitions: list[NDArray[Any]]
    rest: NDArray[Any]


def predict_splits_by(
    left_out: Callable[..., list[NDArray[Any]]],
    samples: Samples,
    n_outputs: int,
    splits: Sequence[Split],
    *,
    device: str | None = None,
) -> list[SplitOutputs]:
    """Predict splits with a function that predicts left-out domains; a fit is made only once."""
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
    """Call a function for each set of left-out domains, in parallel if that is faster.

    `size` is the number of feature values. For small products on a CPU, one thread per set is
    faster than threads within BLAS.
    """
    n_threads = cpu_count() if on_cpu and size < LARGE else 1
    with blas_threads(size, LARGE):
        return list(Prefetch(function, calls, n_threads=n_threads))
