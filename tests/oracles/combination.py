"""Pools of heads and the choice between ways to combine models, literally, with loops."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]
Labels = NDArray[np.int64]


def pool(heads: Sequence[Floats]) -> Floats:
    """Normalised geometric mean of the probabilities (n, C) of some heads; log-probabilities."""
    n, n_classes = heads[0].shape
    result = np.empty((n, n_classes))
    for i in range(n):
        products = [math.prod(math.exp(h[i, c]) ** (1 / len(heads)) for h in heads)
                    for c in range(n_classes)]  # fmt: skip
        for c in range(n_classes):
            result[i, c] = math.log(products[c] / sum(products)) if products[c] else -math.inf
    return result


def likelihood(log_probabilities: Floats, labels: Labels) -> float:
    """Mean normalised log-probability of the labels; nothing counts as less than -100."""
    values: list[float] = []
    for row, label in zip(log_probabilities.tolist(), labels.tolist(), strict=True):
        raised = [max(value, -100.0) for value in row]
        total = sum(math.exp(value) for value in raised)
        values.append(raised[label] - math.log(total))
    return sum(values) / len(values)


def greedy_weights(domains: Sequence[tuple[Sequence[Floats], Labels]]) -> list[float]:
    """Add the best head thirty times; weights of the best pool on the way.

    The search ends after ten rounds without a better pool.
    """
    n_heads = len(domains[0][0])
    members: list[int] = []
    best, best_value, best_size = [0.0] * n_heads, -math.inf, 0
    for _ in range(30):
        values = []
        for head in range(n_heads):
            value = 0.0
            for heads, labels in domains:
                chosen = [np.maximum(heads[at], -100) for at in [*members, head]]
                value += likelihood(sum(chosen[1:], chosen[0]) / len(chosen), labels)
            values.append(value)
        members.append(values.index(max(values)))
        if max(values) > best_value:
            best_value, best_size = max(values), len(members)
            best = [members.count(at) / len(members) for at in range(n_heads)]
        elif len(members) == best_size + 10:
            break
    return best


def greedy_shares(domains: Sequence[tuple[Sequence[Floats], Labels]]) -> list[float]:
    """Mean of the weights without each of the domains, of samples whose class a head knows."""
    kept = []
    for heads, labels in domains:
        rows = [i for i, c in enumerate(labels.tolist()) if max(h[i, c] for h in heads) > -100]
        if rows:
            kept.append(([head[rows] for head in heads], labels[rows]))
    if not kept:
        return [1 / len(domains[0][0])] * len(domains[0][0])
    if len(kept) == 1:
        return greedy_weights(kept)
    found = [
        greedy_weights([kept[other] for other in range(len(kept)) if other != left_out])
        for left_out in range(len(kept))
    ]
    return [sum(column) / len(column) for column in zip(*found, strict=True)]


def most_likely(paths: Sequence[Floats], labels: Sequence[Labels]) -> int:
    """The setting with the highest likelihood, domains weighing alike."""
    return _most_likely(range(len(paths[0])), paths, labels)


def most_accurate(paths: Sequence[Floats], labels: Sequence[Labels]) -> int:
    """Of the settings within a standard error of the most accurate one, the most likely."""
    accuracies = []
    for at in range(len(paths[0])):
        means = []
        for path, y in zip(paths, labels, strict=True):
            means.append(
                sum(int(np.argmax(row)) == c for row, c in zip(path[at], y, strict=True)) / len(y)
            )
        accuracies.append(sum(means) / len(means))
    best, n = max(accuracies), sum(len(y) for y in labels)
    least = best - math.sqrt(best * (1 - best) / n) - 1e-9
    return _most_likely(
        [at for at, accuracy in enumerate(accuracies) if accuracy >= least], paths, labels
    )


def _most_likely(settings: Sequence[int], paths: Sequence[Floats], labels: Sequence[Labels]) -> int:
    """Samples of a class that was not in training, with -inf, do not count."""
    found = {}
    for at in settings:
        means = []
        for path, y in zip(paths, labels, strict=True):
            known = [
                float(row[c]) for row, c in zip(path[at], y, strict=True) if row[c] > -math.inf
            ]
            means.append(sum(known) / len(known) if known else 0.0)
        found[at] = sum(means) / len(means)
    return max(found, key=lambda at: found[at])


def recommended(correct: Mapping[str, Sequence[Sequence[bool]]], costs: Mapping[str, float]) -> str:
    """The pool or what is better between domains; then the cheapest that is close everywhere."""

    def accuracies(name: str) -> list[float]:
        return [sum(each) / len(each) for each in correct[name]]

    best = max(correct, key=lambda name: sum(accuracies(name)))
    gains = [a - b for a, b in zip(accuracies(best), accuracies("pool"), strict=True)]
    mean, error = sum(gains) / len(gains), math.inf
    if len(gains) > 1:
        variance = sum((gain - mean) ** 2 for gain in gains) / (len(gains) - 1)
        error = math.sqrt(variance / len(gains))
    if mean <= error + 1e-12:
        best = "pool"
    close = []
    for name, domains in correct.items():
        everywhere = True
        for mine, theirs in zip(domains, correct[best], strict=True):
            gaps = [int(b) - int(a) for a, b in zip(mine, theirs, strict=True)]
            gap = sum(gaps) / len(gaps)
            spread = math.sqrt(sum((each - gap) ** 2 for each in gaps) / len(gaps))
            everywhere = everywhere and gap <= spread / math.sqrt(len(gaps)) + 1e-12
        if everywhere:
            close.append(name)
    return min(close, key=lambda name: (costs[name], name != best))


def standardised(X: Floats, weights: Sequence[float]) -> Floats:
    """Weighted mean 0 and weighted standard deviation 1 of each column; 0 for a constant one."""
    total = sum(weights)
    result = np.zeros(X.shape)
    for j in range(X.shape[1]):
        mean = sum(w * x for w, x in zip(weights, X[:, j].tolist(), strict=True)) / total
        square = sum(w * (x - mean) ** 2 for w, x in zip(weights, X[:, j].tolist(), strict=True))
        if len(set(X[:, j].tolist())) > 1:
            result[:, j] = (X[:, j] - mean) / math.sqrt(square / total)
    return result
