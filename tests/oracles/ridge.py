"""Predictions of ridge regressions by an explicit inverse, one fit at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def left_out_ridge(
    X: NDArray[Any],
    labels: NDArray[Any],
    domains: NDArray[Any],
    left_out: Set[int],
    settings: Sequence[tuple[float, float]],
    n_classes: int,
) -> Floats:
    """Log-probabilities (n_settings, n, n_classes) of the samples of some domains."""
    train = np.array([domain not in left_out for domain in domains.tolist()])
    X, Y = X.astype(np.float64), np.eye(n_classes)[labels]
    results = []
    for ridge, temperature in settings:
        outputs = _fitted(X[train], Y[train], X[~train], X[train], ridge)
        results.append(log_probabilities(temperature * outputs, labels[train]))
    return np.stack(results)


def split_ridge(
    X: NDArray[Any], Y: NDArray[Any], folds: NDArray[Any], ridge: float
) -> tuple[Floats, Floats]:
    """Outputs for samples by the other folds, and for those of fold -1 by all other samples.

    The scale and the penalty are those of all samples that have a fold.
    """
    X, Y = X.astype(np.float64), Y.astype(np.float64)
    every = folds >= 0
    found = np.zeros((len(X), Y.shape[1]))
    for fold in sorted(set(folds.tolist())):
        here = folds == fold
        rows = every & ~here
        found[here] = _fitted(X[rows], Y[rows], X[here], X[every], ridge)
    return found[every], found[~every]


def split_classes(
    X: NDArray[Any],
    labels: NDArray[Any],
    folds: NDArray[Any],
    settings: Sequence[tuple[float, float]],
    n_classes: int,
) -> tuple[Floats, Floats]:
    """Log-probabilities (n_settings, n, n_classes) of the samples as in :func:`split_ridge`."""
    every = folds >= 0
    inside = np.empty((len(settings), int(every.sum()), n_classes))
    outside = np.empty((len(settings), int((~every).sum()), n_classes))
    for at, (ridge, temperature) in enumerate(settings):
        outputs, rest = split_ridge(X, np.eye(n_classes)[labels], folds, ridge)
        outside[at] = log_probabilities(temperature * rest, labels[every])
        for fold in sorted(set(folds[every].tolist())):
            rows = folds[every] == fold
            known = labels[every & (folds != fold)]
            inside[at, rows] = log_probabilities(temperature * outputs[rows], known)
    return inside, outside


def log_probabilities(logits: Floats, labels: NDArray[Any]) -> Floats:
    """Logarithms of the softmax over the classes that occur in training."""
    result, known = np.full(logits.shape, -np.inf), sorted(set(labels.tolist()))
    for row, values in zip(result, logits, strict=True):
        largest = max(values[c] for c in known)
        total = sum(math.exp(values[c] - largest) for c in known)
        for c in known:
            row[c] = values[c] - largest - math.log(total)
    return result


def _fitted(X: Floats, Y: Floats, others: Floats, every: Floats, ridge: float) -> Floats:
    """Outputs for others; the scale and the penalty are those of `every` sample."""
    variances = [float(np.mean((x - x.mean()) ** 2)) for x in every.T]
    mean_variance = sum(variances) / len(variances)
    scale = np.array([math.sqrt(v + mean_variance) if mean_variance else 1 for v in variances])
    unit = float(np.mean([z @ z for z in (every - every.mean(axis=0)) / scale]))
    Z, mean = (X - X.mean(axis=0)) / scale, Y.mean(axis=0)
    inverse = np.linalg.inv(Z.T @ Z + ridge * (unit or 1) * np.eye(Z.shape[1]))
    result: Floats = (others - X.mean(axis=0)) / scale @ inverse @ Z.T @ (Y - mean) + mean
    return result
