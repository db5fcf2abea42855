"""H-Score: between-class variance relative to the total variance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oodzoo.linear.moments import Moments
from oodzoo.ranking.scores.inputs import labelled_features
from oodzoo.ranking.scores.registry import score
from oodzoo.ranking.scores.statistics import (
    CONSTANT,
    Shards,
    Stream,
    class_means,
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
