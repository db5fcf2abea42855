"""A small zoo on several domains."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import oodzoo
from oodzoo.combining.evaluation import Evaluation
from oodzoo.extraction.features import StoreSource
from oodzoo.extraction.importing import import_features
from oodzoo.tasks import Kind

Arrays = dict[str, NDArray[np.float64]]


def zoo(
    *, n: int = 30, n_domains: int = 4, n_classes: int = 3, seed: int = 0
) -> tuple[Arrays, NDArray[np.int64], NDArray[Any]]:
    """Four models with different noise levels, each with two uninformative features."""
    rng = np.random.default_rng(seed)
    domains = np.repeat([f"d{i}" for i in range(n_domains)], n)
    y = np.tile(np.arange(n) % n_classes, n_domains)
    moved = np.repeat(0.3 * rng.normal(size=(n_domains, 4)), n, axis=0)
    features = {}
    for name, noise in {"poor": 4.0, "best": 0.8, "fair": 1.5, "good": 1.0}.items():
        signal = np.eye(n_classes)[y] @ rng.normal(size=(n_classes, 4))
        informative = signal + moved + noise * rng.normal(size=(len(y), 4))
        features[name] = np.concatenate([informative, rng.normal(size=(len(y), 2))], axis=1)
    return features, y, domains


def task_zoo(
    kind: Kind, *, n: int = 30, d: int = 5, n_domains: int = 4, seed: int = 0
) -> tuple[Arrays, NDArray[np.float64], NDArray[Any]]:
    """Three models, two outputs: numbers of different scales, or labels."""
    rng = np.random.default_rng(seed)
    domains = np.repeat([f"d{i}" for i in range(n_domains)], n)
    size = len(domains)
    latent = rng.normal(size=(size, 3))
    moved = np.repeat(0.2 * rng.normal(size=(n_domains, d)), n, axis=0)
    features = {"noise": rng.normal(size=(size, d))}
    for name, noise in {"good": 0.3, "fair": 2.0}.items():
        seen = latent @ rng.normal(size=(3, d)) + moved
        features[name] = seen + noise * rng.normal(size=(size, d))
    y = latent @ rng.normal(size=(3, 2)) + 0.2 * rng.normal(size=(size, 2))
    if kind == "multilabel":
        return features, (y > [0.0, 1.0]).astype(np.float64), domains
    return features, y * [1.0, 50.0] + [0.0, 300.0], domains


def stored(folder: Path, features: Any, y: Any, domains: Any) -> StoreSource:
    """The same in a store in this folder."""
    folder.mkdir(exist_ok=True)
    np.savez(folder / "f.npz", labels=y.astype(str), domains=domains, **features)
    return StoreSource(import_features([folder / "f.npz"], folder / "store"))


@cache
def evaluated(**options: Any) -> Evaluation:
    """An evaluation of the zoo with few samples. Tests must not change it."""
    return oodzoo.evaluate(*zoo(n=18), **{"top_k": 2, "baselines": False} | options)
