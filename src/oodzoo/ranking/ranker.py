r"""Rank models by leaving each domain out in turn.

The default score is described in :mod:`oodzoo.ranking.unseen`. The ZooD score of a model
(``score="zood"``) is the mean over held-out domains of

.. math:: \text{discriminability} + \frac1{3C}\,\text{stability}.

Discriminability is the mean over C classes of a log-density per sample, so stability weighs as much
as a third of one class: enough to order models of equal discriminability, too little to penalise
rich features for shifting more than poor ones. The weight was chosen by hand on photographs and
handwriting; a larger one helped on some data sets and hurt on others (``benchmarks/stability.py``
compares weights on a feature store). ``stability="paper"`` is the published formula, with the
weight λ of each fold.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from numbers import Real
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.backend import Array, backend, to_numpy
from oodzoo.core.errors import InputError
from oodzoo.core.events import Listeners, Stage, extent, tracked
from oodzoo.core.limits import ModelLimitOptions, ModelLimits
from oodzoo.core.options import require_known
from oodzoo.core.text import count, did_you_mean, some_of
from oodzoo.core.threads import LARGE_PRODUCT, blas_threads
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.features import (
    Arrays,
    Features,
    FeatureSource,
    as_source,
    groups_of,
    moment_costs,
)
from oodzoo.extraction.target import Target, TargetImages, as_target
from oodzoo.linear.heads.linear import fit_head
from oodzoo.linear.heads.paths import C_GRID
from oodzoo.linear.heads.samples import require_classes_to_tell_apart
from oodzoo.linear.moments import VERSION as MOMENTS_VERSION
from oodzoo.linear.moments import domain_moments, merge
from oodzoo.ranking import constraints as constraint
from oodzoo.ranking import scores
from oodzoo.ranking.ranking import Ranking
from oodzoo.ranking.scores import Score
from oodzoo.ranking.terms import (
    ZOOD_TERMS,
    Predictions,
    Terms,
    build_ranking,
    fold_scores,
)
from oodzoo.ranking.transfer import RIDGES, RidgeRegressions, SharedGroups, Transfer, read_moments
from oodzoo.ranking.unseen import UnseenTerms, scores_of, scores_without
from oodzoo.ranking.zood import HeldOutDomains, Stability, pack, require_stability, unpack
from oodzoo.tasks import TASKS, Task, task_of

ScoreFunction = Callable[..., float]


def rank(
    features: Features,
    y: Sequence[Any] | Array | None = None,
    domains: Sequence[Any] | Array | None = None,
    *,
    groups: Sequence[Any] | None = None,
    task: str | None = None,
    score: str | ScoreFunction = "unseen",
    stability: Stability = "robust",
    target: TargetImages | None = None,
    domain_weights: Mapping[str, float] | None = None,
    device: str | None = None,
    listener: Listeners | None = None,
    **options: Unpack[ModelLimitOptions],
) -> Ranking:
    """Rank models by how well their features generalise to an unseen domain.

    Parameters
    ----------
    features : mapping, FeatureStore, path or FeatureSource
        Features (n, d) of each model by name, with `y` and `domains`; or a feature store.
    y, domains : sequence
        Label and domain of each row. Labels are classes (strings or integers); numbers to predict,
        (n,) or (n, C); or several labels per row, as zeros and ones (n, C) or lists of strings.
    groups : sequence, optional
        Group of each row (a patient, a video); intervals treat a group as one observation, and a
        group that occurs in a held-out domain is not trained on.
    task : {"classification", "regression", "multilabel"}, optional
        What the labels are, where they could be of two kinds; see :func:`oodzoo.tasks.as_labels`.
    score : str or callable, default "unseen"
        "unseen" (:mod:`oodzoo.ranking.unseen`), its term "transfer", "zood", one of its terms
        ("discriminability", "stability"), "accuracy" or "balanced_accuracy" (expected on an unseen
        domain; of other tasks "explained_variance", "average_precision", "exact_match"), the name
        of another score (see :mod:`oodzoo.ranking.scores`), or a function of features and labels,
        `score(X, y)`, or also of domains, `score(X, y, domains)`.
    stability : {"robust", "paper"}
        Stability of the ZooD score: the default form, or the published formula.
    target : str or mapping, optional
        Unlabelled images of the domain to rank for (:mod:`oodzoo.ranking.terms`): the name of
        an unlabelled domain of the store, or features (n, d) of each model by name. Only for the
        score "unseen".
    domain_weights : mapping, optional
        Weights of domains in means over domains, 1 for those not named: larger for a domain that
        resembles the unseen one.
    max_ms, max_parameters, licence : optional
        Rank only models that meet these constraints: milliseconds per image, number of parameters
        (25e6 or "25M"), names of licences or wildcards. A model is left out, too, if a value is
        unknown; see `Ranking.left_out`.
    device : str, optional
        Compute with NumPy if None, else with PyTorch on this device ("cuda").
    listener : Listener or sequence of Listener, optional
        Receives the events of the stage "ranking", see :mod:`oodzoo.core.events`.

    Examples
    --------
    >>> import numpy as np, oodzoo
    >>> rng = np.random.default_rng(0)
    >>> y, domains = np.tile([0, 1], 60), np.repeat(["a", "b", "c"], 40)
    >>> good = np.stack([y, 1 - y], 1) + 0.3 * rng.normal(size=(120, 2))
    >>> ranking = oodzoo.rank({"noise": rng.normal(size=(120, 2)), "good": good}, y, domains)
    >>> ranking.best
    'good'
    >>> [(row.model, round(row.score, 3)) for row in ranking.rows]
    [('good', 1.0), ('noise', -1.0)]
    """
    require_known("rank", options, ModelLimitOptions)
    limits = ModelLimits(**options)
    source = as_source(features, y, domains, groups, task=task)
    require_rankable(
        source,
        score=score,
        stability=stability,
        domain_weights=domain_weights,
        limits=limits,
        device=device,
    )
    chosen = as_score(score)
    name = chosen if isinstance(chosen, str) else chosen.name
    SharedGroups(source).warn(held_out_together=1)
    weights = normalised_weights(source.domains, domain_weights)
    models, left_out = constraint.apply(source, limits)
    if target is not None and not source.task.one_class:
        raise InputError(
            "images of the target are used for classes only: the vote of the models needs them; "
            f"the labels are for {source.task.kind}"
        )
    images = None if target is None else as_target(source, target)
    if images is not None and chosen != "unseen":
        raise InputError(f"images of the target are for the score 'unseen' only, got {name!r}")
    facts = extent(source) | {"models": list(models), "score": name}
    with Stage(listener, "ranking", **facts) as stage:
        terms = {}
        for model in stage.tracked(models, weights=moment_costs(source, models)):
            of_model = ModelTerms(source, model, device, stability)
            terms[model] = of_model.all(densities=name in ZOOD_TERMS)
        if name in ("zood", "discriminability"):
            warn_of_noise(terms)
        predicted = None
        if images is not None:
            each = [_predicted(source, model, images, terms[model], device) for model in models]
            labels = ([found[kind] for found in each] for kind in ("head", "ridge"))
            predicted = Predictions(*map(np.stack, labels))
        ranking = build_ranking(source, terms, chosen, weights, left_out, device, predicted)
        stage.finish(ranking, ranking.metrics)
    return ranking


def require_rankable(
    source: FeatureSource,
    *,
    score: str | ScoreFunction,
    stability: str,
    domain_weights: Mapping[str, float] | None,
    limits: ModelLimits,
    device: str | None,
) -> None:
    """Raise an InputError for what :func:`rank` refuses, besides a target."""
    require_stability(stability)
    backend(device)
    require_score_of_task(as_score(score), source.task)
    require_classes_to_tell_apart(source)
    normalised_weights(source.domains, domain_weights)
    constraint.apply(source, limits)


def rank_for_test_domains(
    features: Features,
    y: Sequence[Any] | Array | None = None,
    domains: Sequence[Any] | Array | None = None,
    *,
    groups: Sequence[Any] | None = None,
    task: str | None = None,
    score: str | ScoreFunction = "unseen",
    stability: Stability = "robust",
    domain_weights: Mapping[str, float] | None = None,
    device: str | None = None,
) -> dict[str, Ranking]:
    """Rank the models once per held-out domain, without using that domain.

    This is how a score is evaluated: its order is compared with the accuracy on the unseen held-out
    domain. Neither the samples of a held-out domain nor classes found only there affect its
    ranking. Computations are shared between folds that hold out the same two domains.

    Parameters are those of :func:`rank`.
    """
    chosen = as_score(score)
    backend(device)
    source = as_source(features, y, domains, groups, task=task)
    require_score_of_task(chosen, source.task)
    require_classes_to_tell_apart(source)
    SharedGroups(source).warn(held_out_together=2)
    given = dict(domain_weights or {})
    normalised_weights(source.domains, given)
    found: dict[str, dict[str, Terms]] = {}
    for model in tracked(source.models, weights=moment_costs(source, source.models)):
        of_model, densities = ModelTerms(source, model, device, stability), chosen in ZOOD_TERMS
        found[model] = {test: of_model.all(test, densities=densities) for test in source.domains}
    rankings = {}
    for test in source.domains:
        others = [domain for domain in source.domains if domain != test]
        terms = {model: each[test] for model, each in found.items()}
        kept = {domain: given[domain] for domain in others if domain in given}
        weights = normalised_weights(others, kept)
        rankings[test] = build_ranking(source, terms, chosen, weights, {}, device)
    return rankings


def model_orders(
    source: FeatureSource, *, score: str = "unseen", device: str | None = None
) -> dict[str | None, list[str]]:
    """The models, best first: of all domains, under None, and without each held-out domain.

    The default score takes the evidence without a domain from the terms of all domains, where that
    domain is held out, too: it needs m + 1 decompositions, and a ranking for each held-out domain
    m (m + 1) / 2. If groups are shared between domains, it does not.
    """
    if score != "unseen" or SharedGroups(source):
        by_test = rank_for_test_domains(source, score=score, device=device)
        return {None: model_order(source, score=score, device=device)} | {
            test: ranking.models for test, ranking in by_test.items()
        }
    require_classes_to_tell_apart(source)
    models = tracked(source.models, weights=moment_costs(source, source.models))
    terms = [ModelTerms(source, model, device).unseen() for model in models]
    tests: dict[str | None, NDArray[np.float64]] = {
        test: scores_without(terms, at) for at, test in enumerate(source.domains)
    }
    tests[None] = scores_of(terms, normalised_weights(source.domains))
    names = np.array(source.models)
    return {test: names[np.lexsort((names, -found))].tolist() for test, found in tests.items()}


def model_order(
    source: FeatureSource, *, score: str = "unseen", device: str | None = None
) -> list[str]:
    """The models, best first, of all domains; two are enough."""
    if score != "unseen" or SharedGroups(source):
        return rank(source, score=score, device=device).models
    return model_orders(source, device=device)[None]


def require_score(name: str) -> None:
    """Raise an InputError if no score has this name."""
    as_score(name)


def as_score(score: str | ScoreFunction) -> str | Score:
    """Return the name of a score of oodzoo's folds, or another score."""
    if not isinstance(score, str):
        return Score.of_function(score)
    own = fold_scores(*map(task_of, TASKS))
    known = (*own, *scores.names())
    if score not in known:
        hint = did_you_mean(score, known) or f"expected one of {', '.join(known)}"
        raise InputError(f"unknown score {score!r}; {hint}")
    return score if score in own else scores.get(score)


def require_score_of_task(score: str | Score, task: Task) -> None:
    """Raise an InputError if a score cannot be computed for labels of this kind."""
    if isinstance(score, Score):
        if task.kind in score.tasks:
            return
        name = score.name
    elif score in fold_scores(task):
        return
    else:
        name = score
    own = [each for each in scores.names() if task.kind in scores.get(each).tasks]
    raise InputError(
        f"the score {name!r} is not for labels of the kind {task.kind}; use one of "
        f"{', '.join((*fold_scores(task), *own))}"
    )


def _predicted(
    source: FeatureSource, model: str, target: Target, terms: Terms, device: str | None
) -> dict[str, NDArray[np.int64]]:
    """Classes that linear models of all domains predict for the images of the target."""

    def compute() -> dict[str, NDArray[Any]]:
        together = merge(domain_moments(source, model, device).values()).to(device)
        path = RidgeRegressions.of(together, ridges=[RIDGES[terms.folds[0].ridge]])
        samples = Columns.all_of(source, [model]).samples(source, source.domains)
        groups = groups_of(source, source.domains)
        head, on = fit_head(samples, len(source.classes), groups=groups), backend(device)
        labels: dict[str, list[NDArray[Any]]] = {"ridge": [], "head": []}
        for features in target.blocks(model):
            labels["ridge"].append(to_numpy(path.predict(on.float64(features), 0)))
            labels["head"].append(head.logits(to_numpy(features)).argmax(axis=1))
        return {name: np.concatenate(parts) for name, parts in labels.items()}

    settings = f"{MOMENTS_VERSION}, {target.digest(model)}, ridge {terms.folds[0].ridge}, {C_GRID}"
    return source.cached("target", [model], compute, settings=settings)


class ModelTerms:
    """Terms of one model, of all domains or without a held-out one; computed or from the cache.

    Held-out domains share all decompositions, and, unless groups of one are in others, too, the
    transfer.
    """

    def __init__(
        self,
        source: FeatureSource,
        model: str,
        device: str | None,
        stability: Stability = "robust",
    ) -> None:
        self.source, self.model, self.device, self.stability = source, model, device, stability
        self.task, self.groups, self.is_warned = source.task, SharedGroups(source), False
        self.settings = f"{stability}, {MOMENTS_VERSION}, {self.task.kind}{self.groups.settings}"

    def unseen(self, test: str | None = None) -> UnseenTerms:
        """The terms of the default score; warns once of features with a large offset."""

        def compute() -> Arrays:
            whole, rest = self._held_out.evidence(*self._excluding(test))
            total = merge(self._held_out.moments.values())
            offset = 0.0 if total.centred is None else total.offset_ratio
            transfer = self._transfer
            if test is not None and self.groups:
                transfer = self._transfer_without([test])
            numbers = {"whole": np.array(whole), "offset": np.array(offset)}
            return numbers | {"rest": rest, "skills": transfer.skills}

        found = self._cached("evidence", compute, test)
        if found["offset"] and not self.is_warned:
            self.is_warned = True
            warnings.warn(
                f"model {self.model!r}: the mean of the features is {found['offset']:.1g} times "
                "their spread, so a model without intercept may ignore the features; centre or "
                "standardise them",
                stacklevel=2,
            )
        domains = tuple(self.source.domains)
        return UnseenTerms(
            tuple(domain for domain in domains if domain != test),
            float(found["whole"]),
            found["rest"],
            Transfer(domains, found["skills"]),
        )

    def all(self, test: str | None = None, *, densities: bool = False) -> Terms:
        """All terms; with log-densities of single samples for intervals of the ZooD score."""

        def compute() -> Arrays:
            return pack(self._held_out.folds(*self._excluding(test), densities=densities))

        unseen = self.unseen(test)
        folds = unpack(self._cached("folds", compute, test, f", densities {densities}"))
        return Terms(folds, unseen, self.stability, self.task)

    def _cached(
        self, kind: str, compute: Callable[[], Arrays], test: str | None, options: str = ""
    ) -> Arrays:
        n = sum(len(self.source.labels(domain)) for domain in self.source.domains)
        with blas_threads(n * self.source.facts(self.model).feature_dim, LARGE_PRODUCT):
            settings = f"without {test!r}, {self.settings}{options}"
            return self.source.cached(kind, [self.model], compute, settings=settings)

    @staticmethod
    def _excluding(test: str | None) -> list[str]:
        return [] if test is None else [test]

    @cached_property
    def _held_out(self) -> HeldOutDomains:
        compact = self.stability == "robust"
        read = read_moments(self.source, self.model, self.device, compact=compact)
        return HeldOutDomains(read, stability=self.stability, task=self.task)

    @cached_property
    def _transfer(self) -> Transfer:
        """The transfer between all domains."""
        return self._transfer_without([])

    def _transfer_without(self, unseen: Sequence[str]) -> Transfer:
        by_output = not self.task.has_probabilities
        return Transfer.of(self._held_out.read, unseen=unseen, by_output=by_output)


def warn_of_noise(terms: Mapping[str, Terms]) -> None:
    """Warn of models with discriminabilities that the data do not determine."""
    vague = [m for m, each in terms.items() if any(fold.unconverged for fold in each.folds)]
    if vague:
        warnings.warn(
            f"{count(len(vague), 'model')} ({some_of(vague)}): too few samples to determine the "
            "noise of some classes, so discriminability is uncertain; add samples, or use the "
            "default score",
            stacklevel=3,
        )


def normalised_weights(
    domains: Sequence[str], weights: Mapping[str, float] | None = None
) -> NDArray[np.float64]:
    """Return the weight of each domain in order; they add up to 1.

    Parameters
    ----------
    domains : sequence of str
    weights : mapping, optional
        Weight of some domains, zero or positive; that of the others is 1. Only ratios matter.

    Examples
    --------
    >>> normalised_weights(["photo", "sketch", "cartoon"], {"sketch": 2}).tolist()
    [0.25, 0.5, 0.25]
    """
    if weights is not None and not isinstance(weights, Mapping):
        raise InputError(
            f"domain_weights must be a dict {{domain: weight}}, got {type(weights).__name__}"
        )
    weights = {} if weights is None else weights
    for name, weight in weights.items():
        if name not in domains:
            hint = did_you_mean(str(name), domains) or f"expected one of {', '.join(domains)}"
            raise InputError(f"domain_weights: unknown domain {name!r}; {hint}")
        number = isinstance(weight, Real) and not isinstance(weight, bool)
        if not number or not math.isfinite(weight) or weight < 0:
            raise InputError(
                f"the weight of domain {name!r} must be a finite number of at least 0, "
                f"got {weight!r}"
            )
    if not domains:
        raise InputError("a ranking needs images with labels, got none")
    values = np.array([float(weights.get(domain, 1.0)) for domain in domains])
    if values.max() == 0:
        raise InputError("the weights of all domains are 0; give at least one a positive weight")
    values /= values.max()  # sums of huge or tiny weights stay finite and positive
    shares: NDArray[np.float64] = values / values.sum()
    return shares
