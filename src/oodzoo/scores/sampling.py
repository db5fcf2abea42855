"""Stratified random samples and folds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from oodzoo.errors import InputError
from oodzoo.heads.groups import Groups, group_numbers, grouped_folds
from oodzoo.scores.inputs import Codes


def generator(random_state: int) -> np.random.Generator:
    """Create a random-number generator from a seed, a non-negative integer."""
    if random_state != int(random_state) or random_state < 0:
        raise InputError(f"random_state must be a non-negative integer, got {random_state!r}")
    return np.random.default_rng(int(random_state))


def stratified_order(y: Codes, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """Return a random order whose every prefix is approximately stratified."""
    by_class = _shuffled_by_class(y, rng)
    counts = np.bincount(y)
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    place = (np.arange(len(y)) - starts + rng.random(len(y))) / np.repeat(counts, counts)
    return by_class[np.argsort(place, kind="stable")]


def stratified_folds(
    y: Codes, n_folds: int, rng: np.random.Generator, groups: Groups | None = None
) -> Codes:
    """Return the fold of each sample; folds are stratified and of about equal size.

    Groups are kept whole; at least two are needed.
    """
    numbers = group_numbers(groups, len(y))
    if numbers is not None:
        if (n_groups := int(numbers.max()) + 1) < 2:
            raise InputError("all samples are of one group; folds keep groups whole and need two")
        shuffled = rng.permutation(n_groups)  # decides between groups of equal size
        return grouped_folds(y, shuffled[numbers], min(n_folds, n_groups))
    folds = np.empty(len(y), dtype=np.int64)
    folds[_shuffled_by_class(y, rng)] = np.arange(len(y)) % n_folds  # round robin, class by class
    return folds


def _shuffled_by_class(y: Codes, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    order = rng.permutation(len(y))
    return order[np.argsort(y[order], kind="stable")]
