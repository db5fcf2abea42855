"""H-Score: between-class variance relative to the total variance, which may be shrunk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oodzoo.core.backend import Array
from oodzoo.linear.moments import Moments
from oodzoo.ranking.scores.catalogue import score
from oodzoo.ranking.scores.statistics import (
    CONSTANT,
    Shards,
    Stream,
    centre,
    class_means,
    labelled_features,
    spectrum,
    spectrum_of_gram,
    standardise,
)


def _from_moments(moments: Mapping[str, Moments], shards: Shards) -> float:
    stream = Stream.of(moments, shards)
    xp, total, centred = stream.backend.xp, stream.total, stream.centred
    variances = xp.linalg.diagonal(centred.gram) / total.n
    squares = (stream.origin + total.mean) ** 2 + variances
    varies = variances > CONSTANT**2 * squares
    scale = xp.where(varies, 1 / xp.sqrt(xp.where(varies, variances, squares + 1)), 0 * squares)
    gram = scale[:, None] * centred.gram * scale[None, :]
    targets = scale[:, None] * centred.products
    _, projected = spectrum_of_gram(stream.backend, gram, targets, stream.rounding)
    return float(xp.sum(projected**2 / total.label_sum))


@score(
    "h_score",
    title="H-Score",
    reference="Bao et al., An Information-Theoretic Approach to Transferability in Task "
    "Transfer Learning, ICIP 2019",
    from_moments=_from_moments,
)
def h_score(X: Any, y: Any) -> float:
    """H-Score.

    With f the features and E[f | y] the mean features of each sample's class::

        H = tr(cov(f)⁻¹ cov(E[f | y]))

    The score is between 0 and min(C - 1, d) and is invariant to invertible affine maps of the
    features. If cov(f) is singular (n ≤ d, constant or repeated features) its pseudo-inverse is
    used, so constant features have no effect. For n ≤ d the score is C - 1 for almost any features
    and therefore uninformative; use :func:`regularized_h_score` instead.
    Needs no pre-training head. Complexity O(n·d·min(n, d)).

    Parameters
    ----------
    X : array of shape (n, d)
        Features.
    y : array of shape (n,)
        Labels, strings or integers.

    Returns
    -------
    float

    References
    ----------
    Y. Bao, Y. Li, S.-L. Huang, L. Zhang, L. Zheng, A. Zamir, L. Guibas, "An
    Information-Theoretic Approach to Transferability in Task Transfer Learning", ICIP 2019.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> round(h_score(*load_iris(return_X_y=True)), 6)
    1.191899
    """
    backend, X, codes, n_classes = labelled_features(X, y)
    # The score is scale-invariant; standardising keeps small features above rounding error.
    X = standardise(backend, X)
    Y, counts, _ = class_means(backend, X, codes, n_classes)
    # tr(cov(f)⁻¹ cov(E[f|y])) = Σ_c ‖Uᵀ1_c‖²/n_c, the projection of class indicators on span(f).
    _, projected = spectrum(backend, X, Y)
    return float(backend.xp.sum(projected**2 / counts))


def _regularized_from_moments(moments: Mapping[str, Moments], shards: Shards) -> float:
    stream = Stream.of(moments, shards)
    total, centred = stream.total, stream.centred
    S, projected = spectrum_of_gram(stream.backend, centred.gram, centred.products, stream.rounding)
    fourth = sum(_fourth(stream.backend.xp, X) for X, _ in stream.centred_blocks())
    shape = (total.n, total.n_features)
    return _shrunk_h_score(stream.backend.xp, S, projected, total.label_sum, fourth, shape)


@score(
    "regularized_h_score",
    title="H-Score with shrunk covariance",
    reference="Ibrahim et al., Newer is not always better: Rethinking transferability "
    "metrics, their peculiarities, stability and performance, ECML PKDD 2022",
    from_moments=_regularized_from_moments,
)
def regularized_h_score(X: Any, y: Any) -> float:
    """H-Score with a shrunk covariance.

    The covariance of the features is shrunk towards a multiple of the identity with the coefficient
    α of Ledoit and Wolf, and the class means are scaled by 1 - α::

        Σ_α = (1 - α) cov(f) + α (tr cov(f) / d) I
        H_α = (1 - α) tr(Σ_α⁻¹ cov(E[f | y]))

    with 1/n in Σ_α and 1/(n - 1) in cov(E[f | y]), as in the authors' code. Unlike
    :func:`h_score` it is informative for n < d. It is invariant to rotation, translation and a
    common scale of the features; a constant feature only increases d.
    Needs no pre-training head. Complexity O(n·d·min(n, d)).

    Parameters
    ----------
    X : array of shape (n, d)
        Features.
    y : array of shape (n,)
        Labels, strings or integers.

    Returns
    -------
    float

    References
    ----------
    S. Ibrahim, N. Ponomareva, R. Mazumder, "Newer is not always better: Rethinking
    transferability metrics, their peculiarities, stability and performance", ECML PKDD 2022.
    O. Ledoit, M. Wolf, "A well-conditioned estimator for large-dimensional covariance
    matrices", Journal of Multivariate Analysis, 2004.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> round(regularized_h_score(*load_iris(return_X_y=True)), 6)
    1.177842
    """
    backend, X, codes, n_classes = labelled_features(X, y)
    X = centre(backend, X)
    Y, counts, _ = class_means(backend, X, codes, n_classes)
    S, projected = spectrum(backend, X, Y)
    return _shrunk_h_score(backend.xp, S, projected, counts, _fourth(backend.xp, X), X.shape)


def _shrunk_h_score(
    xp: Any, S: Array, projected: Array, counts: Array, fourth: float, shape: tuple[int, int]
) -> float:
    """The score, from the spectrum of centred features and the sum of ‖x‖⁴."""
    n, d = shape
    variances = S / n
    alpha = _ledoit_wolf(xp, variances, fourth, shape)
    # Class means are in the span of the samples, so its directions suffice.
    shrunk = (1 - alpha) * variances + alpha * float(xp.sum(variances)) / d
    between = xp.sum(projected**2 / counts, axis=1) * S / (n - 1)
    return (1 - alpha) * float(xp.sum(between / shrunk))


def _fourth(xp: Any, X: Array) -> float:
    return float(xp.sum(xp.sum(X * X, axis=1) ** 2))


def _ledoit_wolf(xp: Any, variances: Array, fourth: float, shape: tuple[int, int]) -> float:
    """Shrinkage that minimises the expected squared error, from eigenvalues and Σ ‖x‖⁴."""
    n, d = shape
    mean = float(xp.sum(variances)) / d
    squares = float(xp.sum(variances**2))
    # ‖cov - μI‖²; zero if all variances are equal, and then there is nothing to shrink.
    distance = squares - d * mean**2
    if d == 1 or distance <= 1e-12 * squares:
        return 0.0
    error = (fourth / n - squares) / n
    return float(max(0.0, min(1.0, error / distance)))
