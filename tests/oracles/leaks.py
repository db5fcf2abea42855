"""Near-duplicates by their features, one pair of images after the other."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.floating]


def similarities(models: Sequence[Matrix]) -> dict[tuple[int, int], float]:
    """The mean over models of the cosine in the metric of the shrunk inverse covariance."""
    cosines: dict[tuple[int, int], list[float]] = {}
    for features in models:
        n, d = features.shape
        centred = features - features.mean(axis=0)
        covariance = sum(np.outer(row, row) for row in centred) / n
        shrunk = covariance + 0.1 * np.trace(covariance) / min(d, n - 1) * np.eye(d)
        metric = np.linalg.inv(shrunk)
        lengths = [np.sqrt(x @ metric @ x) for x in centred]
        for i, j in combinations(range(n), 2):
            cosine = centred[i] @ metric @ centred[j] / (lengths[i] * lengths[j])
            cosines.setdefault((i, j), []).append(cosine)
    return {pair: statistics.fmean(values) for pair, values in cosines.items()}


def threshold(similar: dict[tuple[int, int], float], domains: Sequence[str]) -> float:
    """The smallest similarity of near-duplicates of different domains."""
    across = [abs(s) for (i, j), s in similar.items() if domains[i] != domains[j]]
    return min(max(0.35, 10 * 1.4826 * statistics.median(across)), 0.98)


def near_duplicates(
    models: Sequence[Matrix], domains: Sequence[str], groups: Sequence[str | None]
) -> dict[tuple[int, int], float]:
    """The similarity of each pair of near-duplicates, by the positions of its images."""
    n = len(domains)
    similar = similarities(models)
    lowest = threshold(similar, domains)

    def together(i: int, j: int) -> bool:
        return groups[i] is not None and groups[i] == groups[j]

    def closest(i: int) -> float:
        return max(
            s
            for pair, s in similar.items()
            if i in pair and domains[pair[0]] == domains[pair[1]] and not together(*pair)
        )

    limits = {
        domain: max(
            lowest,
            min(
                (1 + statistics.median(closest(i) for i in range(n) if domains[i] == domain)) / 2,
                0.98,
            ),
        )
        for domain in set(domains)
    }
    found = {}
    for (i, j), s in similar.items():
        if domains[i] != domains[j]:
            if s >= lowest:
                found[i, j] = s
        elif s >= limits[domains[i]] and not together(i, j):
            found[i, j] = s
    return found


def task_pairs(rows: Sequence[int], columns: Sequence[int] | None) -> set[tuple[int, int]]:
    """The pairs that a task compares, the smaller position first."""
    if columns is None:
        return {(min(i, j), max(i, j)) for i, j in combinations(rows, 2)}
    return {(min(i, j), max(i, j)) for i in rows for j in columns}


def correlation(first: Sequence[Matrix], second: Sequence[Matrix], side: int) -> float:
    """The largest correlation of a whole thumbnail, or its mirror image, with a part of another."""
    best = -1.0
    for whole, parts in ((first[0], second), (second[0], first)):
        for target in (whole, whole[:, ::-1]):
            for part in parts:
                for top in range(len(part) - side + 1):
                    for left in range(len(part) - side + 1):
                        window = part[top : top + side, left : left + side]
                        both = np.corrcoef(window.ravel(), target.ravel())
                        best = max(best, float(both[0, 1]))
    return best
