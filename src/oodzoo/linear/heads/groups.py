"""Groups of samples (a patient, a video) that every split of samples keeps whole."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.core.text import count

Groups = Sequence[object | None]
"""The group of each sample; None for a sample without one."""


def group_numbers(groups: Groups | None, n: int) -> NDArray[np.int64] | None:
    """Number the groups of n samples in order of appearance; None if no sample has a group.

    A sample without a group is a group of its own.

    Examples
    --------
    >>> group_numbers(["b", None, "a", "b", None], 5).tolist()
    [0, 1, 2, 0, 3]
    """
    if groups is None:
        return None
    if len(groups) != n:
        raise InputError(f"{count(n, 'sample')}, but groups of {len(groups)}; give one per sample")
    if all(group is None for group in groups):
        return None
    numbers: dict[object, int] = {}
    keys = ((row, None) if group is None else group for row, group in enumerate(groups))
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)


def grouped_folds(
    labels: NDArray[np.int64], numbers: NDArray[np.int64], n_folds: int
) -> NDArray[np.int64]:
    """Assign numbered groups to folds with about equal shares of each class.

    The largest group comes first. Each goes to the fold that has the fewest samples of its classes,
    relative to the size of each class; of equal folds, to the smallest. With fewer groups than
    folds, some folds stay empty.
    """
    _, classes = np.unique(labels, return_inverse=True)
    table = np.zeros((int(numbers.max()) + 1, int(classes.max()) + 1))
    np.add.at(table, (numbers, classes), 1)
    shares = table / table.sum(axis=0)
    filled, sizes = np.zeros((n_folds, shares.shape[1])), np.zeros(n_folds)
    folds = np.empty(len(table), np.int64)
    for group in np.argsort(-table.sum(axis=1), kind="stable"):
        overlap = np.round(filled @ shares[group], 12)
        fold = np.lexsort((sizes, overlap))[0]
        folds[group] = fold
        filled[fold] += shares[group]
        sizes[fold] += table[group].sum()
    return folds[numbers]
