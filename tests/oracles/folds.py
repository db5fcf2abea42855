"""Ridge regressions of held-out domains, sample by sample, and what is expected of a model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tests.oracles.unseen import Domains, centred, one_hot, ridge_regression, skill

from oodzoo.ranking.transfer import RIDGES

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


def predict(training: Part, Phi: Floats, n_classes: int, relative: float) -> list[int]:
    """The class of the highest output of each sample, among the classes of the training data."""
    X, Y = training[0], one_hot(training[1], n_classes)
    mu, frequencies = X.mean(axis=0), Y.mean(axis=0)
    W = ridge_regression(centred(X), Y - frequencies, relative)
    known = sorted(set(training[1].tolist()))
    each = [frequencies + (phi - mu) @ W for phi in Phi]
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
