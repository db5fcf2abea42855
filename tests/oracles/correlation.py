"""Rank correlations, pair by pair, from their definitions."""

from __future__ import annotations

import math
from collections.abc import Sequence


def weighted_tau(x: Sequence[float], y: Sequence[float]) -> float:
    """Vigna 2015: additive hyperbolic weights, the mean over both orders of the places."""
    return (_tau(x, y, _hyperbolic(x, y)) + _tau(x, y, _hyperbolic(y, x))) / 2


def kendall_tau(x: Sequence[float], y: Sequence[float]) -> float:
    """Tau-b."""
    return _tau(x, y, [1.0] * len(x))


def _hyperbolic(first: Sequence[float], second: Sequence[float]) -> list[float]:
    order = sorted(range(len(first)), key=lambda i: (-first[i], -second[i]))
    weights = [0.0] * len(first)
    for place, i in enumerate(order):
        weights[i] = 1 / (place + 1)
    return weights


def _tau(x: Sequence[float], y: Sequence[float], weights: Sequence[float]) -> float:
    def product(a: Sequence[float], b: Sequence[float]) -> float:
        return sum(
            _sign(a[i] - a[j]) * _sign(b[i] - b[j]) * (weights[i] + weights[j])
            for i in range(len(a))
            for j in range(len(a))
        )

    return product(x, y) / math.sqrt(product(x, x) * product(y, y))


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
