"""The evaluation of chosen models written out step by step, with loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tests.oracles.outputs import best_setting
from tests.oracles.ridge import split_classes

from oodzoo.linear.heads.ridge import SETTINGS


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


def chosen_head(X: Any, y: Any, domains: Any, folds: Any, n_classes: int) -> Any:
    """Log-probabilities of the samples of domain and fold -1, by a head of all others.

    Its ridge and temperature are best for held-out domains and folds, which weigh alike.
    """
    training = domains >= 0
    left_out, unseen = split_classes(X, y, domains, SETTINGS, n_classes)
    within, _ = split_classes(X, y, folds, SETTINGS, n_classes)
    rows = [domains[training] == domain for domain in sorted(set(domains[training].tolist()))]
    setting = best_setting(
        "classification",
        [left_out[:, of_domain] for of_domain in rows],
        [within[:, of_domain] for of_domain in rows],
        [y[training][of_domain] for of_domain in rows],
        0.5,
    )
    return unseen[setting]
