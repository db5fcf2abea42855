"""Heads of numbers and labels by scikit-learn, and the quality of their outputs with loops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler

Floats = NDArray[Any]


def regression(X: Floats, y: Floats, others: Floats, ridge: float) -> Floats:
    """Predictions for other samples by a ridge regression of centred, scaled features.

    The scale is the root of the variance of a feature plus the mean variance of all features.
    """
    X, others = X.astype(np.float64), others.astype(np.float64)
    variances = [float(np.mean((x - x.mean()) ** 2)) for x in X.T]
    scales = np.array([math.sqrt(v + sum(variances) / len(variances)) for v in variances])
    Z = (X - X.mean(axis=0)) / scales
    unit = float(np.mean([z @ z for z in Z]))
    columns = []
    for c in range(y.shape[1]):
        mean, std = y[:, c].mean(), y[:, c].std()
        model = Ridge(alpha=ridge * unit).fit(Z, (y[:, c] - mean) / std)
        columns.append(mean + std * model.predict((others - X.mean(axis=0)) / scales))
    return np.stack(columns, axis=1)


def log_odds(X: Floats, y: Floats, others: Floats, C: float) -> Floats:
    """Log-odds of each label by a logistic regression of its own, or from its smoothed rate."""
    scaler = StandardScaler().fit(X.astype(np.float64))
    Z, there = scaler.transform(X.astype(np.float64)), scaler.transform(others.astype(np.float64))
    columns = []
    for c in range(y.shape[1]):
        if len(set(y[:, c].tolist())) == 1:
            rate = (y[:, c].sum() + 0.5) / (len(y) + 1)
            columns.append(np.full(len(others), math.log(rate / (1 - rate))))
        else:
            model = LogisticRegression(C=C, tol=1e-10, max_iter=10_000).fit(Z, y[:, c])
            columns.append(model.decision_function(there))
    return np.stack(columns, axis=1)


def squared_error(outputs: Floats, labels: Floats, every: Floats) -> float:
    """Minus the mean squared error, each output relative to its variance over all samples."""
    total = 0.0
    for c in range(labels.shape[1]):
        mean = sum(every[:, c].tolist()) / len(every)
        variance = sum((y - mean) ** 2 for y in every[:, c].tolist()) / len(every)
        pairs = zip(outputs[:, c].tolist(), labels[:, c].tolist(), strict=True)
        total += sum((p - y) ** 2 for p, y in pairs) / len(labels) / variance
    return float(-total / labels.shape[1])


def likelihood(outputs: Floats, labels: Floats) -> float:
    """Mean log-probability of all labels, zeros and ones."""
    values = []
    for z, y in zip(outputs.ravel().tolist(), labels.ravel().tolist(), strict=True):
        p = 1 / (1 + math.exp(-z))
        values.append(math.log(p if y else 1 - p))
    return sum(values) / len(values)


def greedy_shares(kind: str, domains: Sequence[tuple[Sequence[Floats], Floats]]) -> list[float]:
    """Mean of the weights of heads in greedy selections without each of the domains."""
    every = np.concatenate([labels for _, labels in domains])
    found = []
    for left_out in range(len(domains)):
        kept = [each for at, each in enumerate(domains) if at != left_out]
        found.append(_greedy_weights(kind, kept, every))
    return [sum(column) / len(column) for column in zip(*found, strict=True)]


def _greedy_weights(
    kind: str, domains: Sequence[tuple[Sequence[Floats], Floats]], every: Floats
) -> list[float]:
    n_heads = len(domains[0][0])
    members: list[int] = []
    best, best_value, best_size = [0.0] * n_heads, -math.inf, 0
    for _ in range(30):
        values = []
        for head in range(n_heads):
            value = 0.0
            for heads, labels in domains:
                pool = np.mean([heads[at] for at in [*members, head]], axis=0)
                value += (
                    squared_error(pool, labels, every)
                    if kind == "regression"
                    else likelihood(pool, labels)
                )
            values.append(value)
        members.append(values.index(max(values)))
        if max(values) > best_value:
            best_value, best_size = max(values), len(members)
            best = [members.count(at) / len(members) for at in range(n_heads)]
        elif len(members) == best_size + 10:
            break
    return best
