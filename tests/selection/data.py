"""Three models on three domains, and linear problems with a ridge start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.extraction.importing import import_features
from oodzoo.store.feature_store import FeatureStore

Floats = NDArray[np.float64]
Arrays = tuple[dict[str, Any], Any, Any]


def arrays() -> Arrays:
    """Three models on 3 domains x 60 images; the features of one are noise."""
    rng = np.random.default_rng(0)
    y, domains = np.tile([0, 1, 2], 60), np.repeat(["a", "b", "c"], 60)
    one_hot = np.eye(3)[y]
    features = {
        "good": np.hstack([one_hot, np.zeros((180, 4))]) + 0.3 * rng.normal(size=(180, 7)),
        "fair": np.hstack([one_hot, np.zeros((180, 2))]) + 0.6 * rng.normal(size=(180, 5)),
        "noise": rng.normal(size=(180, 4)),
    }
    return {name: f.astype(np.float32) for name, f in features.items()}, y, domains


def store(folder: Path) -> FeatureStore:
    """A store of :func:`arrays`."""
    features, y, domains = arrays()
    np.savez(folder / "f.npz", labels=y.astype(str), domains=domains, **features)
    return import_features([folder / "f.npz"], folder / "store")


def linear_problem(seed: int, n: int, d: int, n_targets: int) -> tuple[Floats, Floats, Floats]:
    """Features, targets and a ridge start."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 0.5 * rng.normal(size=(n, 1))
    weights = rng.uniform(1, 3, size=(d, n_targets)) * (rng.random((d, n_targets)) < 0.4)
    Y = X @ weights + rng.normal(size=(n, n_targets))
    start: Floats = np.linalg.solve(X.T @ X + np.eye(d), X.T @ Y).astype(np.float64)
    return X, Y, start


def two_models() -> Arrays:
    """Two models on 3 domains x 60 images; one feature of each is the same, six are noise."""
    rng = np.random.default_rng(0)
    y = np.tile([0, 1, 2], 60)
    domains = np.repeat(["a", "b", "c"], 60)
    good = np.eye(3)[y] + 0.1 * rng.normal(size=(180, 3))
    features = {
        "one": np.concatenate([good, rng.normal(size=(180, 4))], axis=1),
        "two": np.concatenate([rng.normal(size=(180, 2)), good[:, :1]], axis=1),
    }
    return features, y, domains
