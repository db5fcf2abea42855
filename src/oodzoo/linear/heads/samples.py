"""Samples that heads are fitted to: checks, standardisation, label variation, groups kept whole."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from array_api_compat import device
from numpy.typing import NDArray

from oodzoo.core.backend import Array, backend_of
from oodzoo.core.errors import InputError
from oodzoo.core.text import count
from oodzoo.extraction.columns import Samples
from oodzoo.extraction.features import FeatureSource
from oodzoo.linear.moments import require_size
from oodzoo.tasks import Labels, Task

_ROWS = 4096
_CONSTANT = 8 * np.finfo(np.float64).eps
"""A smaller standard deviation relative to the mean is rounding: the feature is constant."""


def check_samples(samples: Samples, n_classes: int) -> None:
    """Raise an InputError for samples that no classifier can be fitted to."""
    _check_features(samples)
    labels = samples.labels
    if labels.min() < 0 or labels.max() >= n_classes:
        raise InputError(
            f"labels of {count(n_classes, 'class', 'classes')} must be 0 to {n_classes - 1}, "
            f"got {labels.min()} to {labels.max()}"
        )


def check_numbers(samples: Samples, n_outputs: int) -> None:
    """Raise an InputError for samples that no head of several outputs can be fitted to."""
    _check_features(samples)
    labels = samples.labels
    if labels.shape != (len(samples.features), n_outputs) or not np.isfinite(labels).all():
        raise InputError(
            f"labels must be a matrix of finite numbers with {count(n_outputs, 'column')}, got "
            f"shape {labels.shape}" + ("" if np.isfinite(labels).all() else " with infinite values")
        )


def _check_features(samples: Samples) -> None:
    features, labels, domains = samples
    if features.ndim != 2 or not features.size or not len(features) == len(labels) == len(domains):
        raise InputError(
            "features must be a matrix with one label and one domain per row, got shape "
            f"{features.shape}, {count(len(labels), 'label')}, {count(len(domains), 'domain')}"
        )
    largest = 0.0
    for top in range(0, len(features), _ROWS):
        part = features[top : top + _ROWS]
        largest = max(largest, float(np.abs(part).max()))
        bad = np.flatnonzero(~np.isfinite(part).all(axis=1))
        if len(bad):
            raise InputError(
                f"features of sample {top + bad[0]} are not finite; "
                "remove the sample or extract its features again"
            )
    require_size(largest, "features")


def mean_and_std(features: Array) -> tuple[Array, Array]:
    """Mean and standard deviation in float64, without converting all rows at once."""
    xp, n = backend_of(features).xp, len(features)
    tops = range(0, n, _ROWS)
    total = (xp.sum(features[top : top + _ROWS], axis=0, dtype=xp.float64) for top in tops)
    mean = sum(total, start=0.0) / n
    square = (xp.sum((features[top : top + _ROWS] - mean) ** 2, axis=0) for top in tops)
    std = xp.sqrt(sum(square, start=0.0) / n)
    return mean, xp.where(std <= _CONSTANT * xp.abs(mean), 0.0, std)


def standardised(features: Array, mean: Array, std: Array, dtype: str = "float32") -> Array:
    """Subtract the mean and divide by the standard deviation; a constant feature becomes 0."""
    xp = backend_of(features).xp
    result = xp.empty(features.shape, dtype=getattr(xp, dtype), device=device(features))
    scale = xp.where(std > 0, 1 / xp.where(std > 0, std, 1.0), 0.0)
    for top in range(0, len(features), _ROWS):
        result[top : top + _ROWS, :] = (features[top : top + _ROWS] - mean) * scale
    return result


def require_classes_for(task: Task, what: str) -> None:
    """Raise an InputError if what is asked for needs classes, and the task is of another kind."""
    if not task.one_class:
        raise InputError(f"{what} needs classes, but the task is {task.kind!r}; leave it out")


def require_classes_to_tell_apart(
    source: FeatureSource, domains: Sequence[str] | None = None
) -> None:
    """Raise an InputError if the labels of some domains, or of all, do not vary."""
    labels = [source.labels(domain) for domain in (source.domains if domains is None else domains)]
    if labels:
        source.task.require_variation(Labels(source.task, source.classes, np.concatenate(labels)))


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
