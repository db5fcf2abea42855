"""Samples of several domains with classes, numbers or several labels."""

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


def numbers(n: int, d: int, n_outputs: int, n_domains: int, seed: int = 0) -> Samples:
    """Outputs are linear in the features, plus noise; each has its own scale and mean."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, d)) * rng.uniform(0.5, 3, d) + rng.normal(size=d)
    signal = features @ rng.normal(size=(d, n_outputs)) / np.sqrt(d)
    labels = signal + rng.normal(size=(n, n_outputs))
    labels = labels * 10.0 ** np.arange(n_outputs) + 7.0 * np.arange(n_outputs)
    return Samples(features.astype(np.float32), labels, np.arange(n) % n_domains)


def several_labels(n: int, d: int, n_labels: int, n_domains: int, seed: int = 0) -> Samples:
    """Labels of samples on one side of a plane, the first ones of fewer samples."""
    samples = numbers(n, d, n_labels, n_domains, seed)
    limits = [
        np.quantile(column, 0.5 + 0.4 / (at + 1)) for at, column in enumerate(samples.labels.T)
    ]
    return samples._replace(labels=(samples.labels > np.array(limits)).astype(np.float64))
