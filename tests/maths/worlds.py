"""Simulated zoos: what the features of each model say about the classes, in each domain."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[np.float32]]

N_CLASSES = 4
WIDTH = 24
MODELS = 6
UNSEEN = 250


class World:
    """Samples of some domains, and features of models for them.

    A sample is the mean of its class, the shift of its domain and noise.
    The last domain is unseen, and has more samples.
    """

    def __init__(self, n_training: int, per_class: int, seed: int) -> None:
        self.rng = np.random.default_rng([n_training, per_class, seed])
        sizes = np.array([per_class] * n_training + [UNSEEN])
        self.y = np.concatenate([np.repeat(np.arange(N_CLASSES), size) for size in sizes])
        self.domains = np.repeat(np.arange(n_training + 1), N_CLASSES * sizes)
        self.training = self.domains < n_training

    def features(self, strength: NDArray[np.float64], shift: float = 0.5) -> NDArray[np.float32]:
        """Features in which class means have this strength in each domain."""
        means = self.rng.normal(size=(N_CLASSES, WIDTH))
        shifts = shift * self.rng.normal(size=(len(strength), WIDTH))
        noise = self.rng.normal(size=(len(self.y), WIDTH))
        clean = means[self.y] * strength[self.domains, None] + shifts[self.domains]
        return np.asarray(clean + noise, np.float32)

    def memorised(self, strength: float) -> NDArray[np.float32]:
        """Features whose class means are others in each domain: nothing carries over."""
        n_domains = int(self.domains.max()) + 1
        means = strength * self.rng.normal(size=(n_domains, N_CLASSES, 4 * WIDTH))
        noise = self.rng.normal(size=(len(self.y), 4 * WIDTH))
        return np.asarray(means[self.domains, self.y] + noise, np.float32)

    def everywhere(self, strength: float) -> NDArray[np.float64]:
        return np.full(int(self.domains.max()) + 1, strength)


def specialist(world: World) -> Arrays:
    """One model is good; the features of the others say nearly nothing."""
    weak = {f"weak{at}": world.features(world.everywhere(0.05)) for at in range(MODELS - 1)}
    return weak | {"specialist": world.features(world.everywhere(0.5))}


def equals(world: World) -> Arrays:
    """All models are equally good, with errors of their own."""
    return {f"equal{at}": world.features(world.everywhere(0.3)) for at in range(MODELS)}


def families(world: World) -> Arrays:
    """Two families, each of which is good in every other domain."""
    even = np.arange(int(world.domains.max()) + 1) % 2 == 0
    strengths = (np.where(even, 0.5, 0.15), np.where(even, 0.15, 0.5))
    return {f"family{at % 2}-{at}": world.features(strengths[at % 2]) for at in range(MODELS)}


def adversary(world: World) -> Arrays:
    """One model is perfect on domains that it was trained on, and useless on others."""
    fair = {f"fair{at}": world.features(world.everywhere(0.3)) for at in range(MODELS - 1)}
    return fair | {"adversary": world.memorised(2.0)}


ZOOS: dict[str, Callable[[World], Arrays]] = {
    "specialist": specialist,
    "equals": equals,
    "families": families,
    "adversary": adversary,
}
