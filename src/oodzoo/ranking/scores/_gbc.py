"""GBC: overlap of the classes, modelled as Gaussians."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from oodzoo.core.backend import Array
from oodzoo.core.errors import InputError
from oodzoo.linear.moments import Moments
from oodzoo.ranking.scores.catalogue import score
from oodzoo.ranking.scores.statistics import (
    Shards,
    Stream,
    centre,
    class_means,
    labelled_features,
    nonzero_eigh,
    one_hot,
    positive,
    principal_components,
)

_COMPONENTS = 64
_FLOOR = 1e-4


def _from_moments(moments: Mapping[str, Moments], shards: Shards) -> float:
    stream = Stream.of(moments, shards)
    backend, total, centred = stream.backend, stream.total, stream.centred
    xp, counts = backend.xp, total.label_sum
    eigenvalues, vectors = nonzero_eigh(backend, centred.gram, stream.rounding)
    eigenvalues, vectors = eigenvalues[-_COMPONENTS:], vectors[:, -_COMPONENTS:]
    means = (centred.products / counts).T @ vectors
    squares = xp.zeros_like(means)
    for X, y in stream.centred_blocks():
        deviations = X @ vectors - xp.take(means, y, axis=0)
        squares = squares + one_hot(backend, y, total.n_classes).T @ (deviations * deviations)
    variances = _spherical(xp, squares / counts[:, None])
    return _negative_overlap(xp, means, variances, float(xp.sum(eigenvalues)) / total.n, _FLOOR)


@score(
    "gbc",
    title="Gaussian Bhattacharyya coefficient",
    reference="Pándy et al., Transferability Estimation using Bhattacharyya Class "
    "Separability, CVPR 2022",
    from_moments=_from_moments,
)
def gbc(
    X: Any,
    y: Any,
    covariance: Literal["spherical", "diagonal"] = "spherical",
    n_components: int | None = _COMPONENTS,
    floor: float = _FLOOR,
) -> float:
    """Gaussian Bhattacharyya coefficient.

    Each class is modelled as a Gaussian N(μ_c, Σ_c) over the leading principal components of the
    features; the score is the negative overlap of all ordered pairs of classes::

        D_B(c, c') = ⅛ (μ_c - μ_c')ᵀ Σ⁻¹ (μ_c - μ_c') + ½ ln(|Σ| / √(|Σ_c| |Σ_c'|)),
        Σ = (Σ_c + Σ_c') / 2
        GBC = -Σ_{c ≠ c'} exp(-D_B(c, c'))

    The score is between -C(C - 1), for identical classes, and 0. Variances below `floor` times
    the mean variance of the components are raised to it, so that constant features and classes
    with one sample have a score. The floor is relative, so the score is invariant to rotation,
    translation and a common scale (spherical; diagonal: per component). The determinant of a
    spherical Σ_c counts its variance in every dimension, as in the formula; the authors' code
    counts it once. Needs no pre-training head. Complexity O(n·d·min(n, d) + C²·n_components).

    Parameters
    ----------
    X : array of shape (n, d)
        Features.
    y : array of shape (n,)
        Labels, strings or integers.
    covariance : {"spherical", "diagonal"}
        Form of Σ_c.
    n_components : int or None
        Number of principal components, 64 as in the paper; None to use the features themselves.
    floor : float
        Lower bound of the variances, relative to the mean variance.

    Returns
    -------
    float

    References
    ----------
    M. Pándy, A. Agostinelli, J. Uijlings, V. Ferrari, T. Mensink, "Transferability Estimation
    using Bhattacharyya Class Separability", CVPR 2022.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> round(gbc(*load_iris(return_X_y=True)), 4)
    -0.3301
    """
    positive(floor, "floor")
    if covariance not in ("spherical", "diagonal"):
        raise InputError(f"unknown covariance {covariance!r}; expected one of spherical, diagonal")
    if n_components is not None and n_components < 1:
        raise InputError(f"n_components must be at least 1 or None, got {n_components!r}")
    backend, X, codes, n_classes = labelled_features(X, y)
    xp = backend.xp
    Z = centre(backend, X)
    if n_components is not None:
        Z = principal_components(backend, Z)[1][:, :n_components]
    total = float(xp.sum(xp.mean(Z * Z, axis=0)))
    Y, counts, means = class_means(backend, Z, codes, n_classes)
    deviations = Z - Y @ means
    variances = (Y.T @ (deviations * deviations)) / counts[:, None]
    if covariance == "spherical":
        variances = _spherical(xp, variances)
    return _negative_overlap(xp, means, variances, total, floor)


def _spherical(xp: Any, variances: Array) -> Array:
    """The mean variance of each class in every dimension."""
    sums = xp.sum(variances, axis=1, keepdims=True)
    return sums / max(variances.shape[1], 1) + xp.zeros_like(variances)


def _negative_overlap(xp: Any, means: Array, variances: Array, total: float, floor: float) -> float:
    """The score of classes with these means and variances (C, k); `total` is the variance."""
    n_classes, k = means.shape
    if total == 0:  # all samples coincide
        return -float(n_classes * (n_classes - 1))
    least = floor * total / k
    variances = xp.where(variances < least, least + xp.zeros_like(variances), variances)
    return -sum(_overlaps(xp, means, variances, c) for c in range(n_classes))


def _overlaps(xp: Any, means: Array, variances: Array, c: int) -> float:
    """Σ exp(-D_B) between class c and all other classes."""
    shared = (variances + variances[c : c + 1, :]) / 2
    gap = means - means[c : c + 1, :]
    logs = xp.log(variances)
    distances = (
        xp.sum(gap * gap / shared, axis=1) / 8
        + xp.sum(xp.log(shared) - (logs + logs[c : c + 1, :]) / 2, axis=1) / 2
    )
    overlaps = xp.exp(-distances)
    return float(xp.sum(overlaps[:c]) + xp.sum(overlaps[c + 1 :]))
