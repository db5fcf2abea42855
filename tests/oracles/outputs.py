"""Heads of numbers and labels by scikit-learn, and the quality of their outputs with loops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from tests.oracles.ridge import split_ridge

Floats = NDArray[Any]


def regression(X: Floats, y: Floats, others: Floats, ridge: float) -> Floats:
    """Predictions for other samples by a ridge regression of all given ones."""
    every = np.vstack([X, others]), np.vstack([y, np.zeros((len(others), y.shape[1]))])
    folds = np.r_[np.arange(len(X)) % 2, np.full(len(others), -1)]
    return split_ridge(*every, folds, ridge)[1]


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


def class_likelihood(outputs: Floats, labels: Floats) -> float:
    """Mean log-probability of the labels; those of a class that was not in training do not count.

    0 if there are no others.
    """
    found = [float(row[c]) for row, c in zip(outputs, labels.tolist(), strict=True)]
    known = [value for value in found if value > -math.inf]
    return sum(known) / len(known) if known else 0.0


def quality(kind: str, outputs: Floats, labels: Floats, every: Floats) -> float:
    """The quality of outputs for some samples; `every` are the labels of all domains."""
    if kind == "regression":
        return squared_error(outputs, labels, every)
    return (class_likelihood if kind == "classification" else likelihood)(outputs, labels)


def best_setting(
    kind: str,
    left_out: Sequence[Floats],
    within: Sequence[Floats] | None,
    labels: Sequence[Floats],
    share: float,
) -> int:
    """The setting of the highest quality, a share of it on held-out domains, the rest within."""
    every, values = np.concatenate(labels), []
    for at in range(len(left_out[0])):
        value = 0.0
        for domain, y in enumerate(labels):
            outside = quality(kind, left_out[domain][at], y, every)
            inside = outside if within is None else quality(kind, within[domain][at], y, every)
            value += share * outside + (1 - share) * inside
        values.append(value)
    return values.index(max(values))
