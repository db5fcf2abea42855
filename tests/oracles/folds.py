"""Ridge regressions of held-out domains, sample by sample, and what is expected of a model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tests.oracles.unseen import Domains, one_hot

from oodzoo.ranking.ridge import RIDGES

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
Part = tuple[Floats, Labels]
"""Features and labels of some samples."""


class Result(NamedTuple):
    """Of one held-out domain."""

    ridge: int
    predicted: list[int]
    accuracy: float
    balanced_accuracy: float


def pooled(data: Domains, names: Sequence[str]) -> Part:
    """The samples of some domains together."""
    return np.vstack([data[k][0] for k in names]), np.concatenate([data[k][1] for k in names])


def outputs(training: Part, Phi: Floats, n_classes: int, relative: float) -> Floats:
    """Predictions ȳ + Wᵀ(φ - μ), W = (Σ + δI)⁻¹ Σ_xy; δ relative to the mean eigenvalue of Σ."""
    X, Y = training[0], one_hot(training[1], n_classes)
    n, d = X.shape
    mu, frequencies = X.mean(axis=0), Y.mean(axis=0)
    covariance = (X - mu).T @ (X - mu)
    W = np.zeros((d, n_classes))
    if np.ptp(X, axis=0).any():
        delta = relative * float(np.trace(covariance)) / min(n, d)
        W = np.linalg.inv(covariance + delta * np.eye(d)) @ (X - mu).T @ (Y - frequencies)
    return np.stack([frequencies + (phi - mu) @ W for phi in Phi])


def skill(training: Part, target: Part, n_classes: int, relative: float) -> float:
    """Share of the variance of the labels that is predicted, in [0, 1]; NaN for a single class."""
    Y = one_hot(target[1], n_classes)
    own = Y.mean(axis=0)
    error = variance = 0.0
    for y, output in zip(Y, outputs(training, target[0], n_classes, relative), strict=True):
        error += float(sum((y - output) ** 2))
        variance += float(sum((y - own) ** 2))
    return min(max(1 - error / variance, 0.0), 1.0) if variance > 0 else math.nan


def predict(training: Part, Phi: Floats, n_classes: int, relative: float) -> list[int]:
    """The class of the highest output of each sample, among the classes of the training data."""
    known = sorted(set(training[1].tolist()))
    each = outputs(training, Phi, n_classes, relative)
    return [max(known, key=lambda c: row[c]) for row in each]


def best_ridge(folds: Sequence[tuple[Part, Part]], n_classes: int) -> int:
    """The ridge with the highest mean skill over (training, held-out) pairs; the first of ties."""
    means = []
    for relative in RIDGES:
        each = [skill(training, target, n_classes, relative) for training, target in folds]
        known = [value for value in each if not math.isnan(value)]
        means.append(sum(known) / len(known) if known else 0.0)
    return means.index(max(means))


def held_out(folds: Mapping[str, tuple[Part, Part]], n_classes: int) -> dict[str, Result]:
    """Results on each held-out domain from its training samples and its own."""
    ridge = best_ridge(list(folds.values()), n_classes)
    results = {}
    for name, (training, (Phi, y)) in folds.items():
        predicted = predict(training, Phi, n_classes, RIDGES[ridge])
        correct = [p == label for p, label in zip(predicted, y.tolist(), strict=True)]
        recalls = []
        for label in sorted(set(y.tolist())):
            own = [c for c, other in zip(correct, y.tolist(), strict=True) if other == label]
            recalls.append(sum(own) / len(own))
        results[name] = Result(
            ridge, predicted, sum(correct) / len(correct), sum(recalls) / len(recalls)
        )
    return results


def leave_one_out(data: Domains, n_classes: int) -> dict[str, Result]:
    """Hold out each domain in turn and train on the others."""
    folds = {k: (pooled(data, [e for e in data if e != k]), data[k]) for k in data}
    return held_out(folds, n_classes)


def chosen_without(rest: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """The model chosen without each domain, by scores of models; of ties, the first name."""
    return {
        domain: min(scores, key=lambda model: (-scores[model], model))
        for domain, scores in rest.items()
    }
