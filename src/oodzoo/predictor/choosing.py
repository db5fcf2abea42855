"""Which models a predictor uses, how it combines them, and its head."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.combining.combination import Chosen, FinalHead, Training
from oodzoo.combining.evaluation.result import Evaluation, Recommended, require_no_oracle
from oodzoo.combining.one_head import ENSEMBLE
from oodzoo.combining.pool import POOL
from oodzoo.combining.predictions import Heads, pool_columns, predict_with_heads
from oodzoo.combining.selection import (
    Selection,
    SelectionSummary,
    require_method,
    select_features,
)
from oodzoo.combining.statements import FINE_TUNED
from oodzoo.combining.ways import decide, require_choice
from oodzoo.core.backend import to_numpy
from oodzoo.core.errors import InputError
from oodzoo.core.events import Listeners
from oodzoo.core.options import Limits
from oodzoo.core.text import count
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.features import FeatureSource, with_models
from oodzoo.extraction.target import Target, TargetImages, as_target
from oodzoo.linear.heads.adaptive import MIN_IMAGES
from oodzoo.ranking.constraints import TOP_K, TopK, one_top_k, parse_top_k
from oodzoo.ranking.ranker import rank


@dataclass(frozen=True)
class Options:
    """What was asked for.

    Attributes
    ----------
    choose : {"auto", "single", "pool", "ensemble", "selection"}
    top_k : int, sequence of int or "auto", optional
        Number of models of an ensemble, or to select features from; None if it was not given.
    named : bool
        Whether all features of the models that were named are used.
    method, threshold
        See :func:`oodzoo.select_features`.
    limits : Limits
    recommended : Recommended, optional
        What an evaluation recommends.
    selection : SelectionSummary, optional
        Features that were selected before.
    narrowed : bool
        Whether there are fewer models, or narrower limits, than the evaluation chose within.
    """

    choose: str
    top_k: TopK | None
    named: bool
    method: str
    threshold: float | None
    limits: Limits
    recommended: Recommended | None = None
    selection: SelectionSummary | None = None
    narrowed: bool = False

    @property
    def number(self) -> TopK:
        """The number of models of an ensemble."""
        return TOP_K if self.top_k is None else self.top_k

    @property
    def needs_evaluation(self) -> bool:
        return self.choose == "auto" and self.recommended is None and self.selection is None

    def kept_threshold(self, choice: str) -> float | None:
        """Inclusion probability above which features were kept; None if that is not so."""
        if self.selection is not None:
            return self.selection.threshold
        if choice != "selection" or self.method != "paper":
            return None
        return 0.5 if self.threshold is None else self.threshold


@dataclass(frozen=True)
class Fit:
    """A fitted head, and where it comes from."""

    choice: str
    final: FinalHead
    scores: dict[str, float]
    n_features: int
    target: str | None = None
    adapted: int | None = None
    heads: Mapping[str | None, Heads] | None = None
    """Predictions of the heads of all models for each held-out domain, and for none; of a pool."""
    selected_from: tuple[str, ...] = ()
    """Models that features can be selected from again without a domain; empty if they cannot."""
    as_evaluated: bool = True
    """Whether it is what the evaluation recommends, and not what is left of it."""


def parse_options(
    choose: str | None,
    top_k: TopK | None,
    models: Sequence[str] | None,
    limits: Limits,
    *,
    method: str = "consistent",
    threshold: float | None = None,
    recommended: Recommended | Evaluation | None = None,
    selection: Selection | SelectionSummary | None = None,
) -> Options:
    """Check what was asked for."""
    if top_k is not None:
        parse_top_k(top_k)
    require_method(method, threshold)
    decided = "recommended" if recommended is not None else "selection"
    if recommended is not None and selection is not None:
        raise InputError("recommended and selection both say what to fit; leave one out")
    if recommended is not None or selection is not None:
        if choose not in (None, "auto"):
            raise InputError(f"choose={choose!r} and {decided} exclude each other; leave one out")
        choose = "auto"
    named = models is not None and choose in (None, "ensemble") and top_k is None
    if choose is None:
        choose = "auto" if top_k is None and models is None else "ensemble"
    require_choice(choose)
    if method == "paper" and choose != "selection" and selection is None:
        raise InputError(
            f"the method {method!r} is of features that are selected, and choose={choose!r}; add "
            "choose='selection' (--choose selection), or leave the method out"
        )
    if top_k is not None and choose in ("single", "pool"):
        raise InputError(
            f"top_k is the number of models of an ensemble, and choose={choose!r}; leave it out, "
            "or limit the models of a pool with max_models (--max-models)"
        )
    if isinstance(recommended, Evaluation):
        require_no_oracle(recommended.rule)
        recommended = recommended.recommended
    if isinstance(selection, Selection):
        selection = selection.summary()
    return Options(choose, top_k, named, method, threshold, limits, recommended, selection)


def require_decided_here(source: FeatureSource, recommended: Recommended) -> None:
    """Raise an InputError if what an evaluation recommends cannot be fitted to these features."""
    if recommended.choice == FINE_TUNED:
        raise InputError(
            "fine-tuning is recommended, which needs images and not only features; fit with "
            "choose='single' (--choose single), then run oodzoo tune on the predictor"
        )
    if recommended.domains.keys() != set(source.domains):
        raise InputError(
            f"the evaluation is of the domains {', '.join(sorted(recommended.domains))}, the "
            f"features are of {', '.join(sorted(source.domains))}; evaluate them first"
        )
    if missing := [model for model in recommended.models if model not in source.models]:
        raise InputError(
            f"the evaluation recommends {missing[0]!r}, but there are only features of "
            f"{', '.join(source.models)}"
        )


def as_evaluated(source: FeatureSource, options: Options) -> tuple[FeatureSource, Options]:
    """Take the models and limits that an evaluation chose from, unless narrower ones are given.

    The accuracy that it measured is that of a choice among these models, within these limits.
    Within narrower ones, another pool or selection may be fitted, which was not measured.
    """
    found = options.recommended
    if found is None:
        return source, options
    models = [model for model in source.models if model in found.candidates]
    if models and len(models) < len(source.models):
        source = with_models(source, models)
    evaluated = Limits(max_models=found.max_models, max_ms=found.max_ms)
    limits = Limits(
        max_models=_least(options.limits.max_models, evaluated.max_models),
        max_ms=_least(options.limits.max_ms, evaluated.max_ms),
    )
    narrowed = limits != evaluated or not set(found.candidates) <= set(source.models)
    return source, replace(options, limits=limits, narrowed=narrowed)


def _least(one: Any, other: Any) -> Any:
    """The narrower one of two limits; None is none."""
    known = [limit for limit in (one, other) if limit is not None]
    return min(known) if known else None


def fit_choice(
    source: FeatureSource,
    options: Options,
    recommended: Recommended | None,
    score: str,
    target: TargetImages | None,
    device: str | None,
    listener: Listeners,
) -> Fit:
    """Choose models and how to combine them, and fit a head on all domains.

    `recommended` is what an evaluation recommends, if there is one.
    """
    images = None if target is None else as_target(source, target)
    order, scores = list(source.models), {}
    if not options.named:
        ranks = rank(source, score=score, target=images, device=device, listener=listener)
        order, scores = ranks.models, {row.model: row.score for row in ranks}
    if options.selection is not None:
        return _of_selection(source, options.selection, options, scores)
    choice = options.choose
    if choice == "auto":
        if recommended is not None:
            choice = recommended.choice
        elif options.named or images is not None:
            choice = "pool"
        else:
            choice = _decided(source, order, options, device)
    else:
        recommended = None
    if choice == "pool":
        fitted = _pool(source, images, options.limits, scores, device)
    else:
        chosen: Sequence[str] | None = None
        if recommended is not None:
            # The ranking for a target may have another order than what was evaluated.
            n = len(recommended.models)
            chosen = recommended.models if images is None else order[:n]
        fitted = _of_columns(source, choice, order, chosen, options, scores, device)
    used = fitted.final.columns.models
    if recommended is None or images is not None:
        return fitted
    other = set(used) != set(recommended.models)
    wanted = ", ".join(recommended.models)
    if len(recommended.models) > 1:
        wanted = f"a {choice} of {wanted}"
    if options.narrowed and (other or choice == "selection"):
        warnings.warn(
            f"the evaluation recommends {wanted}, chosen from more models or within wider limits; "
            f"the accuracy of this one, of {', '.join(used)}, was not measured: evaluate with the "
            "same models and limits",
            stacklevel=3,
        )
        return replace(fitted, as_evaluated=False)
    if other:
        warnings.warn(
            f"the evaluation recommends {wanted}, but what this machine fits is of "
            f"{', '.join(used)}",
            stacklevel=3,
        )
    return fitted


def _decided(
    source: FeatureSource, order: Sequence[str], options: Options, device: str | None
) -> str:
    """What two domains recommend, which are too few for an evaluation."""
    top_k = min(_number(options, source, order), len(order))
    return decide(Training(source, order, options.limits, top_k, device)).recommended


def _of_selection(
    source: FeatureSource,
    summary: SelectionSummary,
    options: Options,
    scores: dict[str, float],
) -> Fit:
    """Fit a head to features that were selected before."""
    columns = Columns.from_dict(summary.columns, source)
    if not len(columns):
        raise InputError("the selection has no columns; select features again with oodzoo select")
    _require_within(source, columns, "selection", options.limits)
    again = summary.models if summary.method == "consistent" else ()
    return Fit(
        "selection",
        _fitted(source, columns),
        scores,
        summary.n_features,
        selected_from=tuple(again),
    )


def _pool(
    source: FeatureSource,
    images: Target | None,
    limits: Limits,
    scores: dict[str, float],
    device: str | None,
) -> Fit:
    heads = predict_with_heads(source, device=device)
    width = len(Columns.all_of(source, source.models))
    training = Training(source, source.models, limits, device=device, predicted=heads)
    if images is None:
        final = POOL.fit(training, POOL.choose(training))
        return Fit("pool", final, scores, width, heads=heads)
    if images.n < MIN_IMAGES:
        raise InputError(
            f"the target {images.name!r} has {count(images.n, 'image')}; at least {MIN_IMAGES} "
            "are needed to adapt to them; give more, or leave the target out"
        )

    def features(model: str) -> NDArray[np.float32]:
        columns = pool_columns(source, [model])
        blocks = [columns.of(model, to_numpy(block)) for block in images.blocks(model)]
        return np.concatenate(blocks).astype(np.float32, copy=False)

    training = replace(training, target=features)
    final = POOL.fit(training, POOL.choose(training))
    return Fit("pool", final, scores, width, images.name, images.n, heads)


def _of_columns(
    source: FeatureSource,
    choice: str,
    order: Sequence[str],
    chosen: Sequence[str] | None,
    options: Options,
    scores: dict[str, float],
    device: str | None,
) -> Fit:
    """Fit one head to features of several models; `chosen` are those that were recommended."""
    if choice == "selection":
        return _selected(source, order, chosen, options, scores, device)
    if chosen is None:
        if not options.named:
            order = order[: 1 if choice == "single" else _number(options, source, order)]
        chosen = order
    columns = Columns.all_of(source, chosen)
    _require_within(source, columns, choice, options.limits)
    named = "named" if options.named and choice == "ensemble" else choice
    return Fit(named, _fitted(source, columns), scores, len(columns))


def _selected(
    source: FeatureSource,
    order: Sequence[str],
    chosen: Sequence[str] | None,
    options: Options,
    scores: dict[str, float],
    device: str | None,
) -> Fit:
    pool: Sequence[str] = source.models
    best = options.method == "paper" or options.top_k is not None
    if chosen is None and (best or options.limits.of_combinations):
        times = {model: source.facts(model).milliseconds for model in order}
        pool = options.limits.best(order, times)
        if best:
            pool = pool[: _number(options, source, pool)]
    columns = select_features(
        source, pool, method=options.method, threshold=options.threshold, device=device
    ).columns
    if not len(columns):
        raise InputError(
            f"no feature of {', '.join(pool)} has an inclusion probability above "
            f"{options.kept_threshold('selection')}; lower the threshold, or keep all features"
        )
    _require_within(source, columns, "selection", options.limits)
    width = len(Columns.all_of(source, pool))
    again = pool if options.method == "consistent" else ()
    return Fit("selection", _fitted(source, columns), scores, width, selected_from=tuple(again))


def _fitted(source: FeatureSource, columns: Columns) -> FinalHead:
    return ENSEMBLE.fit(Training(source, source.models), Chosen(columns, len(columns)))


def _number(options: Options, source: FeatureSource, order: Sequence[str]) -> int:
    """How many models to take; warn if that is more than there are."""
    if isinstance(options.top_k, int) and options.top_k > len(order):
        warnings.warn(
            f"only {count(len(order), 'model')} available, fewer than {options.top_k}; using all",
            stacklevel=5,
        )
    return one_top_k(options.number, source, order)


def _require_within(source: FeatureSource, columns: Columns, choice: str, limits: Limits) -> None:
    times = {model: source.facts(model).milliseconds for model in columns.models}
    if not limits.allow(columns.models, times):
        raise InputError(
            f"choose={choice!r} uses {count(len(columns.models), 'model')}, more than max_models "
            "or max_ms allow; choose a pool, or raise the limit"
        )
