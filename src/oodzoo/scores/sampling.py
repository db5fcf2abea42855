"""Seeded samples and folds in which every class keeps its share."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from oodzoo.errors import InputError
from oodzoo.scores.inputs import Codes

Seed = int
"""Any integer from 0: the same one gives the same result."""


def generator(random_state: Seed) -> np.random.Generator:
    """A generator of random numbers for a seed."""
    if random_state != int(random_state) or random_state < 0:
        raise InputError(f"random_state is {random_state!r}; it has to be an integer from 0")
    return np.random.default_rng(int(random_state))


def stratified_order(y: Codes, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """A random order of which every beginning holds the classes in about their shares."""
    order = rng.permutation(len(y))
    by_class = order[np.argsort(y[order], kind="stable")]
    counts = np.bincount(y)
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    place = (np.arange(len(y)) - starts + rng.random(len(y))) / np.repeat(counts, counts)
    return by_class[np.argsort(place, kind="stable")]


def stratified_folds(y: Codes, n_folds: int, rng: np.random.Generator) -> Codes:
    """The fold of each sample; folds have about equal sizes and shares of the classes."""
    order = rng.permutation(len(y))
    by_class = order[np.argsort(y[order], kind="stable")]
    folds = np.empty(len(y), dtype=np.int64)
    folds[by_class] = np.arange(len(y)) % n_folds  # dealt out in turn, class by class
    return folds
