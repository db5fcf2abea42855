"""Samples of several domains with numbers or several labels."""

from __future__ import annotations

import numpy as np

from oodzoo.extraction.columns import Samples


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
