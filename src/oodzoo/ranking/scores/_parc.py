"""PARC: rank correlation between distances of features and distances of labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from oodzoo.core.backend import Array, to_numpy
from oodzoo.core.errors import InputError
from oodzoo.ranking.scores.catalogue import score
from oodzoo.ranking.scores.statistics import (
    generator,
    labelled_samples,
    standardise,
    stratified_order,
)

# Distances are rounded to this many decimals, so that rounding errors do not break ties.
_DECIMALS = 12


@score(
    "parc",
    title="Pairwise annotation representation comparison",
    reference="Bolya et al., Scalable Diverse Model Selection for Accessible Transfer "
    "Learning, NeurIPS 2021",
)
def parc(X: Any, y: Any, max_samples: int = 2000, random_state: int = 0) -> float:
    """Pairwise annotation representation comparison.

    The distances between all pairs of samples, by features and by one-hot labels, are compared by
    Spearman's rank correlation (ties get their mean rank)::

        D_X = 1 - corr(rows of the standardised features),  D_Y = 1 - corr(one-hot labels)
        PARC = 100 · spearman(D_X, D_Y over pairs i < j)

    The score is in [-100, 100] and is invariant to translation and scaling of each feature. A
    constant feature becomes zero; a sample whose features then have no variance has correlation 0
    with all others; if all distances are equal the score is 0.
    Needs no pre-training head. Complexity O(s²·(d + log s)) for s samples used.

    Parameters
    ----------
    X : array of shape (n, d)
        Features.
    y : array of shape (n,)
        Labels, strings or integers; at least one class has two samples.
    max_samples : int
        Larger data sets are reduced to a stratified random sample; the paper uses 500.
    random_state : int
        Random seed of the sample.

    Returns
    -------
    float

    References
    ----------
    D. Bolya, R. Mittapalli, J. Hoffman, "Scalable Diverse Model Selection for Accessible
    Transfer Learning", NeurIPS 2021.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> round(parc(*load_iris(return_X_y=True)), 4)
    58.6798
    """
    if max_samples != int(max_samples) or max_samples < 3:
        raise InputError(f"max_samples must be an integer of at least 3, got {max_samples!r}")
    backend, X, codes, _ = labelled_samples(X, y)
    rng = generator(random_state)
    if len(codes) > max_samples:
        chosen = np.sort(stratified_order(codes, rng)[: int(max_samples)])
        X, codes = backend.xp.take(X, backend.asarray(chosen), axis=0), codes[chosen]
    pairs = np.triu(np.ones((len(codes), len(codes)), np.bool_), k=1)
    # One-hot labels have two distances: 0 and 1 + 1/(C-1).
    differ = (codes[:, None] != codes)[pairs]
    if differ.all() or not differ.any():
        which = "different classes" if differ.all() else "the same class"
        raise InputError(
            f"all {len(differ)} pairs of samples have {which}; "
            "two classes are needed, one of them with two samples"
        )
    X = standardise(backend, backend.float64(X))
    distance = 1 - to_numpy(_correlation(backend.xp, X))[pairs]
    return 100 * _spearman(np.round(distance, _DECIMALS), differ)


def _correlation(xp: Any, X: Array) -> Array:
    """Correlation between all pairs of rows."""
    size = xp.max(xp.abs(X), axis=1, keepdims=True)
    X = X - xp.mean(X, axis=1, keepdims=True)
    norm = xp.sqrt(xp.sum(X * X, axis=1, keepdims=True))
    varies = norm > 1e-10 * size
    X = xp.where(varies, X, xp.zeros_like(X)) / xp.where(varies, norm, xp.ones_like(norm))
    return X @ X.T


def _spearman(values: npt.NDArray[np.float64], larger: npt.NDArray[np.bool_]) -> float:
    """Spearman's rank correlation of values and a mask; 0 if all values are equal.

    Ranks of a mask are an affine function of it. So only the ranks of the values outside it are
    needed, which are few, and the variance of all ranks, which follows from the ties.
    """
    n, n_larger = len(values), int(larger.sum())
    ordered, others = np.sort(values), np.sort(values[~larger])
    first, end = (np.searchsorted(ordered, others, side=side) for side in ("left", "right"))
    ranks = (first + end + 1) / 2
    covariance = -float((ranks - (n + 1) / 2).sum())
    starts = np.flatnonzero(np.concatenate([[True], np.diff(ordered) > 0, [True]]))
    ties = np.diff(starts).astype(np.float64)
    variance = (float(n) ** 3 - float((ties**3).sum())) / 12
    size = np.sqrt(variance * n_larger * (n - n_larger) / n)
    return float(np.clip(covariance / size, -1, 1)) if size > 0 else 0.0
