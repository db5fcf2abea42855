"""Simulated domains, and simulated models of different quality."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import oodzoo
from oodzoo.extraction.importing import import_features
from oodzoo.linear.moments import Moments
from oodzoo.ranking.transfer import ModelMoments
from oodzoo.ranking.zood import HeldOutDomains, HeldOutFold

Data = dict[str, tuple[NDArray[Any], NDArray[Any]]]
Arrays = dict[str, NDArray[np.float64]]


def simulate_domains(
    sizes: Iterable[int], d: int, n_classes: int = 3, rank: int | None = None, seed: int = 0
) -> Data:
    """Domains that differ in mean, with labels that depend on the features."""
    rng = np.random.default_rng(seed)
    latent = rank or d
    mix = np.eye(d) if rank is None else rng.normal(size=(latent, d))
    W = rng.normal(size=(latent, n_classes))
    data = {}
    for number, n in enumerate(sizes):
        Z = rng.normal(size=(n, latent)) + 0.5 * rng.normal(size=latent) + 1
        y = (Z @ W + rng.normal(size=(n, n_classes))).argmax(1)
        data["abcdef"[number]] = (Z @ mix, y)
    return data


def moments_of(data: Data, n_classes: int, device: str | None = None) -> dict[str, Moments]:
    return {name: Moments.of(*data[name], n_classes, device=device) for name in data}


def read(data: Data, n_classes: int = 3, device: str | None = None) -> ModelMoments:
    moments = moments_of(data, n_classes, device)
    return ModelMoments(moments, lambda name: [data[name]], device=device)


def folds_of(data: Data, n_classes: int = 3, device: str | None = None) -> list[HeldOutFold]:
    return HeldOutDomains(read(data, n_classes, device)).folds(densities=True)


def dominated() -> Data:
    data = simulate_domains([500, 12, 15], 6)
    return {name: (Phi * (1e3 if name == "a" else 1), y) for name, (Phi, y) in data.items()}


def lacking() -> Data:
    data = simulate_domains([60, 50, 40], 8)
    keep = data["a"][1] != 2
    data["a"] = (data["a"][0][keep], data["a"][1][keep])
    data["b"] = (data["b"][0], np.where(data["b"][1] == 2, 1, data["b"][1]))
    return data  # class 2 is in c alone


CASES: dict[str, Callable[[], Data]] = {
    "n > d": lambda: simulate_domains([60, 50, 40], 8),
    "n < d": lambda: simulate_domains([20, 25, 15], 100),
    "rank-deficient": lambda: simulate_domains([60, 50, 40], 20, rank=4),
    "a dominating domain": dominated,
    "a class absent from some domains": lacking,
    "four domains": lambda: simulate_domains([30, 20, 40, 10], 5),
    "two domains": lambda: simulate_domains([30, 40], 5),
    "a domain with one class": lambda: {
        **simulate_domains([60, 50], 8),
        "c": (np.ones((9, 8)), np.zeros(9, int)),
    },
    "one sample": lambda: simulate_domains([60, 50, 1], 8),
}


def simulate_models(
    noise: dict[str, float], *, n: int = 40, n_domains: int = 4, d: int = 6, seed: int = 0
) -> tuple[Arrays, NDArray[np.int64], NDArray[Any]]:
    """Models whose features tell three classes apart through more or less noise."""
    rng = np.random.default_rng(seed)
    domains = np.repeat([f"d{i}" for i in range(n_domains)], n)
    y = np.tile(np.arange(n) % 3, n_domains)
    shifts = dict(zip(np.unique(domains), rng.normal(size=(n_domains, d)), strict=True))
    features = {}
    for name, level in noise.items():
        signal = np.eye(3)[y] @ rng.normal(size=(3, d))
        moved = 0.3 * np.stack([shifts[domain] for domain in domains])
        features[name] = signal + moved + level * rng.normal(size=(len(y), d))
    return features, y, domains


def by_domain(features: dict[str, Any], y: Any, domains: Any) -> dict[str, Data]:
    names = np.unique(domains).tolist()
    return {m: {d: (X[domains == d], y[domains == d]) for d in names} for m, X in features.items()}


def saved(folder: Path, *data: Any, **logits: Any) -> oodzoo.FeatureStore:
    features, y, domains = data
    np.savez(folder / "f.npz", labels=y.astype(str), domains=domains, **features, **logits)
    return import_features([folder / "f.npz"], folder / "store")


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
