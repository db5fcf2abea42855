"""Random problems of many shapes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Problem(NamedTuple):
    X: Any
    y: Any
    domains: Any


def problem(
    n: int, d: int, n_classes: int, seed: int = 0, separation: float = 1.0, rank: int | None = None
) -> Problem:
    """Features with a mean, unequal scales and correlations; classes and domains unequal."""
    rng = np.random.default_rng([n, d, n_classes, seed])
    weights = np.arange(n_classes, 0, -1.0)
    y = rng.choice(n_classes, size=n, p=weights / weights.sum())
    y[:n_classes] = np.arange(n_classes)
    y[n_classes : 2 * n_classes] = np.arange(n_classes)
    latent = separation * rng.normal(size=(n_classes, rank or d))[y]
    latent = latent + rng.normal(size=(n, rank or d))
    X = 0.3 + latent @ rng.normal(size=(rank or d, d)) / np.sqrt(rank or d)
    X = X * rng.uniform(0.3, 2.0, size=d)
    return Problem(X, y, rng.permutation(np.arange(n) % 3))


SHAPES = [(30, 1, 2), (40, 3, 3), (60, 10, 5), (25, 25, 2), (26, 25, 3), (20, 50, 2), (30, 80, 4)]
"""(n, d, classes): more samples than features, as many, fewer."""
