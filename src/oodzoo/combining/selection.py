"""Select features of several concatenated models."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack

import msgspec
import numpy as np
from numpy.typing import NDArray

from oodzoo.combining.combination import Chosen, Training
from oodzoo.combining.one_head import OneHead
from oodzoo.core.backend import to_numpy
from oodzoo.core.errors import InputError
from oodzoo.core.events import Progress
from oodzoo.core.io import structured
from oodzoo.core.limits import LimitOptions, Limits
from oodzoo.core.options import require_known
from oodzoo.core.tables import Table
from oodzoo.core.text import count
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.features import FeatureSource, as_source, with_models
from oodzoo.linear.heads.samples import require_classes_to_tell_apart
from oodzoo.linear.moments import LARGE_OFFSET, Moments
from oodzoo.linear.selection.concatenation import (
    concatenated_moments,
    concatenated_samples,
    require_distinct,
)
from oodzoo.linear.selection.contributions import groups_key, select_by_contribution
from oodzoo.ranking.constraints import TopK, one_top_k, restricted
from oodzoo.ranking.ranker import model_order, require_score
from oodzoo.store.feature_store import FeatureStore
from oodzoo.tasks import Kind

BINS = 20
"""Bins of the histograms in a summary."""

METHODS = ("consistent", "paper")


@dataclass(frozen=True)
class ModelSelection:
    """Number of features selected from a model.

    Attributes
    ----------
    model : str
    n_features, n_selected : int
    inclusion_histogram : tuple of int, optional
        Number of features by inclusion probability (maximum over classes), in equal bins from 0
        to 1; method "paper" only.
    rank_histogram : tuple of int, optional
        Number of features by the share of all features with a smaller contribution, in equal bins
        from 0 to 1; method "consistent" only.
    """

    model: str
    n_features: int
    n_selected: int
    inclusion_histogram: tuple[int, ...] | None = None
    rank_histogram: tuple[int, ...] | None = None

    @property
    def histogram(self) -> tuple[int, ...]:
        """The histogram of the method."""
        return self.inclusion_histogram or self.rank_histogram or ()


@dataclass(frozen=True)
class ClassSelection:
    """Number of features selected for a class, in total and per model."""

    n_selected: int
    per_model: dict[str, int]


@dataclass(frozen=True)
class NumberTried:
    """A number of features, and the mean log-likelihood of held-out domains with it.

    The log-likelihood is None if no domain could be predicted, or there was nothing to choose.
    """

    n_selected: int
    log_likelihood: float | None


@dataclass(frozen=True)
class SelectionSummary:
    """Summary statistics of a selection, as shown and written to disk.

    `iterations`, `converged` and `threshold` are those of the method "paper", `numbers_tried` are
    those of "consistent".
    """

    models: tuple[str, ...]
    n_features: int
    n_selected: int
    ratio: float
    per_model: tuple[ModelSelection, ...]
    per_class: dict[str, ClassSelection]
    iterations: int = 0
    converged: bool = True
    method: str = "paper"
    numbers_tried: tuple[NumberTried, ...] = ()
    task: Kind = "classification"
    threshold: float | None = None
    columns: dict[str, str] = field(default_factory=dict)
    """Column numbers kept of each model, as ranges: "0-2,7"; see :class:`Columns`."""

    def __repr__(self) -> str:
        kept = f"{self.n_selected:,} of {count(self.n_features, 'feature')}"
        return f"SelectionSummary({self.method}: {kept} of {count(len(self.models), 'model')})"

    def _repr_html_(self) -> str:
        rows = [
            [each.model, f"{each.n_selected:,}", f"{each.n_features:,}"] for each in self.per_model
        ]
        return Table.of(["model", "kept", "features"], rows, caption=repr(self)).html()

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
    method : {"consistent", "paper"}
    models : tuple of str
    classes : tuple
    columns : Columns
        The columns kept.
    masks : dict
        Features kept for each class (n_classes, n_features), of each model. With "consistent",
        each feature is kept for the class that it contributes most to.
    contributions : dict
        Contributions (n_features,) of the features of each model; "consistent" only.
    numbers_tried : tuple of NumberTried
        The numbers of features compared on held-out domains; "consistent" only.
    inclusion : dict
        Inclusion probabilities (n_classes, n_features) of each model; "paper" only.
    iterations, converged : int, bool
        Of the variational EM algorithm; "paper" only.
    threshold : float, optional
        Inclusion probability above which features are kept; "paper" only.
    task : {"classification", "regression", "multilabel"}
        For other tasks than classification, `classes` are the names of the numbers or labels.
    """

    method: str
    models: tuple[str, ...]
    classes: tuple[Any, ...]
    columns: Columns
    masks: dict[str, NDArray[np.bool_]]
    contributions: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    numbers_tried: tuple[NumberTried, ...] = ()
    inclusion: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    iterations: int = 0
    converged: bool = True
    task: Kind = "classification"
    threshold: float | None = None

    @property
    def n_features(self) -> int:
        return sum(mask.shape[1] for mask in self.masks.values())

    @property
    def ratio(self) -> float:
        """Share of features kept."""
        return len(self.columns) / self.n_features

    def summary(self) -> SelectionSummary:
        """Count the selected features per model and class."""
        inclusion = {m: _histogram(each.max(axis=0)) for m, each in self.inclusion.items()}
        ranks = {m: _histogram(each) for m, each in _ranks(self.contributions).items()}
        per_model = tuple(
            ModelSelection(
                model=model,
                n_features=int(mask.shape[1]),
                n_selected=len(self.columns.by_model[model]),
                inclusion_histogram=inclusion.get(model),
                rank_histogram=ranks.get(model),
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
            method=self.method,
            numbers_tried=self.numbers_tried,
            task=self.task,
            threshold=self.threshold,
            columns=self.columns.to_dict(),
        )


def select_features(
    features: FeatureSource | FeatureStore | str | Path,
    models: Sequence[str] | None = None,
    domains: Sequence[str] | None = None,
    *,
    method: str = "consistent",
    threshold: float | None = None,
    top_k: TopK | None = None,
    score: str = "unseen",
    device: str | None = None,
    progress: Progress | None = None,
    **options: Unpack[LimitOptions],
) -> Selection:
    """Concatenate models and keep the features that are useful for unseen domains.

    Parameters
    ----------
    features : FeatureSource, FeatureStore or path
        A store; arrays as :class:`~oodzoo.extraction.features.ArraySource`.
    models : sequence of str, optional
        In the order in which their features are concatenated; all if None.
    domains : sequence of str, optional
        Domains to learn from; all if None.
    method : {"consistent", "paper"}
        "consistent" keeps the features that contribute most to the prediction of held-out domains,
        as many as are best on held-out domains (:mod:`oodzoo.linear.selection.contributions`). It
        needs two or more domains. "paper" keeps the features with a high inclusion probability for
        any class in a spike-and-slab linear model of all domains together
        (:class:`oodzoo.SpikeSlabSelector`); it is meant for a few models.
    threshold : float, optional
        Inclusion probability above which a feature is kept, 0.5 if None; "paper" only.
    top_k : int, sequence of int or "auto", optional
        Select from this many of the best models; of several numbers, and of 1, 3, 5 and 7 for
        "auto", from the one that is best on held-out domains. All models if None.
    score : str, default "unseen"
        The score that orders the models for `top_k`, `max_models` and `max_ms`; see
        :func:`oodzoo.rank`.
    max_models, max_ms : int and float, optional
        Largest number of models, and time per image in milliseconds (the sum over the models): the
        best models are taken while they are within these limits.
    max_parameters, licence : optional
        Select only from models that meet these constraints, see :func:`oodzoo.rank`.
    device : str, optional
        PyTorch device; NumPy if None.
    progress : callable, optional
        Called with the numbers of steps done and in total.
    """
    require_known("select_features", options, LimitOptions)
    require_method(method, threshold)
    limits = Limits(**options)
    require_score(score)
    if isinstance(features, Mapping):
        raise InputError(
            "features must be a store or its path; give arrays as "
            "oodzoo.extraction.features.ArraySource(features, y, domains)"
        )
    source = restricted(as_source(features), limits)
    if models is not None and (top_k is not None or limits.of_combinations):
        raise InputError("top_k, max_models and max_ms choose models; leave them out, or the names")
    if top_k is not None or limits.of_combinations:
        models = _best(source, domains, top_k, score, limits, device)
    models = source.models if models is None else tuple(models)
    require_distinct(models)
    chosen = source.domains if domains is None else tuple(domains)
    require_classes_to_tell_apart(source, chosen)
    if method == "paper":
        return _by_inclusion(
            source, models, chosen, 0.5 if threshold is None else threshold, device
        )
    return _by_contribution(source, models, chosen, device, progress)


def require_method(method: str, threshold: float | None) -> None:
    """Raise an InputError for an unknown method, or a threshold of one that has none."""
    if method not in METHODS:
        raise InputError(f"the method must be one of {', '.join(METHODS)}, got {method!r}")
    if threshold is not None and method != "paper":
        raise InputError(f"threshold={threshold} only applies to the method 'paper'")


def _best(
    source: FeatureSource,
    domains: Sequence[str] | None,
    top_k: TopK | None,
    score: str,
    limits: Limits,
    device: str | None,
) -> Sequence[str]:
    """The best models that together are within the limits, as many as asked for."""
    known = source if domains is None else source.only(domains)
    ranked = model_order(known, score=score, device=device)
    times = {model: source.facts(model).milliseconds for model in source.models}
    order = limits.best(ranked, times)
    return order if top_k is None else order[: one_top_k(top_k, known, order)]


def _by_contribution(
    source: FeatureSource,
    models: Sequence[str],
    domains: Sequence[str],
    device: str | None,
    progress: Progress | None,
) -> Selection:
    # In an order of their own, so that the result does not depend on the order given.
    ordered, domains = sorted(models), sorted(domains)
    compute = functools.partial(select_by_contribution, source, ordered, domains, device, progress)
    settings = f"consistent{groups_key(source, domains, divided=2)}"
    arrays = source.cached("selections", ordered, compute, domains=domains, settings=settings)
    ends = np.cumsum([source.facts(model).feature_dim for model in ordered])[:-1]

    def parts(array: NDArray[Any]) -> dict[str, NDArray[Any]]:
        found = dict(zip(ordered, np.split(array, ends), strict=True))
        return {model: found[model] for model in models}

    support, best_class = parts(arrays["support"]), parts(arrays["best_class"])
    classes = np.arange(len(source.classes))[:, None]
    likelihoods = [None if np.isnan(each) else float(each) for each in arrays["likelihoods"]]
    return Selection(
        method="consistent",
        models=tuple(models),
        classes=tuple(source.classes),
        columns=Columns({model: np.flatnonzero(mask) for model, mask in support.items()}),
        masks={model: mask & (best_class[model] == classes) for model, mask in support.items()},
        contributions=parts(arrays["total"]),
        numbers_tried=tuple(map(NumberTried, arrays["numbers"].tolist(), likelihoods)),
        task=source.task.kind,
    )


def _by_inclusion(
    source: FeatureSource,
    models: Sequence[str],
    domains: Sequence[str],
    threshold: float,
    device: str | None,
) -> Selection:
    arrays = source.cached(
        "selections",
        models,
        functools.partial(_select_by_inclusion, source, models, domains, threshold, device),
        domains=domains,
        settings=f"{threshold}",
        keep=_without_warnings,
    )
    ends = np.cumsum([source.facts(model).feature_dim for model in models])[:-1]

    def parts(array: NDArray[Any]) -> dict[str, NDArray[Any]]:
        return dict(zip(models, np.split(array, ends, axis=1), strict=True))

    return Selection(
        method="paper",
        models=tuple(models),
        classes=tuple(source.classes),
        columns=Columns.by_mask(source, models, arrays["support"]),
        masks=parts(arrays["targets"]),
        inclusion=parts(arrays["inclusion"]),
        iterations=int(arrays["iterations"]),
        converged=bool(arrays["converged"]),
        task=source.task.kind,
        threshold=threshold,
    )


def _histogram(values: NDArray[np.float64]) -> tuple[int, ...]:
    """Count values from 0 to 1 in equal bins."""
    return tuple(np.histogram(values, np.linspace(0, 1, BINS + 1))[0].tolist())


def _ranks(values: dict[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
    """Share of the features of all models with a smaller value."""
    every = np.sort(np.concatenate([np.empty(0), *values.values()]))
    return {model: np.searchsorted(every, each) / len(every) for model, each in values.items()}


def _select_by_inclusion(
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
    from oodzoo.linear.selection.selector import (
        SpikeSlabSelector,
    )  # and scikit-learn: slow to import

    selector = SpikeSlabSelector(threshold=threshold, task="regression", device=device)
    width = sum(source.facts(model).feature_dim for model in models)
    moments = None
    if sum(len(source.labels(domain)) for domain in domains) >= width:
        moments = concatenated_moments(source, models, domains, device=device)
    if moments is None or _has_large_offset(source, models, moments):
        # With few samples, they are smaller than their moments, and cheaper to work with. With a
        # large offset, they must be centred before they are squared.
        features, labels = concatenated_samples(source, models, domains)
        one_hot = source.task.one_class
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


def _without_warnings(arrays: dict[str, NDArray[Any]]) -> bool:
    """Whether the selector gave no warning; otherwise it runs, and warns, each time."""
    return bool(arrays["converged"]) and bool(arrays["targets"].any())


def _has_large_offset(source: FeatureSource, models: Sequence[str], moments: Moments) -> bool:
    """Whether the features of any of the concatenated models have a large offset."""
    squares = to_numpy(moments.mean) ** 2
    spreads = np.diagonal(to_numpy(moments.gram)) / moments.n - squares
    starts = np.cumsum([0, *(source.facts(model).feature_dim for model in models[:-1])])
    square, spread = (np.add.reduceat(values, starts) for values in (squares, spreads))
    return bool(np.any((square > 0) & (spread <= square / LARGE_OFFSET**2)))


class SelectedFeatures(OneHead):
    """The features selected from all models."""

    name = "selection"
    title = "Selection"
    words = "the features selected from {models}"
    made = "one head on selected features of all models"

    def choose(self, training: Training) -> Chosen:
        source, threshold = training.source, training.threshold
        models = source.models
        found = select_features(
            source, models, method=training.method, threshold=threshold, device=training.device
        )
        if not len(found.columns):
            raise InputError(
                f"no feature of {', '.join(models)} has an inclusion probability above "
                f"{found.threshold}; lower the threshold, or keep all features"
            )
        again = models if training.method == "consistent" else ()
        return Chosen(found.columns, found.n_features, selected_from=again)

    def limited(self, training: Training) -> Training:
        """Select from the best models that together are within the limits."""
        best = training.method == "paper" or training.top_k is not None
        if not best and not training.limits.of_combinations:
            return training
        models: Sequence[str] = training.limits.best(training.order, training.milliseconds)
        if best:
            models = training.best(models)
        return replace(training, source=with_models(training.source, models))


SELECTION = SelectedFeatures()
