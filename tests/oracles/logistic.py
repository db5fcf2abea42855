"""Multinomial logistic regression as it is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.optimize
from numpy.typing import NDArray


def objective(
    weights: NDArray[Any], bias: NDArray[Any], X: NDArray[Any], y: NDArray[Any], C: float
) -> float:
    """Sum of -ln p(y|x) plus the penalty, on features as given."""
    total = 0.0
    for x, label in zip(X, y, strict=True):
        logits = weights @ x + bias
        total += np.log(np.sum(np.exp(logits - logits.max()))) + logits.max() - logits[label]
    return float(total + np.sum(weights**2) / (2 * C))


def minimum(X: NDArray[Any], y: NDArray[Any], C: float, n_classes: int) -> NDArray[Any]:
    """Weights and, in the last column, bias, by a solver that knows nothing of the problem."""
    d = X.shape[1]
    onehot = np.eye(n_classes)[y]

    def value_and_gradient(flat: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        both = flat.reshape(n_classes, d + 1)
        logits = X @ both[:, :-1].T + both[:, -1]
        logits -= logits.max(axis=1, keepdims=True)
        logp = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        value = -np.sum(logp * onehot) + np.sum(both[:, :-1] ** 2) / (2 * C)
        gradient = np.empty_like(both)
        residuals = np.exp(logp) - onehot
        gradient[:, :-1] = residuals.T @ X + both[:, :-1] / C
        gradient[:, -1] = residuals.sum(axis=0)
        return value, gradient.ravel()

    found = scipy.optimize.minimize(
        value_and_gradient,
        np.zeros(n_classes * (d + 1)),
        jac=True,
        method="L-BFGS-B",
        options={"gtol": 1e-9, "ftol": 0.0, "maxiter": 20_000, "maxfun": 40_000},
    )
    both: NDArray[Any] = found.x.reshape(n_classes, d + 1)
    return both


def direction(
    gradient: NDArray[Any],
    pairs: Sequence[tuple[NDArray[Any], NDArray[Any]]],
    metric: NDArray[Any],
) -> NDArray[Any]:
    """-Hg by the matrix H of BFGS itself, from steps s and changes y, the oldest first.

    Inner products are aᵀKb for the metric K. H starts as the identity times sᵀy / yᵀy of the latest
    pair.
    """
    K, eye = metric, np.eye(len(gradient))
    s, y = pairs[-1]
    H = (s @ K @ y) / (y @ K @ y) * eye
    for s, y in pairs:
        product = s @ K @ y
        left = eye - np.outer(s, K @ y) / product
        H = left @ H @ (eye - np.outer(y, K @ s) / product) + np.outer(s, K @ s) / product
    result: NDArray[Any] = -H @ gradient
    return result
