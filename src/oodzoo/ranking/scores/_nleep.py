"""NLEEP: LEEP for models without a head, with clusters as source classes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from threadpoolctl import threadpool_limits

from oodzoo.core.backend import Array, to_numpy
from oodzoo.core.errors import InputError
from oodzoo.core.threads import LARGE_PRODUCT
from oodzoo.linear.moments import Moments
from oodzoo.ranking.scores._leep import leep
from oodzoo.ranking.scores.catalogue import score
from oodzoo.ranking.scores.statistics import (
    Codes,
    Shards,
    Stream,
    centre,
    generator,
    labelled_features,
    nonzero_eigh,
    principal_components,
)

_ENERGY = 0.8


def _from_moments(moments: Mapping[str, Moments], shards: Shards) -> float:
    stream = Stream.of(moments, shards)
    xp, total = stream.backend.xp, stream.total
    eigenvalues, vectors = nonzero_eigh(stream.backend, stream.centred.gram, stream.rounding)
    k, scale = _leading(xp.flip(eigenvalues) / total.n, _ENERGY)
    vectors = xp.flip(vectors[:, vectors.shape[1] - k :], axis=1)
    Z, codes = np.empty((total.n, k)), np.empty(total.n, dtype=np.int64)
    start = 0
    for X, y in stream.centred_blocks():
        rows = slice(start, start + X.shape[0])
        Z[rows], codes[rows] = to_numpy(X @ vectors) / scale, to_numpy(y)
        start = rows.stop
    return _score(Z, codes, _n_clusters(total.n, total.n_classes), "diagonal", 0)


@score(
    "nleep",
    title="LEEP over Gaussian clusters",
    reference="Li et al., Ranking Neural Checkpoints, CVPR 2021",
    from_moments=_from_moments,
)
def nleep(
    X: Any,
    y: Any,
    n_components: int | None = None,
    energy: float = _ENERGY,
    covariance: Literal["diagonal", "full"] = "diagonal",
    random_state: int = 0,
) -> float:
    """LEEP with the clusters of a Gaussian mixture as source classes.

    The features are reduced to the principal components that explain a share `energy` of their
    variance; a Gaussian mixture is fitted to them, and its posteriors P(v | x) replace the
    probabilities of a head in :func:`leep`::

        NLEEP = 1/n Σ_i ln Σ_v P(y_i | v) P(v | x_i)

    The score is at most 0 and at least the negative entropy of the labels, which is its value if
    all features are constant; single constant features have no effect. Components are scaled by a
    common factor before the fit, so the score is invariant to rotation (up to the initialisation
    of the fit), translation and a common scale. Covariances are diagonal by default, because full
    ones cost K·n·k² per step for k components and K Gaussians, and need more than k samples each.
    Needs no pre-training head. Runs on NumPy and scikit-learn; complexity O(n·d·min(n, d)), and
    O(K·n·k) per step.

    Parameters
    ----------
    X : array of shape (n, d)
        Features.
    y : array of shape (n,)
        Labels, strings or integers.
    n_components : int, optional
        Number K of Gaussians; by default five times the number of classes as in the paper, but
        at most a fifth of the samples and at least the number of classes.
    energy : float
        Share of the variance that the principal components explain.
    covariance : {"diagonal", "full"}
        Covariances of the Gaussians.
    random_state : int
        Random seed of the initialisation.

    Returns
    -------
    float

    References
    ----------
    Y. Li, X. Jia, R. Sang, Y. Zhu, B. Green, L. Wang, B. Gong, "Ranking Neural Checkpoints",
    CVPR 2021.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> round(nleep(*load_iris(return_X_y=True)), 2)
    -0.12
    """
    if not 0 < energy <= 1:
        raise InputError(f"energy must be in (0, 1], got {energy!r}")
    if covariance not in ("diagonal", "full"):
        raise InputError(f"unknown covariance {covariance!r}; expected one of diagonal, full")
    generator(random_state)
    backend, X, codes, n_classes = labelled_features(X, y)
    if n_components is None:
        n_components = _n_clusters(len(codes), n_classes)
    if n_components != int(n_components) or not 1 <= n_components <= len(codes):
        raise InputError(
            f"n_components must be an integer from 1 to the number of samples, {len(codes)}, "
            f"got {n_components!r}"
        )
    variances, coordinates = principal_components(backend, centre(backend, X))
    k, scale = _leading(variances, energy)
    Z = to_numpy(coordinates)[:, :k] / scale
    return _score(Z, codes, int(n_components), covariance, int(random_state))


def _n_clusters(n: int, n_classes: int) -> int:
    return max(n_classes, min(5 * n_classes, n // 5))


def _leading(variances: Array, energy: float) -> tuple[int, float]:
    """Number of principal components with a share of the variance, and their deviation."""
    held = np.cumsum(to_numpy(variances))
    if len(held) == 0:  # all samples coincide
        return 0, 1.0
    k = min(len(held), int(np.searchsorted(held, energy * held[-1], side="right")) + 1)
    return k, math.sqrt(held[k - 1] / k)


def _score(Z: Any, codes: Codes, n_clusters: int, covariance: str, random_state: int) -> float:
    if Z.shape[1] == 0:
        return leep(np.ones((len(codes), 1)), codes)
    return leep(_posteriors(Z, n_clusters, covariance, random_state), codes)


def _posteriors(Z: Any, n_components: int, covariance: str, random_state: int) -> Any:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    mixture = GaussianMixture(
        n_components=n_components,
        covariance_type="diag" if covariance == "diagonal" else "full",
        random_state=random_state,
    )
    small = Z.size < LARGE_PRODUCT  # k-means of few values mostly waits for its threads
    with threadpool_limits(1 if small else None, user_api="openmp"), warnings.catch_warnings():
        # The score does not need a fully converged likelihood, and clusters that stay empty
        # because samples coincide are harmless.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return mixture.fit(Z).predict_proba(Z)
