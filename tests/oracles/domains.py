"""Literal forms of what domains are proposed by."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def class_share(domains: Sequence[str], labels: Sequence[str]) -> float:
    """Mean over domains of the share of all classes that a domain has."""
    shares = []
    for domain in set(domains):
        own = {label for d, label in zip(domains, labels, strict=True) if d == domain}
        shares.append(len(own) / len(set(labels)))
    return sum(shares) / len(shares)


def evenness(domains: Sequence[str]) -> float:
    """Entropy of the shares of the domains, divided by the logarithm of their number."""
    entropy = 0.0
    for domain in set(domains):
        share = sum(d == domain for d in domains) / len(domains)
        entropy -= share * math.log(share)
    return entropy / math.log(len(set(domains)))


def without_class_means(features: Floats, labels: Sequence[int]) -> Floats:
    """Subtract from each row the mean of its class."""
    rest = features.copy()
    for row, label in enumerate(labels):
        same = [features[other] for other in range(len(features)) if labels[other] == label]
        rest[row] = features[row] - sum(same) / len(same)
    return rest


def whitened(features: Floats, p: int) -> Floats:
    """First p principal components of centred rows, each with variance one."""
    covariance = sum(np.outer(row, row) for row in features) / len(features)
    values, vectors = np.linalg.eigh(covariance)
    largest = np.argsort(-values)[:p]
    return np.stack([features @ vectors[:, at] / math.sqrt(values[at]) for at in largest], axis=1)


def separability(
    coordinates: Floats, codes: Sequence[int], folds: Sequence[Sequence[int]]
) -> float:
    """Balanced accuracy of ridge regressions with intercept, scaled to 0 at chance and 1 at most.

    A row weighs n / (k n_d): each domain weighs the same. Targets are 1 and -1.
    """
    codes = list(codes)
    k = len(set(codes))
    right = np.zeros(len(codes))
    for test in folds:
        train = [row for row in range(len(codes)) if row not in set(test)]
        present = sorted({codes[row] for row in train})
        size = {c: sum(codes[row] == c for row in train) for c in present}
        weights = np.array([len(train) / (len(present) * size[codes[row]]) for row in train])
        x = coordinates[train]
        mean = (weights[:, None] * x).sum(axis=0) / weights.sum()
        gram = (x - mean).T @ (weights[:, None] * (x - mean)) + np.eye(x.shape[1])
        scores = []
        for c in present if len(present) > 2 else present[1:]:
            y = np.array([1.0 if codes[row] == c else -1.0 for row in train])
            y_mean = (weights * y).sum() / weights.sum()
            beta = np.linalg.solve(gram, (x - mean).T @ (weights * (y - y_mean)))
            scores.append((coordinates[list(test)] - mean) @ beta + y_mean)
        if len(present) == 2:
            scores = [-scores[0], scores[0]]
        best = np.argmax(np.stack(scores), axis=0)
        for row, at in zip(test, best.tolist(), strict=True):
            right[row] = present[at] == codes[row]
    balanced = (
        sum(
            sum(right[row] for row in range(len(codes)) if codes[row] == c) / codes.count(c)
            for c in set(codes)
        )
        / k
    )
    return max(0.0, float(balanced - 1 / k) / (1 - 1 / k))
