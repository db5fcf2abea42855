"""PARC: whether samples are alike in the features where they are alike in the labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from oodzoo.backend import Array, to_numpy
from oodzoo.errors import InputError
from oodzoo.scores.classes import standardise
from oodzoo.scores.inputs import labelled_features
from oodzoo.scores.registry import Score, register
from oodzoo.scores.sampling import generator, stratified_order

# Correlations closer than this are equal; rounding must not rank them.
_DECIMALS = 12


def parc(X: Any, y: Any, max_samples: int = 2000, random_state: int = 0) -> float:
    """Pairwise annotation representation comparison.

    Distances between all pairs of samples, by their features and by their one-hot labels, are
    compared by Spearman's rank correlation (ties get their mean rank)::

        D_X = 1 - corr(rows of the standardised features),  D_Y = 1 - corr(one-hot labels)
        PARC = 100 · spearman(D_X, D_Y over pairs i < j)

    It lies in [-100, 100] and does not change under translation or scaling of any feature. A
    constant feature becomes zero; a sample that then has no variance among its features has
    correlation 0 with others; if no distances differ the score is 0.
    Needs no head. O(s²·(d + log s)) for s samples used.

    Parameters
    ----------
    X : array of shape (n, d)
        Features.
    y : array of shape (n,)
        Labels, strings or integers; some class has two samples.
    max_samples : int
        Of more samples, so many are drawn, with the classes in their shares; the paper uses 500.
    random_state : int
        Seed of the draw.

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
    from scipy.stats import rankdata  # slow to import, and of use here alone

    if max_samples != int(max_samples) or max_samples < 3:
        raise InputError(f"max_samples is {max_samples!r}; it has to be an integer of at least 3")
    backend, X, codes, _ = labelled_features(X, y)
    rng = generator(random_state)
    if len(codes) > max_samples:
        chosen = np.sort(stratified_order(codes, rng)[: int(max_samples)])
        X, codes = backend.xp.take(X, backend.asarray(chosen), axis=0), codes[chosen]
    first, second = np.triu_indices(len(codes), k=1)
    # Between one-hot labels there are two distances: 0, and 1 + 1/(C-1).
    differ = codes[first] != codes[second]
    if differ.all() or not differ.any():
        which = "different" if differ.all() else "the same"
        raise InputError(
            f"all {len(differ)} pairs of samples used are of {which} classes; "
            "at least one class with two samples, and two classes, are needed"
        )
    distance = 1 - to_numpy(_correlation(backend.xp, standardise(backend, X)))[first, second]
    return 100 * _pearson(
        rankdata(np.round(distance, _DECIMALS)), rankdata(differ.astype(np.float64))
    )


def _correlation(xp: Any, X: Array) -> Array:
    """Correlation of every two rows."""
    size = xp.max(xp.abs(X), axis=1, keepdims=True)
    X = X - xp.mean(X, axis=1, keepdims=True)
    norm = xp.sqrt(xp.sum(X * X, axis=1, keepdims=True))
    varies = norm > 1e-10 * size
    X = xp.where(varies, X, xp.zeros_like(X)) / xp.where(varies, norm, xp.ones_like(norm))
    return X @ X.T


def _pearson(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> float:
    a, b = a - a.mean(), b - b.mean()
    size = np.sqrt((a @ a) * (b @ b))
    return float(np.clip(a @ b / size, -1, 1)) if size > 0 else 0.0


register(
    Score(
        name="parc",
        function=parc,
        needs="features",
        uses_domains=False,
        reference="Bolya et al., Scalable Diverse Model Selection for Accessible Transfer "
        "Learning, NeurIPS 2021",
        title="Pairwise annotation representation comparison",
    )
)
