"""LogME: evidence of a Bayesian linear model of the labels, whatever they are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from oodzoo.core.backend import Array, Backend, backend_of
from oodzoo.core.errors import InputError
from oodzoo.linear.evidence import decompose, decompose_offset, log_evidence, maximise_evidence
from oodzoo.linear.moments import Moments, is_large_offset, merge
from oodzoo.ranking.scores.catalogue import score
from oodzoo.ranking.scores.statistics import Shards, centre, spectrum, targeted_features
from oodzoo.tasks import KINDS

# Constants of the authors' code.
_MAX_STEPS = 11
_STOP = 1e-3
_EPSILON = 1e-5


def _from_moments(moments: Mapping[str, Moments], shards: Shards) -> float:
    total = merge(moments.values())
    n, sums, squares, centred = total.n, total.label_sum, total.label_squares, total.centred
    if centred is None:
        values, _ = decompose(total.gram, total.products, squares, n)
    else:
        values, _ = decompose_offset(centred.gram, centred.products, total.mean, sums, squares, n)
    evidence = log_evidence(values, maximise_evidence(values))
    return float(backend_of(evidence).xp.mean(evidence)) / n


@score(
    "logme",
    title="Logarithm of maximum evidence",
    reference="You et al., LogME: Practical Assessment of Pre-trained Models for Transfer "
    "Learning, ICML 2021",
    from_moments=_from_moments,
    tasks=KINDS,
)
def logme(
    X: Any,
    y: Any,
    variant: Literal["exact", "published"] = "exact",
    *,
    task: str | None = None,
) -> float:
    """Logarithm of the maximum evidence.

    Each class, each number to predict or each label is regressed on the features, w ~ N(0, α⁻¹I)
    and y_c | w ~ N(Xw, β⁻¹I), with the precisions that maximise the evidence; neither features nor
    labels are centred, and there is no bias::

        LogME = 1/(n C) Σ_c max_{α, β} ln p(y_c | X, α, β)
        ln p(y_c | X, α, β) = n/2 ln β + d/2 ln α - n/2 ln 2π - β/2 ‖Xm - y_c‖² - α/2 ‖m‖²
                              - ½ Σ_{k=1}^d ln(α + β σ_k²)

    A feature that is always zero has no effect; any other constant feature acts as a bias.
    Needs no pre-training head. Complexity O(n·d·min(n, d)).

    Parameters
    ----------
    X : array of shape (n, d)
        Features.
    y : array of shape (n,) or (n, C)
        Classes, strings or integers, which become one-hot labels; or numbers to predict; or zeros
        and ones. A matrix is used as it is.
    variant : {"exact", "published"}
        "exact" is the formula above at its maximum. "published" reproduces the authors' code, for
        comparison with published figures: at most 11 fixed-point steps of α/β, stopped when it
        changes by less than 0.1 %, with 10⁻⁵ added to ‖m‖² and to the residual; and the last sum
        runs over the min(n, d) singular values only, although d/2 ln α is kept. For n < d this is
        not the evidence: each of the d - n missing directions adds ½ ln α, which favours wide
        models.
    task : {"classification", "regression", "multilabel"}, optional
        What y is, where it could be of two kinds: many different integers are asked about.

    Returns
    -------
    float

    References
    ----------
    K. You, Y. Liu, J. Wang, M. Long, "LogME: Practical Assessment of Pre-trained Models for
    Transfer Learning", ICML 2021. K. You, Y. Liu, Z. Zhang, J. Wang, M. I. Jordan, M. Long,
    "Ranking and Tuning Pre-trained Models: A New Paradigm for Exploiting Model Hubs", JMLR 2022
    (the fixed point, and the code).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> round(logme(*load_iris(return_X_y=True)), 6)
    -0.16006
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(60, 200)), np.arange(60) % 3
    >>> round(logme(X, y), 2), round(logme(X, y, variant="published"), 2)
    (-0.87, 6.56)
    >>> from sklearn.datasets import load_diabetes
    >>> round(logme(*load_diabetes(return_X_y=True), task="regression"), 6)
    -6.523564
    """
    if variant not in ("exact", "published"):
        raise InputError(f"unknown variant {variant!r}; expected one of exact, published")
    backend, X, Y = targeted_features(X, y, task)
    evidence = _exact if variant == "exact" else _published
    return float(backend.xp.mean(evidence(backend, X, Y)) / X.shape[0])


def _exact(backend: Backend, X: Array, Y: Array) -> Array:
    xp = backend.xp
    n, d = X.shape
    squares, sums = xp.sum(Y**2, axis=0), xp.sum(Y, axis=0)
    mean, centred = xp.mean(X, axis=0), centre(backend, X)
    square, spread = float(xp.sum(mean**2)), float(xp.sum(centred**2)) / n
    if is_large_offset(square, spread):
        products = centred.T @ Y
        values, _ = decompose_offset(backend.gram(centred), products, mean, sums, squares, n)
        return log_evidence(values, maximise_evidence(values))
    if n > d:
        gram, targets = backend.gram(X), X.T @ Y
    else:
        # The evidence depends on XXᵀ only, so d features can be replaced by n with the same XXᵀ.
        S, projected = spectrum(backend, X, Y)
        gram = S[:, None] * xp.eye(S.shape[0], dtype=xp.float64, device=backend.device)
        targets = xp.sqrt(S)[:, None] * projected
        if S.shape[0] == 0:  # all features are zero
            gram, targets = backend.gram(X[:, :1]), X[:, :1].T @ Y
    values, _ = decompose(gram, targets, squares, n)
    return log_evidence(values, maximise_evidence(values))


def _published(backend: Backend, X: Array, Y: Array) -> Array:
    """The authors' fixed-point iteration for all columns at once; converged ones stay fixed."""
    xp = backend.xp
    n, d = X.shape
    squares = xp.sum(Y**2, axis=0)
    S, projected = spectrum(backend, X, Y)
    if S.shape[0] == 0:  # all features are zero: the authors' code yields NaN
        return _exact(backend, X, Y)
    # The authors' code sums over all min(n, d) singular values if n <= d, else over non-zero ones.
    zeros = n - S.shape[0] if n <= d else 0
    S = S[:, None]
    energy = projected**2
    outside = squares - xp.sum(energy, axis=0)
    alpha, beta = xp.ones_like(squares), xp.ones_like(squares)
    norm, residual = xp.zeros_like(squares), xp.zeros_like(squares)
    moving = xp.ones_like(squares, dtype=xp.bool)
    for _ in range(_MAX_STEPS):
        ratio = alpha / beta
        gamma = xp.sum(S / (S + ratio), axis=0)
        norm = xp.where(moving, xp.sum(S * energy / (ratio + S) ** 2, axis=0), norm)
        misfit = xp.sum(energy / (1 + S / ratio) ** 2, axis=0) + outside
        residual = xp.where(moving, misfit, residual)
        alpha = xp.where(moving, gamma / (norm + _EPSILON), alpha)
        beta = xp.where(moving, (n - gamma) / (residual + _EPSILON), beta)
        moving = moving & (xp.abs(alpha / beta - ratio) / ratio > _STOP)
        if not bool(xp.any(moving)):
            break
    determinant = xp.sum(xp.log(alpha + beta * S), axis=0) + zeros * xp.log(alpha)
    return (
        d * xp.log(alpha)
        + n * xp.log(beta)
        - determinant
        - beta * residual
        - alpha * norm
        - n * math.log(2 * math.pi)
    ) / 2
