"""Left-out predictions of ridge heads by an explicit inverse, one setting at a time."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray


def left_out_ridge(
    X: NDArray[Any],
    labels: NDArray[Any],
    domains: NDArray[Any],
    left_out: Set[int],
    settings: Sequence[tuple[float, float]],
    n_classes: int,
) -> NDArray[np.float64]:
    """Log-probabilities (n_settings, n, n_classes) of the samples of some domains."""
    train = np.array([domain not in left_out for domain in domains.tolist()])
    X = X.astype(np.float64)
    mean, std = X[train].mean(axis=0), X[train].std(axis=0)
    Z = (X - mean) / np.where(std > 0, std, 1)
    Z, others, Y = Z[train], Z[~train], np.eye(n_classes)[labels[train]]
    unit = np.mean([z @ z for z in Z])
    results = []
    for ridge, temperature in settings:
        inverse = np.linalg.inv(Z.T @ Z + ridge * unit * np.eye(Z.shape[1]))
        W = inverse @ Z.T @ (Y - Y.mean(axis=0))
        results.append(_log_probabilities(temperature * (others @ W + Y.mean(axis=0)), Y))
    return np.stack(results)


def _log_probabilities(logits: NDArray[np.float64], Y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithms of the softmax over the classes that occur in training."""
    result = np.full(logits.shape, -np.inf)
    for row, values in zip(result, logits, strict=True):
        total = sum(np.exp(values[c]) for c in range(len(values)) if Y[:, c].any())
        for c in range(len(values)):
            if Y[:, c].any():
                row[c] = values[c] - np.log(total)
    return result
