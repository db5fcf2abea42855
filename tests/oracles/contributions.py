"""Slow and literal twin of the contributions of features to held-out domains.

Ridge regressions are solved in the space of the features, one domain and one class at a time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def contributions(
    X: Floats, y: NDArray[np.int64], domains: NDArray[np.int64], n_classes: int
) -> tuple[Floats, NDArray[np.int64]]:
    """Contribution of each feature, and the class that it contributes most to."""
    one_hot = np.array([[float(label == c) for c in range(n_classes)] for label in y])
    return contributions_to_columns(X, one_hot, domains)


def contributions_to_columns(
    X: Floats, Y: Floats, domains: NDArray[np.int64]
) -> tuple[Floats, NDArray[np.int64]]:
    """The same for columns of numbers."""
    n_classes = Y.shape[1]
    spread = X.std(axis=0)
    Z = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1)
    errors, tables = [], []
    for rho in [1e-4, 1e-3, 1e-2, 1e-1, 1e0, 1e1, 1e2]:
        error, table = 0.0, np.zeros((n_classes, X.shape[1]))
        for e in np.unique(domains):
            train, left_out = domains != e, domains == e
            centre = Z[train].mean(axis=0)
            A = Z[train] - centre
            penalty = rho * np.trace(A @ A.T) / train.sum()
            square = 0.0
            for c in range(n_classes):
                target = Y[:, c]
                mean = target[train].mean()
                gram = A.T @ A + penalty * np.eye(A.shape[1])
                w = np.linalg.solve(gram, A.T @ (target[train] - mean))
                predicted = mean + (Z[left_out] - centre) @ w
                square += np.mean((target[left_out] - predicted) ** 2)
                for j in range(X.shape[1]):
                    covariance = np.cov(Z[left_out, j], target[left_out], bias=True)[0, 1]
                    table[c, j] += w[j] * covariance
            error += square
        errors.append(error)
        tables.append(table / len(np.unique(domains)))
    best = tables[int(np.argmin(errors))]
    return best.sum(axis=0), best.argmax(axis=0)
