"""Slow and literal twins of ridge heads: an explicit inverse, and scikit-learn."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import Ridge


def left_out_ridge(
    X: NDArray[Any],
    labels: NDArray[Any],
    domains: NDArray[Any],
    left_out: Set[int],
    ridge: float,
    temperature: float,
    n_classes: int,
) -> NDArray[np.float64]:
    """Log-probabilities (n, n_classes) of the samples of some domains, by the normal equations."""
    Z, others, Y = _parts(X, labels, domains, left_out, n_classes)
    unit = np.mean([z @ z for z in Z])
    inverse = np.linalg.inv(Z.T @ Z + ridge * unit * np.eye(Z.shape[1]))
    W = inverse @ Z.T @ (Y - Y.mean(axis=0))
    return _log_probabilities(temperature * (others @ W + Y.mean(axis=0)), Y)


def left_out_sklearn(
    X: NDArray[Any],
    labels: NDArray[Any],
    domains: NDArray[Any],
    left_out: Set[int],
    ridge: float,
    temperature: float,
    n_classes: int,
) -> NDArray[np.float64]:
    """The same, with the intercept and the solver of scikit-learn."""
    Z, others, Y = _parts(X, labels, domains, left_out, n_classes)
    model = Ridge(alpha=ridge * np.mean([z @ z for z in Z])).fit(Z, Y)
    return _log_probabilities(temperature * model.predict(others), Y)


def _parts(
    X: NDArray[Any],
    labels: NDArray[Any],
    domains: NDArray[Any],
    left_out: Set[int],
    n_classes: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Standardised training samples and left-out samples, and one-hot training labels."""
    train = np.array([domain not in left_out for domain in domains.tolist()])
    X = X.astype(np.float64)
    mean, std = X[train].mean(axis=0), X[train].std(axis=0)
    Z = (X - mean) / np.where(std > 0, std, 1)
    return Z[train], Z[~train], np.eye(n_classes)[labels[train]]


def _log_probabilities(logits: NDArray[np.float64], Y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithms of the softmax over the classes that occur in training."""
    result = np.full(logits.shape, -np.inf)
    for row, values in zip(result, logits, strict=True):
        total = sum(np.exp(values[c]) for c in range(len(values)) if Y[:, c].any())
        for c in range(len(values)):
            if Y[:, c].any():
                row[c] = values[c] - np.log(total)
    return result
