"""The features of several models put together, and the informative ones kept."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from oodzoo._io import structured
from oodzoo.features.columns import Columns
from oodzoo.features.source import FeatureSource
from oodzoo.selection.concatenation import concatenated_moments, concatenated_samples
from oodzoo.selection.selector import SpikeSlabSelector

BINS = 20
"""Of the histogram of inclusion probabilities in a document."""


@dataclass(frozen=True)
class ModelSelection:
    """How many features of a model were selected.

    Attributes
    ----------
    model : str
    n_features, n_selected : int
    inclusion_histogram : tuple of int
        Features by inclusion probability, in equal bins from 0 to 1. The probability of a feature
        is its greatest over classes.
    """

    model: str
    n_features: int
    n_selected: int
    inclusion_histogram: tuple[int, ...]


@dataclass(frozen=True)
class ClassSelection:
    """How many features were selected for a class, in total and of each model."""

    n_selected: int
    per_model: dict[str, int]


@dataclass(frozen=True)
class SelectionSummary:
    """A selection in figures, as it is shown and written to disk."""

    models: tuple[str, ...]
    n_features: int
    n_selected: int
    ratio: float
    per_model: tuple[ModelSelection, ...]
    per_class: dict[str, ClassSelection]
    iterations: int
    converged: bool

    def to_dict(self) -> dict[str, Any]:
        """The summary as a JSON document."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> SelectionSummary:
        """The summary that :meth:`to_dict` was called on."""
        return structured(document, cls, "the selection")


@dataclass(frozen=True)
class Selection:
    """What was kept of several models side by side.

    Attributes
    ----------
    models : tuple of str
    classes : tuple
    kept : Kept
        The columns that are kept for at least one class.
    inclusion : dict
        Inclusion probabilities (n_classes, n_features) of each model.
    masks : dict
        Which features are kept for which class (n_classes, n_features), of each model.
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
        """The share of features that is kept."""
        return len(self.columns) / self.n_features

    def summary(self) -> SelectionSummary:
        """Counts of selected features, and histograms of their inclusion probabilities."""
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
    """Put models side by side and keep the features that say something about a class.

    Parameters
    ----------
    source : FeatureSource
    models : sequence of str
        In the order in which their features stand.
    domains : sequence of str, optional
        Those to learn from; a domain to be tested on is left out.
    threshold : float
        Keep features with a greater inclusion probability for any class.
    device : str, optional
        Where to compute: NumPy if None, else PyTorch on this device.
    """
    compute = functools.partial(_selected, source, models, domains, threshold, device)
    arrays = source.cached(
        "selections", models, compute, domains=domains, settings=f"{threshold}", keep=_quiet
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


def _selected(
    source: FeatureSource,
    models: Sequence[str],
    domains: Sequence[str] | None,
    threshold: float,
    device: str | None,
) -> dict[str, NDArray[Any]]:
    selector = SpikeSlabSelector(threshold=threshold, task="regression", device=device)
    chosen = source.domains if domains is None else tuple(domains)
    width = sum(source.facts(model).feature_dim for model in models)
    if sum(len(source.labels(domain)) for domain in chosen) < width:
        # The samples are then less than their moments, and so is the work.
        features, labels = concatenated_samples(source, models, chosen)
        selector.fit(features, np.eye(len(source.classes))[labels])
    else:
        selector.fit_moments(concatenated_moments(source, models, chosen, device=device))
    return {
        "inclusion": selector.inclusion_,
        "targets": selector.target_support_,
        "support": selector.get_support(),
        "iterations": np.array(selector.n_iter_),
        "converged": np.array(selector.converged_),
    }


def _quiet(arrays: dict[str, NDArray[Any]]) -> bool:
    """Whether there was nothing to warn of; else the selection is made, and warns, each time."""
    return bool(arrays["converged"]) and bool(arrays["targets"].any())
