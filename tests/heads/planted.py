"""Samples of several classes and domains."""

from __future__ import annotations

import numpy as np

from oodzoo.features.columns import Samples


def planted(n: int, d: int, n_classes: int, n_domains: int, seed: int = 0) -> Samples:
    """Classes around centres of their own, each domain moved a little, in odd units."""
    rng = np.random.default_rng(seed)
    labels, domains = np.arange(n) % n_classes, np.arange(n) * n_domains // n
    features = rng.normal(size=(n, d)) + rng.normal(size=(n_classes, d))[labels]
    features += 0.5 * rng.normal(size=(n_domains, d))[domains]
    units = 10.0 ** rng.integers(-2, 3, d)
    return Samples((features * units + 3).astype(np.float32), labels, domains)
