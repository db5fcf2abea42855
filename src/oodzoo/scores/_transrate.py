"""TransRate: bits that the labels save when features are coded."""

from __future__ import annotations

from typing import Any

from oodzoo.backend import Array, Backend
from oodzoo.scores.classes import centre
from oodzoo.scores.inputs import labelled_features, positive
from oodzoo.scores.registry import Score, register


def transrate(X: Any, y: Any, eps: float = 1e-4) -> float:
    """TransRate.

    An estimate of the mutual information of features and labels by coding rates: what it costs
    to code the centred features Z to a distortion ε, less what it costs class by class::

        R(Z, ε) = ½ ln det(I + ZᵀZ / (n ε))
        TrR = R(Z, ε) - Σ_c n_c/n · R(Z_c, ε)

    It is at least 0. Classes weigh by their size, as the definition says; the listing printed in
    the paper takes their plain mean, which is the same for balanced classes only, and can fall
    below 0 for others. It does not change under rotation and translation; it does with the scale
    of the features. A constant feature counts for nothing.
    Needs no head. O(n·d·min(n, d)).

    Parameters
    ----------
    X : array of shape (n, d)
        Features.
    y : array of shape (n,)
        Labels, strings or integers.
    eps : float
        The distortion ε.

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
    backend, X, codes, n_classes = labelled_features(X, y)
    Z = centre(backend, X)
    rate = _coding_rate(backend, Z, eps)
    for c in range(n_classes):
        members = Z[backend.asarray(codes == c), :]
        rate -= members.shape[0] / Z.shape[0] * _coding_rate(backend, members, eps)
    return rate


def _coding_rate(backend: Backend, Z: Array, eps: float) -> float:
    n, d = Z.shape
    gram = backend.gram(Z.T if n < d else Z)  # det(I + ZᵀZ) = det(I + ZZᵀ)
    eye = backend.xp.eye(min(n, d), dtype=Z.dtype, device=backend.device)
    _, log_determinant = backend.xp.linalg.slogdet(eye + gram / (n * eps))
    return float(log_determinant) / 2


register(
    Score(
        name="transrate",
        function=transrate,
        needs="features",
        uses_domains=False,
        reference="Huang et al., Frustratingly Easy Transferability Estimation, ICML 2022",
        title="TransRate",
    )
)
