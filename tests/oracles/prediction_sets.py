"""Prediction sets written out from their definition, in exact arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

Scores = Sequence[Any]
"""Of each domain, an array of scores."""


def quantile(scores: Scores, level: Fraction) -> float:
    """The smallest score with at least this share of the weight at or below it.

    Domains weigh alike, and so do the samples of a domain; one more sample is at infinity.
    """
    weighted = [
        (s, Fraction(1, len(scores) * len(each))) for each in scores for s in map(float, each)
    ]
    total = 1 + max(weight for _, weight in weighted)
    for candidate in sorted({score for score, _ in weighted}):
        if sum(w for score, w in weighted if score <= candidate) / total >= level:
            return candidate
    return math.inf


def threshold(scores: Scores, wanted: str) -> float:
    """The quantile of the lowest level that covers held-out domains as wanted, on average."""
    level = Fraction(wanted)
    if len(scores) == 1:
        return quantile(scores, level)
    parts = [[each for n, each in enumerate(scores) if n != at] for at in range(len(scores))]

    def coverage(raised: Fraction) -> Fraction:
        shares = []
        for here, others in zip(scores, parts, strict=True):
            limit = quantile(others, raised)
            shares.append(Fraction(sum(score <= limit for score in here), len(here)))
        return sum(shares, Fraction(0)) / len(shares)

    # The coverage changes just above the shares of the weight up to each score.
    levels = {level}
    for others in parts:
        weighted = [
            (s, Fraction(1, len(others) * len(each))) for each in others for s in map(float, each)
        ]
        total = 1 + max(weight for _, weight in weighted)
        for candidate, _ in weighted:
            levels.add(sum(w for s, w in weighted if s <= candidate) / total + Fraction(1, 10**7))
    for raised in sorted(each for each in levels if each >= level):
        if coverage(raised) >= level:
            return quantile(scores, raised)
    return math.inf


def sets_of(probabilities: Any, score: float) -> list[set[int]]:
    """The classes whose score, minus the probability, is at most this; and the most probable."""
    found = []
    for row in probabilities.tolist():
        members = {c for c, p in enumerate(row) if -p <= score}
        found.append(members | {row.index(max(row))})
    return found


def measured(
    probabilities: dict[str, Any], labels: dict[str, Any], level: str
) -> tuple[dict[str, float], float]:
    """Coverage of each domain in percent with the threshold of the others, and the mean size."""
    coverage, sizes = {}, []
    for name, mine in probabilities.items():
        rest = [
            [-row[y] for row, y in zip(p.tolist(), labels[other].tolist(), strict=True)]
            for other, p in probabilities.items()
            if other != name
        ]
        sets = sets_of(mine, threshold(rest, level))
        hits = [y in members for y, members in zip(labels[name].tolist(), sets, strict=True)]
        coverage[name] = 100 * sum(hits) / len(hits)
        sizes.append(sum(map(len, sets)) / len(sets))
    return coverage, sum(sizes) / len(sizes)
