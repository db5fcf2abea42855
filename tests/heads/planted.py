"""Samples of several classes and domains."""

from __future__ import annotations

from collections.abc import Set

import numpy as np

from oodzoo.extraction.columns import Samples

SHAPES = [(80, 6), (60, 100), (48, 24)]
"""More samples than features, fewer, and both, depending on the domains left out."""

SETS = [frozenset({a, b}) for a in range(4) for b in range(a, 4)]
"""All sets of one or two of four domains."""


def planted(n: int, d: int, n_classes: int, n_domains: int, seed: int = 0) -> Samples:
    """Classes around centres of their own, each domain moved a little, in odd units."""
    rng = np.random.default_rng(seed)
    labels, domains = np.arange(n) % n_classes, np.arange(n) * n_domains // n
    features = rng.normal(size=(n, d)) + rng.normal(size=(n_classes, d))[labels]
    features += 0.5 * rng.normal(size=(n_domains, d))[domains]
    units = 10.0 ** rng.integers(-2, 3, d)
    return Samples((features * units + 3).astype(np.float32), labels, domains)


def scrambled(samples: Samples, left_out: Set[int]) -> Samples:
    """Other features of all samples of some domains but the first, and other labels of all."""
    rows = np.flatnonzero(np.isin(samples.domains, list(left_out)))
    rng = np.random.default_rng(1)
    features, labels = samples.features.copy(), samples.labels.copy()
    features[rows[1:]] = 1e3 * rng.normal(size=(len(rows) - 1, features.shape[1]))
    labels[rows] = rng.integers(0, labels.max() + 1, len(rows))
    return Samples(features, labels, samples.domains)
