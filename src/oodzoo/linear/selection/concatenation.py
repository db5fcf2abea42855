"""Moments and samples of the concatenated features of several models.

The Gram matrix of concatenated features consists of the Gram matrix of each model, which the
ranking has already computed, and one cross block per pair of models. A store caches both, so
another choice of models only computes the pairs that are new.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.backend import Array, backend, to_numpy
from oodzoo.core.errors import InputError
from oodzoo.core.text import count
from oodzoo.extraction.features import FeatureSource
from oodzoo.linear.moments import Moments, blocks, domain_moments, merge


def concatenated_moments(
    source: FeatureSource,
    models: Sequence[str],
    domains: Sequence[str] | None = None,
    *,
    device: str | None = None,
) -> Moments:
    """Compute the moments of the concatenated features of models, over some domains or all.

    Parameters
    ----------
    source : FeatureSource
    models : sequence of str
        In the order in which their features are concatenated.
    domains : sequence of str, optional
        All domains if None.
    device : str, optional
        PyTorch device; NumPy if None.
    """
    require_distinct(models)
    chosen = source.domains if domains is None else tuple(domains)
    own = {model: domain_moments(source, model, device) for model in models}
    parts = {model: merge(own[model][d].to(device) for d in chosen) for model in models}
    xp = backend(device).xp
    rows: list[list[Any]] = [[None] * len(models) for _ in models]
    for at, model in enumerate(models):
        rows[at][at] = parts[model].gram
    for one, two in combinations(range(len(models)), 2):
        cross = sum(_cross(source, models[one], models[two], d, device) for d in chosen)
        rows[one][two], rows[two][one] = cross, cross.T
    first = parts[models[0]]
    return Moments(
        n=first.n,
        feature_sum=xp.concat([parts[model].feature_sum for model in models]),
        gram=xp.concat([xp.concat(row, axis=1) for row in rows]),
        products=xp.concat([parts[model].products for model in models]),
        label_sum=first.label_sum,
        label_squares=first.label_squares,
        label_scatter=first.label_scatter,
    )


def concatenated_samples(
    source: FeatureSource, models: Sequence[str], domains: Sequence[str] | None = None
) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Load the concatenated features (n, d) of models and labels, over some domains or all.

    For n < d this is smaller than the moments.
    """
    require_distinct(models)
    chosen = source.domains if domains is None else tuple(domains)
    labels = [source.labels(domain) for domain in chosen]
    widths = [source.facts(model).feature_dim for model in models]
    features = np.empty((sum(map(len, labels)), sum(widths)))
    for model, right, width in zip(models, np.cumsum(widths), widths, strict=True):
        bottom = 0
        for domain, expected in zip(chosen, labels, strict=True):
            name = f"model {model!r}, domain {domain!r}"
            shards = source.shards(model, domain)
            parts = [x for x, _ in blocks(shards, len(source.classes), backend(), context=name)]
            found = sum(map(len, parts))
            if not found or found != len(expected):
                raise InputError(
                    f"{name}: {count(found, 'sample')} but {count(len(expected), 'label')}"
                )
            top, bottom = bottom, bottom + found
            features[top:bottom, right - width : right] = np.concatenate(parts)
    return features, np.concatenate(labels)


def require_distinct(models: Sequence[str]) -> None:
    """Raise an InputError unless there are models, each of them once."""
    if not models or len(set(models)) < len(models):
        raise InputError(f"models to concatenate must be distinct, got {list(models)}")


def _cross(source: FeatureSource, one: str, two: str, domain: str, device: str | None) -> Array:
    """The cross block of two models in a domain, cached like moments."""
    if one > two:  # one block per pair, in either order
        return _cross(source, two, one, domain, device).T
    compute = functools.partial(_compute_cross, source, one, two, domain, device)
    widest = max(source.facts(model).feature_dim for model in (one, two))
    if len(source.labels(domain)) < 2 * widest:
        return compute()
    arrays = source.cached(
        "cross", [one, two], lambda: {"cross": to_numpy(compute())}, domains=[domain]
    )
    return backend(device).float64(arrays["cross"])


def _compute_cross(
    source: FeatureSource, one: str, two: str, domain: str, device: str | None
) -> Array:
    float64 = backend(device).float64
    shards = ((features for features, _ in source.shards(m, domain)) for m in (one, two))
    total: Array = None
    for left, right in _aligned(*shards):
        product = float64(left).T @ float64(right)
        total = product if total is None else total + product
    if total is None:
        raise InputError(f"domain {domain!r} has no samples")
    return total


def _aligned(
    one: Iterator[NDArray[Any]], two: Iterator[NDArray[Any]]
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Pair equal rows of two models whose shards may have different lengths."""
    left, right = next(one, None), next(two, None)
    while left is not None and right is not None:
        rows = min(len(left), len(right))
        yield np.asarray(left[:rows]), np.asarray(right[:rows])
        left = left[rows:] if rows < len(left) else next(one, None)
        right = right[rows:] if rows < len(right) else next(two, None)
    if left is not None or right is not None:
        raise InputError("two models have different numbers of samples in the same domain")
