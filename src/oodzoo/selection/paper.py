"""The paper's selection: spike and slab over the concatenated features of a few models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.backend import to_numpy
from oodzoo.features.source import FeatureSource
from oodzoo.moments import LARGE_OFFSET, Moments
from oodzoo.selection.concatenation import concatenated_moments, concatenated_samples
from oodzoo.selection.selector import SpikeSlabSelector


def select_by_inclusion(
    source: FeatureSource,
    models: Sequence[str],
    domains: Sequence[str],
    threshold: float,
    device: str | None,
) -> dict[str, NDArray[Any]]:
    """Select the features with an inclusion probability above the threshold for any class.

    For other tasks than classification, for any number or label.

    Returns
    -------
    dict of array
        "inclusion" and "targets" (n_classes, n_features), the mask "support" (n_features,),
        "iterations" and "converged".
    """
    selector = SpikeSlabSelector(threshold=threshold, task="regression", device=device)
    width = sum(source.facts(model).feature_dim for model in models)
    moments = None
    if sum(len(source.labels(domain)) for domain in domains) >= width:
        moments = concatenated_moments(source, models, domains, device=device)
    if moments is None or _has_large_offset(source, models, moments):
        # With few samples, they are smaller than their moments, and cheaper to work with. With a
        # large offset, they must be centred before they are squared.
        features, labels = concatenated_samples(source, models, domains)
        one_hot = source.task.is_classification
        selector.fit(features, np.eye(len(source.classes))[labels] if one_hot else labels)
    else:
        selector.fit_moments(moments)
    return {
        "inclusion": selector.inclusion_,
        "targets": selector.target_support_,
        "support": selector.get_support(),
        "iterations": np.array(selector.n_iter_),
        "converged": np.array(selector.converged_),
    }


def without_warnings(arrays: dict[str, NDArray[Any]]) -> bool:
    """Whether the selector gave no warning; otherwise it runs, and warns, each time."""
    return bool(arrays["converged"]) and bool(arrays["targets"].any())


def _has_large_offset(source: FeatureSource, models: Sequence[str], moments: Moments) -> bool:
    """Whether the features of any of the concatenated models have a large offset."""
    squares = to_numpy(moments.mean) ** 2
    spreads = np.diagonal(to_numpy(moments.gram)) / moments.n - squares
    starts = np.cumsum([0, *(source.facts(model).feature_dim for model in models[:-1])])
    square, spread = (np.add.reduceat(values, starts) for values in (squares, spreads))
    return bool(np.any((square > 0) & (spread <= square / LARGE_OFFSET**2)))
