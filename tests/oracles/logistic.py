"""Multinomial logistic regression as it is written."""

from __future__ import annotations

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


def minimum(
    X: NDArray[Any], y: NDArray[Any], C: float, n_classes: int, offset: Any = 0.0
) -> NDArray[Any]:
    """Weights and, in the last column, bias, by a solver that knows nothing of the problem.

    They are added to given logits, the offset (n, C).
    """
    d = X.shape[1]
    onehot = np.eye(n_classes)[y]

    def value_and_gradient(flat: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        both = flat.reshape(n_classes, d + 1)
        logits = offset + X @ both[:, :-1].T + both[:, -1]
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
