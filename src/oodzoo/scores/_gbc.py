"""GBC: overlap of the classes, modelled as Gaussians."""

from __future__ import annotations

from typing import Any, Literal

from oodzoo.backend import Array
from oodzoo.errors import InputError
from oodzoo.scores.classes import centre, class_means
from oodzoo.scores.inputs import labelled_features, positive
from oodzoo.scores.registry import score
from oodzoo.scores.spectrum import principal_components


@score(
    "gbc",
    title="Gaussian Bhattacharyya coefficient",
    reference="Pándy et al., Transferability Estimation using Bhattacharyya Class "
    "Separability, CVPR 2022",
)
def gbc(
    X: Any,
    y: Any,
    covariance: Literal["spherical", "diagonal"] = "spherical",
    n_components: int | None = 64,
    floor: float = 1e-4,
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
    if total == 0:  # all samples coincide
        return -float(n_classes * (n_classes - 1))
    Y, counts, means = class_means(backend, Z, codes, n_classes)
    deviations = Z - Y @ means
    variances = (Y.T @ (deviations * deviations)) / counts[:, None]
    if covariance == "spherical":
        variances = xp.mean(variances, axis=1, keepdims=True) + xp.zeros_like(variances)
    least = floor * total / Z.shape[1]
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
