"""Domains that are hard to compute with, or that leave something undefined."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tests.ranking.data import CASES, Data, simulate_domains


def moved(data: Data, size: float) -> Data:
    """The same offset for all domains, `size` times the spread of a feature."""
    d = data["a"][0].shape[1]
    offset = size * np.random.default_rng(5).normal(size=d)
    return {name: (Phi + offset, y) for name, (Phi, y) in data.items()}


def exploded() -> Data:
    """The first feature is 1e6 times as large in domain a."""
    data = simulate_domains([60, 50, 40], 8)
    data["a"][0][:, 0] *= 1e6
    return data


def constant(value: float, names: str) -> Callable[[], Data]:
    """All features of some domains are constant."""
    return lambda: {
        name: (np.full_like(Phi, value) if name in names else Phi, y)
        for name, (Phi, y) in simulate_domains([60, 50, 40], 8).items()
    }


def some_constant() -> Data:
    return {
        name: (np.hstack([Phi, np.full((len(Phi), 3), 0.1)]), y)
        for name, (Phi, y) in simulate_domains([60, 50, 40], 8).items()
    }


ODD_CASES = CASES | {
    "very different sizes": lambda: simulate_domains([900, 60, 9], 8),
    "one feature": lambda: simulate_domains([30, 20, 25], 1),
    "zero features": constant(0.0, "abc"),
    "constant features": constant(0.1, "abc"),
    "constant features in one domain": constant(0.1, "b"),
    "some constant features": some_constant,
    "an exploding feature": exploded,
    "a class without samples": lambda: simulate_domains([60, 50, 40], 8, n_classes=2),
}
