"""A small test bed with models of known quality."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.features.importing import import_features
from oodzoo.features.source import ArraySource
from oodzoo.features.store import FeatureStore

NOISE = {"best": 0.4, "good": 1.0, "fair": 2.0, "poor": 4.0, "none": 40.0}


def arrays(
    n_domains: int = 3, seed: int = 0
) -> tuple[dict[str, NDArray[np.float64]], NDArray[Any], NDArray[Any]]:
    """Models whose features tell three classes apart through more or less noise."""
    rng = np.random.default_rng(seed)
    n = 45
    y = np.tile(np.arange(n) % 3, n_domains)
    domains = np.repeat([f"d{i}" for i in range(n_domains)], n)
    features = {}
    for at, (name, level) in enumerate(NOISE.items()):
        d = 4 + at
        signal = 1.5 * np.eye(3, d)[y]
        features[name] = signal + level * rng.normal(size=(len(y), d))
    return features, y.astype(str), domains


def source(n_domains: int = 3) -> ArraySource:
    return ArraySource(*arrays(n_domains))


def store(folder: Path, n_domains: int = 3) -> FeatureStore:
    features, y, domains = arrays(n_domains)
    np.savez(folder / "f.npz", labels=y, domains=domains, **features)  # type: ignore[arg-type]
    return import_features([folder / "f.npz"], folder / "store")
