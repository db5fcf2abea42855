"""Small test beds with models of known quality."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.extraction.features import ArraySource
from oodzoo.extraction.importing import import_features
from oodzoo.store.feature_store import FeatureStore
from oodzoo.testbed import Column

NOISE = {"best": 0.4, "good": 1.0, "fair": 2.0, "poor": 4.0, "none": 40.0}


ACCURACY = {f"m{i}": 50.0 + i for i in range(12)}


def column(values: list[float]) -> Column:
    """A score of the models in ACCURACY."""
    return Column(dict(zip(ACCURACY, values, strict=True)))


PERFECT = column([float(i) for i in range(12)])
REVERSED = column([-float(i) for i in range(12)])
NEARLY = column([0.0, 2.0, 1.0, *map(float, range(3, 12))])


def arrays(
    n_domains: int = 3, seed: int = 0
) -> tuple[dict[str, NDArray[np.float64]], NDArray[Any], NDArray[Any]]:
    """Models whose features separate three classes with different amounts of noise."""
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
