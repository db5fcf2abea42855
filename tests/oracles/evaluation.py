"""The evaluation of chosen models written out step by step, with loops and scikit-learn."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler

C_GRID = [1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0]


def accuracy(probabilities: Any, labels: Any) -> float:
    right = 0
    for row, label in zip(probabilities, labels, strict=True):
        right += int(np.argmax(row) == label)
    return right / len(labels)


def balanced_accuracy(probabilities: Any, labels: Any) -> float:
    recalls = []
    for label in sorted(set(labels.tolist())):
        mine = [row for row, other in zip(probabilities, labels, strict=True) if other == label]
        recalls.append(sum(bool(np.argmax(row) == label) for row in mine) / len(mine))
    return sum(recalls) / len(recalls)


def calibration_error(probabilities: Any, labels: Any, bins: int) -> float:
    total = 0.0
    for b in range(1, bins + 1):
        inside = []
        for row, label in zip(probabilities, labels, strict=True):
            place = max(1, math.ceil(max(row) * bins))
            if place == b:
                inside.append((float(np.argmax(row) == label), max(row)))
        if inside:
            right = sum(one for one, _ in inside) / len(inside)
            sure = sum(two for _, two in inside) / len(inside)
            total += len(inside) / len(labels) * abs(right - sure)
    return total


def head(features: Any, labels: Any, domains: Any) -> tuple[StandardScaler, LogisticRegression]:
    """Logistic regression; its strength is chosen by domains left out in turn.

    Of those within a standard error of the best accuracy, the one with the greatest likelihood.
    """
    scaler = StandardScaler().fit(features)
    features = scaler.transform(features)
    scores, likelihoods = [], []
    for C in C_GRID:
        right, likelihood = [], []
        for domain in sorted(set(domains)):
            train, test = domains != domain, domains == domain
            model = LogisticRegression(C=C, tol=1e-8, max_iter=10_000)
            model.fit(features[train], labels[train])
            right.append(model.score(features[test], labels[test]))
            likelihood.append(-log_loss(labels[test], model.predict_proba(features[test])))
        scores.append(np.mean(right))
        likelihoods.append(np.mean(likelihood))
    best = max(scores)
    least = best - np.sqrt(best * (1 - best) / len(labels)) - 1e-9
    good = [at for at, score in enumerate(scores) if score >= least]
    C = C_GRID[max(good, key=lambda at: likelihoods[at])]
    model = LogisticRegression(C=C, tol=1e-8, max_iter=10_000)
    return scaler, model.fit(features, labels)
