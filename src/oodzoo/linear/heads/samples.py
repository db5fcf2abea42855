"""Checks and standardisation of the samples that heads are fitted to."""

from __future__ import annotations

import numpy as np
from array_api_compat import device

from oodzoo.core.backend import Array, backend_of
from oodzoo.core.errors import InputError
from oodzoo.core.text import count
from oodzoo.extraction.columns import Samples
from oodzoo.linear.moments import require_size

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
