"""Select the informative features of several concatenated models."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from oodzoo._io import structured
from oodzoo.backend import to_numpy
from oodzoo.features.columns import Columns
from oodzoo.features.source import FeatureSource
from oodzoo.heads.classes import require_classes_to_tell_apart
from oodzoo.moments import LARGE_OFFSET, Moments
from oodzoo.selection.concatenation import concatenated_moments, concatenated_samples
from oodzoo.selection.selector import SpikeSlabSelector

BINS = 20
"""Bins of the histogram of inclusion probabilities in a summary."""


@dataclass(frozen=True)
class ModelSelection:
    """Number of features selected from a model.

    Attributes
    ----------
    model : str
    n_features, n_selected : int
    inclusion_histogram : tuple of int
        Number of features by inclusion probability (maximum over classes), in equal bins from 0
        to 1.
    """

    model: str
    n_features: int
    n_selected: int
    inclusion_histogram: tuple[int, ...]


@dataclass(frozen=True)
class ClassSelection:
    """Number of features selected for a class, in total and per model."""

    n_selected: int
    per_model: dict[str, int]


@dataclass(frozen=True)
class SelectionSummary:
    """Summary statistics of a selection, as shown and written to disk."""

    models: tuple[str, ...]
    n_features: int
    n_selected: int
    ratio: float
    per_model: tuple[ModelSelection, ...]
    per_class: dict[str, ClassSelection]
    iterations: int
    converged: bool

    def to_dict(self) -> dict[str, Any]:
        """Convert the summary to a JSON document."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> SelectionSummary:
        """Restore a summary from :meth:`to_dict`."""
        return structured(document, cls, "the selection")


@dataclass(frozen=True)
class Selection:
    """Selected features of several concatenated models.

    Attributes
    ----------
    models : tuple of str
    classes : tuple
    columns : Columns
        The columns kept for at least one class.
    inclusion : dict
        Inclusion probabilities (n_classes, n_features) of each model.
    masks : dict
        Features kept for each class (n_classes, n_features), of each model.
    iterations : int
    converged : bool
    """

    models: tuple[str, ...]
    classes: tuple[Any, ...]
    columns: Columns
    inclusion: dict[str, NDArray[np.float64]]
    masks: dict[str, NDArray[np.bool_]]
    iterations: int
    converged: bool

    @property
    def n_features(self) -> int:
        return sum(mask.shape[1] for mask in self.masks.values())

    @property
    def ratio(self) -> float:
        """Share of features kept."""
        return len(self.columns) / self.n_features

    def summary(self) -> SelectionSummary:
        """Count the selected features per model and class."""
        edges = np.linspace(0, 1, BINS + 1)
        per_model = tuple(
            ModelSelection(
                model=model,
                n_features=int(mask.shape[1]),
                n_selected=len(self.columns.by_model[model]),
                inclusion_histogram=tuple(
                    np.histogram(self.inclusion[model].max(axis=0), edges)[0].tolist()
                ),
            )
            for model, mask in self.masks.items()
        )
        per_class = {}
        for at, label in enumerate(self.classes):
            counts = {model: int(mask[at].sum()) for model, mask in self.masks.items()}
            per_class[str(label)] = ClassSelection(sum(counts.values()), counts)
        return SelectionSummary(
            models=self.models,
            n_features=self.n_features,
            n_selected=len(self.columns),
            ratio=self.ratio,
            per_model=per_model,
            per_class=per_class,
            iterations=self.iterations,
            converged=self.converged,
        )


def select_features(
    source: FeatureSource,
    models: Sequence[str],
    domains: Sequence[str] | None = None,
    *,
    threshold: float = 0.5,
    device: str | None = None,
) -> Selection:
    """Concatenate models and keep the features that are informative about any class.

    Parameters
    ----------
    source : FeatureSource
    models : sequence of str
        In the order in which their features are concatenated.
    domains : sequence of str, optional
        Domains to learn from; all if None.
    threshold : float
        Keep features with a higher inclusion probability for any class.
    device : str, optional
        PyTorch device; NumPy if None.
    """
    require_classes_to_tell_apart(source, domains)
    compute = functools.partial(_select, source, models, domains, threshold, device)
    arrays = source.cached(
        "selections",
        models,
        compute,
        domains=domains,
        settings=f"{threshold}",
        keep=_without_warnings,
    )
    ends = np.cumsum([source.facts(model).feature_dim for model in models])[:-1]

    def parts(array: NDArray[Any]) -> dict[str, NDArray[Any]]:
        return dict(zip(models, np.split(array, ends, axis=1), strict=True))

    return Selection(
        models=tuple(models),
        classes=tuple(source.classes),
        columns=Columns.by_mask(source, models, arrays["support"]),
        inclusion=parts(arrays["inclusion"]),
        masks=parts(arrays["targets"]),
        iterations=int(arrays["iterations"]),
        converged=bool(arrays["converged"]),
    )


def _select(
    source: FeatureSource,
    models: Sequence[str],
    domains: Sequence[str] | None,
    threshold: float,
    device: str | None,
) -> dict[str, NDArray[Any]]:
    selector = SpikeSlabSelector(threshold=threshold, task="regression", device=device)
    chosen = source.domains if domains is None else tuple(domains)
    width = sum(source.facts(model).feature_dim for model in models)
    moments = None
    if sum(len(source.labels(domain)) for domain in chosen) >= width:
        moments = concatenated_moments(source, models, chosen, device=device)
    if moments is None or _has_large_offset(source, models, moments):
        # With few samples, they are smaller than their moments, and cheaper to work with. With a
        # large offset, they must be centred before they are squared.
        features, labels = concatenated_samples(source, models, chosen)
        selector.fit(features, np.eye(len(source.classes))[labels])
    else:
        selector.fit_moments(moments)
    return {
        "inclusion": selector.inclusion_,
        "targets": selector.target_support_,
        "support": selector.get_support(),
        "iterations": np.array(selector.n_iter_),
        "converged": np.array(selector.converged_),
    }


def _has_large_offset(source: FeatureSource, models: Sequence[str], moments: Moments) -> bool:
    """Whether the features of any of the concatenated models have a large offset."""
    squares = to_numpy(moments.mean) ** 2
    spreads = np.diagonal(to_numpy(moments.gram)) / moments.n - squares
    starts = np.cumsum([0, *(source.facts(model).feature_dim for model in models[:-1])])
    square, spread = (np.add.reduceat(values, starts) for values in (squares, spreads))
    return bool(np.any((square > 0) & (spread <= square / LARGE_OFFSET**2)))


def _without_warnings(arrays: dict[str, NDArray[Any]]) -> bool:
    """Whether the selector gave no warning; otherwise it runs, and warns, each time."""
    return bool(arrays["converged"]) and bool(arrays["targets"].any())
