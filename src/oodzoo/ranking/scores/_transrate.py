"""TransRate: reduction of the coding rate of features given the labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from oodzoo.core.backend import Array, Backend
from oodzoo.ranking.scores.catalogue import score
from oodzoo.ranking.scores.statistics import (
    column_centre,
    float64_blocks,
    labelled_samples,
    positive,
)


@score(
    "transrate",
    title="TransRate",
    reference="Huang et al., Frustratingly Easy Transferability Estimation, ICML 2022",
)
def transrate(X: Any, y: Any, eps: float = 1e-4) -> float:
    """TransRate.

    An estimate of the mutual information of features and labels by coding rates: the rate of the
    centred features Z at a distortion ε, minus the mean rate of the single classes::

        R(Z, ε) = ½ ln det(I + ZᵀZ / (n ε))
        TrR = R(Z, ε) - Σ_c n_c/n · R(Z_c, ε)

    The score is at least 0. Classes are weighted by their size, as in the definition; the listing
    in the paper takes the unweighted mean, which is the same for balanced classes only and can be
    negative otherwise. The score is invariant to rotation and translation, but not to the scale of
    the features. Constant features have no effect.
    Needs no pre-training head. Complexity O(n·d·min(n, d)).

    Parameters
    ----------
    X : array of shape (n, d)
        Features.
    y : array of shape (n,)
        Labels, strings or integers.
    eps : float
        Distortion ε.

    Returns
    -------
    float

    References
    ----------
    L.-K. Huang, J. Huang, Y. Rong, Q. Yang, Y. Wei, "Frustratingly Easy Transferability
    Estimation", ICML 2022.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> round(transrate(*load_iris(return_X_y=True)), 6)
    0.589405
    """
    positive(eps, "eps")
    backend, X, codes, n_classes = labelled_samples(X, y)
    centre = column_centre(backend, X)
    rate = _coding_rate(backend, X, centre, np.arange(len(codes)), eps)
    for c in range(n_classes):
        members = np.flatnonzero(codes == c)
        rate -= len(members) / len(codes) * _coding_rate(backend, X, centre, members, eps)
    return rate


def _coding_rate(
    backend: Backend, X: Array, centre: Array, rows: npt.NDArray[np.intp], eps: float
) -> float:
    """R(Z, ε) of some rows of X minus their centre; only the smaller Gram matrix is formed."""
    xp = backend.xp
    n, d = len(rows), X.shape[1]
    size = min(n, d)
    if n < d:  # det(I + ZᵀZ) = det(I + ZZᵀ)
        taken = xp.take(X, backend.asarray(rows), axis=0)
        gram = backend.gram((backend.float64(taken) - centre[None, :]).T)
    else:
        gram = xp.zeros((size, size), dtype=xp.float64, device=backend.device)
        for _, block in float64_blocks(backend, X, rows):
            gram = gram + backend.gram(block - centre[None, :])
    eye = xp.eye(size, dtype=xp.float64, device=backend.device)
    _, log_determinant = xp.linalg.slogdet(eye + gram / (n * eps))
    return float(log_determinant) / 2
