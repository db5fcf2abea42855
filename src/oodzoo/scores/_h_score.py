"""H-Score: between-class variance relative to the total variance."""

from __future__ import annotations

from typing import Any

from oodzoo.scores.classes import class_means, standardise
from oodzoo.scores.inputs import labelled_features
from oodzoo.scores.registry import score
from oodzoo.scores.spectrum import spectrum


@score(
    "h_score",
    title="H-Score",
    reference="Bao et al., An Information-Theoretic Approach to Transferability in Task "
    "Transfer Learning, ICIP 2019",
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
