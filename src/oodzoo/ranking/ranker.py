r"""Rank models by leaving each domain out in turn.

The ZooD score of a model is the mean over held-out domains of

.. math:: \text{discriminability} + \frac1{3C}\,\text{stability}.

Discriminability is the mean over C classes of a log-density per sample, so stability weighs as much
as a third of one class: enough to order models of equal discriminability, too little to penalise
rich features for shifting more than poor ones. The weight was chosen by hand on photographs and
handwriting; a larger one helped on some data sets and hurt on others (``benchmarks/stability.py``
compares weights on a feature store). ``stability="paper"`` is the published formula, with the
weight λ of each fold.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo import scores
from oodzoo._text import did_you_mean
from oodzoo.backend import Array, backend
from oodzoo.errors import InputError
from oodzoo.events import Progress
from oodzoo.features.source import Facts, Features, FeatureSource, as_source
from oodzoo.heads.classes import require_classes_to_tell_apart
from oodzoo.moments import VERSION as MOMENTS_VERSION
from oodzoo.moments import Moments, domain_moments, merge
from oodzoo.ranking.folds import (
    Fold,
    Stability,
    leave_one_domain_out,
    leave_two_domains_out,
    pack,
    unpack,
)
from oodzoo.ranking.intervals import Comparison, covariance_of_means, mean_interval
from oodzoo.ranking.result import FoldRow, Ranking, Row
from oodzoo.scores.compute import compute_scores

STABILITY_SHARE = 1 / 3
"""Weight of stability in the score, relative to one class."""

FOLD_SCORES = ("zood", "discriminability", "stability", "accuracy")
"""Scores that are means over held-out domains, and so have rank intervals."""


def rank(
    features: Features,
    y: Sequence[Any] | Array | None = None,
    domains: Sequence[Any] | Array | None = None,
    *,
    groups: Sequence[Any] | None = None,
    score: str = "zood",
    stability: Stability = "robust",
    device: str | None = None,
    progress: Progress | None = None,
) -> Ranking:
    """Rank models by how well their features generalise to a held-out domain.

    Parameters
    ----------
    features : mapping, FeatureStore, path or FeatureSource
        Features (n, d) of each model by name, with `y` and `domains`; or a feature store.
    y, domains : sequence
        Class and domain of each row, strings or integers.
    groups : sequence, optional
        Group of each row (a patient, a video); intervals treat a group as one observation.
    score : str, default "zood"
        "zood", one of its terms ("discriminability", "stability"), "accuracy" (expected accuracy on
        an unseen domain), or the name of another score (see :mod:`oodzoo.scores`).
    stability : {"robust", "paper"}
        The default form, or the published formula.
    device : str, optional
        Compute with NumPy if None, else with PyTorch on this device ("cuda").
    progress : callable, optional
        Called with the number of models done and of all models.

    Examples
    --------
    >>> import numpy as np, oodzoo
    >>> rng = np.random.default_rng(0)
    >>> y, domains = np.tile([0, 1], 60), np.repeat(["a", "b", "c"], 40)
    >>> good = np.stack([y, 1 - y], 1) + 0.3 * rng.normal(size=(120, 2))
    >>> ranking = oodzoo.rank({"noise": rng.normal(size=(120, 2)), "good": good}, y, domains)
    >>> ranking.best
    'good'
    >>> [(row.model, row.rank_interval) for row in ranking.rows]
    [('good', (1, 1)), ('noise', (2, 2))]
    """
    require_score(score)
    backend(device)
    source = as_source(features, y, domains, groups)
    require_classes_to_tell_apart(source)
    terms = {}
    for number, model in enumerate(source.models):
        if progress is not None:
            progress(number, len(source.models))
        terms[model] = _folds(source, model, stability, device)
    return _ranking(source, terms, score, stability, source.domains)


def rank_for_test_domains(
    features: Features,
    y: Sequence[Any] | Array | None = None,
    domains: Sequence[Any] | Array | None = None,
    *,
    score: str = "zood",
    stability: Stability = "robust",
    device: str | None = None,
) -> dict[str, Ranking]:
    """Rank the models once per test domain, without using that domain.

    This is how a score is evaluated: its order is compared with the accuracy on the unseen test
    domain. Neither the samples of a test domain nor classes found only there affect its ranking.
    Computations are shared between folds that swap test domain and held-out domain.

    Parameters are those of :func:`rank`.
    """
    require_score(score)
    backend(device)
    source = as_source(features, y, domains)
    require_classes_to_tell_apart(source)
    terms: dict[str, dict[str, list[Fold]]] = {test: {} for test in source.domains}
    for model in source.models:
        for test, folds in _folds_by_test(source, model, stability, device).items():
            terms[test][model] = folds
    return {
        test: _ranking(source, folds, score, stability, [d for d in source.domains if d != test])
        for test, folds in terms.items()
    }


def require_score(name: str) -> None:
    """Raise an InputError if no score has this name."""
    known = (*FOLD_SCORES, *scores.names())
    if name not in known:
        hint = did_you_mean(name, known) or f"expected one of {', '.join(known)}"
        raise InputError(f"unknown score {name!r}; {hint}")


def _folds(
    source: FeatureSource, model: str, stability: Stability, device: str | None
) -> list[Fold]:
    warned: list[str] = []

    def compute() -> dict[str, NDArray[Any]]:
        moments = domain_moments(source, model, device)
        warned.extend(_warn_of_offset(model, moments))
        shards = functools.partial(source.shards, model)
        return pack(leave_one_domain_out(moments, shards, stability=stability, device=device))

    return unpack(_cached_folds(source, model, compute, stability, warned))


def _folds_by_test(
    source: FeatureSource, model: str, stability: Stability, device: str | None
) -> dict[str, list[Fold]]:
    warned: list[str] = []

    def compute() -> dict[str, NDArray[Any]]:
        moments = domain_moments(source, model, device)
        warned.extend(_warn_of_offset(model, moments))
        shards = functools.partial(source.shards, model)
        both = leave_two_domains_out(moments, shards, stability=stability, device=device)
        return pack([fold for folds in both.values() for fold in folds])

    folds = unpack(_cached_folds(source, model, compute, f"by-test-{stability}", warned))
    each = len(source.domains) - 1
    return {test: folds[at * each :][:each] for at, test in enumerate(source.domains)}


def _cached_folds(
    source: FeatureSource,
    model: str,
    compute: Callable[[], dict[str, NDArray[Any]]],
    settings: str,
    warned: list[str],
) -> dict[str, NDArray[Any]]:
    """Compute folds or read them from the cache; what gives a warning is computed each time."""
    settings = f"{settings}, {MOMENTS_VERSION}"
    return source.cached("folds", [model], compute, settings=settings, keep=lambda _: not warned)


def _warn_of_offset(model: str, moments: Mapping[str, Moments]) -> list[str]:
    """Warn of features whose mean is far larger than their spread; return the warnings."""
    total = merge(moments.values())
    if total.centred is None:
        return []
    message = (
        f"model {model!r}: the mean of the features is {total.offset_ratio:.1g} times their "
        "spread, so a model without intercept may ignore the features; centre or standardise them"
    )
    warnings.warn(message, stacklevel=2)
    return [message]


# --- from folds to rows ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Terms:
    """The folds of one model, with the weights of the ZooD score."""

    folds: list[Fold]
    n_classes: int
    stability: Stability

    def weight(self, fold: Fold) -> float:
        if self.stability == "paper":
            return fold.spread_ratio
        return STABILITY_SHARE / self.n_classes

    def values(self, score: str) -> NDArray[np.float64]:
        """The score of each fold."""
        return np.array([self.value(fold, score) for fold in self.folds])

    def value(self, fold: Fold, score: str) -> float:
        if score == "zood":
            return fold.discriminability + self.weight(fold) * fold.stability
        return float(getattr(fold, score))

    def images(self, score: str, at: int) -> NDArray[np.float64]:
        """Contribution of each image of a fold to its score, up to a constant."""
        fold = self.folds[at]
        if score == "accuracy":
            return fold.correct.astype(np.float64)
        if score == "discriminability":
            return fold.label_log_density
        if score == "stability":
            return fold.stability_of_samples
        return fold.label_log_density + self.weight(fold) * fold.stability_of_samples


def fold_scores(
    folds: list[Fold], n_classes: int, stability: Stability = "robust"
) -> dict[str, float]:
    """Compute the scores of :data:`FOLD_SCORES` from the folds of one model."""
    terms = _Terms(folds, n_classes, stability)
    return {score: float(terms.values(score).mean()) for score in FOLD_SCORES}


def _ranking(
    source: FeatureSource,
    folds: Mapping[str, list[Fold]],
    score: str,
    stability: Stability,
    domains: Sequence[str],
) -> Ranking:
    """Build the ranking from the folds over these domains."""
    # Count only classes of these domains: classes found only in a test domain must not leak.
    n_classes = len(np.unique(np.concatenate([source.labels(domain) for domain in domains])))
    terms = {m: _Terms(f, n_classes, stability) for m, f in folds.items()}
    left_out: dict[str, str] = {}
    comparison = None
    if score in FOLD_SCORES:
        totals = {model: float(t.values(score).mean()) for model, t in terms.items()}
        comparison = _compare(source, terms, score)
    else:
        totals, left_out = compute_scores(source, score, domains)
    if not totals:
        reason = next(iter(left_out.values()))
        raise InputError(f"the score {score!r} cannot be computed for any model: {reason}")
    order = sorted(totals, key=lambda model: (-totals[model], model))
    facts = {model: source.facts(model) for model in order}
    accuracy = {model: 100 * float(terms[model].values("accuracy").mean()) for model in order}
    pareto_optimal = _pareto_optimal(accuracy, facts)
    places = list(terms)
    rows = []
    for number, model in enumerate(order, start=1):
        at = places.index(model)
        t = terms[model]
        rows.append(
            Row(
                rank=number,
                model=model,
                score=totals[model],
                discriminability=float(t.values("discriminability").mean()),
                stability=float(t.values("stability").mean()),
                expected_accuracy=accuracy[model],
                accuracy_interval=_accuracy_interval(source, t),
                rank_interval=comparison.rank_intervals()[at] if comparison else None,
                tied=_tied(comparison, at, places, order),
                pareto_optimal=model in pareto_optimal,
                folds=tuple(_fold_row(t, fold, score, source.classes) for fold in t.folds),
                feature_dim=facts[model].feature_dim,
                parameters=facts[model].parameters,
                milliseconds=facts[model].milliseconds,
            )
        )
    return Ranking(score, tuple(rows), left_out)


def _fold_row(terms: _Terms, fold: Fold, score: str, classes: Sequence[Any]) -> FoldRow:
    return FoldRow(
        domain=fold.domain,
        score=terms.value(fold, score if score in FOLD_SCORES else "zood"),
        discriminability=fold.discriminability,
        stability=fold.stability,
        accuracy=100 * fold.accuracy,
        balanced_accuracy=100 * fold.balanced_accuracy,
        skipped=tuple(str(classes[number]) for number in fold.skipped if number in fold.labels),
    )


def _compare(source: FeatureSource, terms: Mapping[str, _Terms], score: str) -> Comparison:
    values = np.stack([t.values(score) for t in terms.values()])
    left_out = [fold.domain for fold in next(iter(terms.values())).folds]
    covariances = [
        covariance_of_means(
            np.stack([t.images(score, at) for t in terms.values()], axis=1), source.groups(domain)
        )
        for at, domain in enumerate(left_out)
    ]
    return Comparison.of(values, covariances)


def _accuracy_interval(source: FeatureSource, terms: _Terms) -> tuple[float, float]:
    variances = [
        covariance_of_means(terms.images("accuracy", at)[:, None], source.groups(fold.domain))
        for at, fold in enumerate(terms.folds)
    ]
    low, high = mean_interval(terms.values("accuracy"), np.array([v[0, 0] for v in variances]))
    return max(0.0, 100 * low), min(100.0, 100 * high)


def _pareto_optimal(accuracy: Mapping[str, float], facts: Mapping[str, Facts]) -> set[str]:
    """Models for which no other is at least as accurate and cheaper, or more accurate."""
    cost = {m: f.milliseconds for m, f in facts.items()}
    if None in cost.values():
        cost = {m: f.parameters for m, f in facts.items()}
    if None in cost.values():
        return set()

    def dominates(other: str, model: str) -> bool:
        better = accuracy[other] >= accuracy[model] and cost[other] <= cost[model]  # type: ignore[operator]
        return better and (accuracy[other], cost[other]) != (accuracy[model], cost[model])

    return {model for model in accuracy if not any(dominates(other, model) for other in accuracy)}


def _tied(
    comparison: Comparison | None, at: int, places: list[str], order: list[str]
) -> tuple[str, ...]:
    """The models that are statistically tied with one, the best first."""
    if comparison is None:
        return ()
    return tuple(sorted((places[other] for other in comparison.ties(at)), key=order.index))
