"""Leave-one-domain-out evaluation, and what would change its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np

from oodzoo.combining import statements
from oodzoo.combining.evaluation.fine_tuning import (
    Request,
    find_images,
    fine_tune,
    require_store,
    with_fine_tuned,
)
from oodzoo.combining.evaluation.judge import (
    SHARES,
    Fold,
    Judge,
    Limited,
    Rankings,
    assemble,
    budgets_of,
    milliseconds_of,
)
from oodzoo.combining.evaluation.learning_curve import (
    FewerDomains,
    LearningCurve,
    learning_curve,
    parts_of,
    with_fewer_domains,
)
from oodzoo.combining.evaluation.result import Evaluation
from oodzoo.combining.evaluation.rows import mean_of
from oodzoo.combining.evaluation.settings import (
    Settings,
    limited_top_k,
    parse_peers,
    require_seed,
    require_target_images,
    require_usable,
    resolve_trials,
)
from oodzoo.combining.evaluation.tasks import (
    CurveTask,
    FewerTask,
    FoldTask,
    Task,
    compute_heads,
    compute_tasks,
    describe_store,
)
from oodzoo.combining.one_head import SINGLE
from oodzoo.combining.pool import POOL
from oodzoo.combining.predictions import predict_with_heads
from oodzoo.combining.statements import FINE_TUNED, Advice, described, titles
from oodzoo.combining.ways import Decision
from oodzoo.core.backend import Array, backend, require_device
from oodzoo.core.errors import InputError
from oodzoo.core.events import Listeners, Stage, extent, part, tracked
from oodzoo.core.limits import LimitOptions, Limits
from oodzoo.core.options import Compute, options_of, require_known
from oodzoo.core.text import count
from oodzoo.extraction.engines import Engine, open_engine
from oodzoo.extraction.features import (
    Features,
    FeatureSource,
    StoreSource,
    as_source,
    head_costs,
    moment_costs,
)
from oodzoo.linear.heads.adaptive import MIN_IMAGES
from oodzoo.linear.heads.domainbed import STEPS
from oodzoo.linear.heads.domainbed.protocol import require_rule, require_search_space
from oodzoo.linear.heads.linear import FOLDS
from oodzoo.linear.heads.samples import require_classes_for, require_classes_to_tell_apart
from oodzoo.ranking.constraints import TOP_K, TopK, parse_top_k, restricted
from oodzoo.ranking.ranker import as_score, require_score_of_task
from oodzoo.ranking.testbed.published import require_published
from oodzoo.tuning.network import import_torch
from oodzoo.tuning.problem import TuneSettings
from oodzoo.zoo import ModelSpec, load_zoo


class WhatIf:
    """Measures what would change the result of an evaluation.

    Parameters
    ----------
    judge : Judge
    final : Decision
        What was decided on all domains.
    """

    def __init__(self, judge: Judge, final: Decision) -> None:
        self._judge, self._final = judge, final
        self._source, self._heads, self._tops = judge.source, judge.predicted, judge.top_models
        self.budgets: list[float] = []
        # the heads of other protocols would have to be trained again
        if judge.settings.protocol == "fast" and judge.settings.trials == 1:
            self.budgets = budgets_of(judge.source, final.chosen[final.recommended].models)

    def compute_by(self, engine: Engine) -> None:
        """Let an engine compute all that is needed for it, and the held-out domains."""
        tests, tops = self._source.domains, self._tops
        settings = {test: self._heads[test].alone[tops[test]].setting for test in tests}
        folds = [FoldTask(test, self.budgets) for test in tests]
        others: list[Task] = [CurveTask(each) for each in parts_of(self._source, tops)]
        others += [
            FewerTask(model, {test: settings[test] for test in tests if tops[test] == model})
            for model in dict.fromkeys(tops.values())
        ]
        costs = [1.0] * len(folds) + [0.3 / len(others)] * len(others)
        job = describe_store(self._source, engine, self._judge.settings)
        compute_tasks(job, [*folds, *others], engine, costs)

    def add_to(self, result: Evaluation, folds: Mapping[str, Fold]) -> Evaluation:
        """Add the learning curve and the advice to an evaluation."""
        source, measured = self._source, (self._tops, self._heads)
        with part(0.0, 0.3):
            curve = learning_curve(source, *measured, device=self._judge.device)
        with part(0.3, 0.4):
            fewer = with_fewer_domains(source, *measured, device=self._judge.device)
        found = [*_of_data(curve, fewer, result.metric), *_of_options(result, source)]
        with part(0.4, 1.0):
            found += self._of_budgets(result, folds)
        return replace(result, learning_curve=curve, advice=tuple(found))

    def _of_budgets(self, result: Evaluation, folds: Mapping[str, Fold]) -> list[Advice]:
        best, found = result.recommended, []
        now = milliseconds_of(self._source, best.models)
        before: Limited | None = None
        for max_ms in tracked(self.budgets):
            each = self._judge.limited_final(self._final, max_ms)
            time = milliseconds_of(self._source, each.models)
            if now is None or time is None or time >= now or each == before:
                continue
            before = each
            metrics = {
                test: self._judge.limited(test, fold, max_ms).metric or 0.0
                for test, fold in tracked(list(folds.items()))
            }
            name = described(each.choice, each.models)
            average, times = mean_of(metrics), now / time
            found.append(
                statements.on_budget(max_ms, name, average, best.average, times, result.metric)
            )
        return found


def _of_data(curve: LearningCurve | None, fewer: FewerDomains, metric: str) -> list[Advice]:
    found = [] if curve is None else [statements.on_images(curve)]
    return [*found, statements.on_domains(fewer, metric)]


def _of_options(result: Evaluation, source: FeatureSource) -> list[Advice]:
    """What options of the evaluation found, or could find."""
    found: list[Advice] = []
    pool = result.with_target.get(POOL.name)
    enough = min(len(source.labels(domain)) for domain in source.domains) >= MIN_IMAGES
    if pool is not None or (source.task.one_class and enough):
        average = None if pool is None else pool.average
        found.append(statements.on_target(average, result.recommended.average))
    if result.tuning is not None:
        gain = result.tuning.gain
        recommended = result.recommended.choice == FINE_TUNED
        found.append(statements.on_tuning(gain, titles()[gain.over], recommended=recommended))
    elif isinstance(source, StoreSource):
        found.append(statements.on_tuning(None))
    return found


class EvaluateOptions(LimitOptions, total=False):
    task: str | None
    trials: int | None
    draws: int
    steps: int
    search_space: Literal["default", "DomainNet"]
    selection: Literal["training-domain", "leave-one-domain-out", "oracle"]
    with_target: bool
    published: str | None
    tune: TuneSettings | bool
    data: Any
    zoo: str | Path | Sequence[ModelSpec] | None
    max_hours: float | None
    tune_device: str | None
    engine: str
    address: str | None


@dataclass(frozen=True)
class _Search:
    """DomainBed's search."""

    trials: int | None = None
    draws: int = 10
    steps: int = STEPS
    search_space: str = "default"
    selection: str = "leave-one-domain-out"


@dataclass(frozen=True)
class _FineTuning:
    """What to fine-tune, and on what."""

    tune: TuneSettings | bool = False
    data: Any = None
    zoo: str | Path | Sequence[ModelSpec] | None = None
    max_hours: float | None = None
    tune_device: str | None = None


def evaluate(
    features: Features,
    y: Sequence[Any] | Array | None = None,
    domains: Sequence[Any] | Array | None = None,
    *,
    groups: Sequence[Any] | None = None,
    top_k: TopK = TOP_K,
    protocol: Literal["fast", "domainbed"] = "fast",
    score: str = "unseen",
    seed: int = 0,
    baselines: bool | Sequence[str] = True,
    device: str | None = None,
    listener: Listeners | None = None,
    **options: Unpack[EvaluateOptions],
) -> Evaluation:
    """Evaluate single models and their combinations on held-out domains, and recommend one.

    Each domain is held out once. Models are ranked, pools and features are chosen,
    hyper-parameters are tuned and heads are trained on the other domains only. In a store, the
    result of each held-out domain is kept, so that an evaluation that was stopped continues.

    Parameters
    ----------
    features : mapping, FeatureStore, path or FeatureSource
        Features (n, d) of each model by name, with `y` and `domains`; or a feature store. At least
        three domains.
    y, domains : sequence
        Label and domain of each row. Labels are classes (strings or integers); numbers to predict,
        (n,) or (n, C); or several labels per row, as zeros and ones (n, C) or lists of strings.
    groups : sequence, optional
        Group of each row (a patient, a video), None for a row without one; splits keep groups
        whole. A store has its own groups.
    task : {"classification", "regression", "multilabel"}, optional
        What the labels are, where they could be of two kinds; see :func:`oodzoo.tasks.as_labels`.
        In place of accuracy, a regression is measured by the explained variance, and several
        labels by the average precision (:mod:`oodzoo.tasks`).
    top_k : int, sequence of int or "auto"
        Number of models to concatenate. Several numbers are all evaluated (the paper's ablation);
        the main rows are those of 3 if given, else of the smallest. "auto" chooses 1, 3, 5 or 7 by
        leave-one-domain-out validation on the training domains.
    protocol : {"fast", "domainbed"}
        How heads are trained: ridge regression (logistic regression of several labels), or
        DomainBed's random search, which is for classes only.
    score : str, default "unseen"
        Score to rank by, see :func:`oodzoo.rank`.
    trials : int, optional
        Repetitions with different splits, for standard errors. By default 1 for "fast" (trained on
        all samples) and 3 for "domainbed".
    draws, steps : int
        Hyper-parameter draws and training steps; "domainbed" only.
    search_space : {"default", "DomainNet"}
        Distribution of the draws: DomainBed draws smaller batches for DomainNet than for its other
        data sets; "domainbed" only.
    selection : {"leave-one-domain-out", "training-domain", "oracle"}
        Rule of DomainBed that selects among draws and steps; "domainbed" only. The results by all
        three are in :attr:`oodzoo.combining.evaluation.Evaluation.by_rule`.
    seed : int
        Seed of random features and of "domainbed".
    baselines : bool or sequence of str
        Whether to evaluate every single model, random features and the paper's selection as well;
        or names of other scores whose top model is evaluated.
    with_target : bool
        Whether to evaluate, too, what unlabelled images of the held-out domain are worth; for
        classes only.
    max_models, max_ms : int and float, optional
        Largest number of models, and time per image in milliseconds (the sum over the models), of
        what is recommended. Models that take longer alone are left out.
    max_parameters, licence : optional
        Use only models that meet these constraints, see :func:`oodzoo.rank`.
    published : {"PACS", "VLCS", "OfficeHome", "TerraIncognita", "DomainNet"}, optional
        Which of these data sets the samples are of, to show the results among published ones:
        :meth:`oodzoo.combining.evaluation.Evaluation.beside_published`. It is never guessed.
    tune : bool or TuneSettings
        Whether to fine-tune the top model without each held-out domain, too, with these settings;
        for a store of images. Finished runs are kept. Needs the extra `tune`.
    data : ImageDomains, path, URL or object, optional
        With `tune`: the images of the store.
    zoo : str, path or sequence of ModelSpec, optional
        With `tune`: new location of the models, if they moved since the extraction.
    max_hours : float, optional
        With `tune`: raise an InputError if it would take longer; 3 by default on the CPU.
    tune_device : str, optional
        With `tune`: where to fine-tune, if not on `device`.
    device : str, optional
        PyTorch device such as "cuda"; NumPy if None. Several, as "cuda:0,cuda:1", are used by a
        process each. Logistic regressions of several labels always use NumPy. Models are
        fine-tuned on the first of them, or by default on the fastest device there is.
    engine : {"local", "ray"}
        Where heads are trained and held-out domains are judged: on this machine, or on a Ray
        cluster. Several devices and clusters need a store, which all machines must see.
    address : str, optional
        Of an existing Ray cluster, see :func:`oodzoo.extract`.
    listener : Listener or sequence of Listener, optional
        Receives the events of the stage "evaluation", see :mod:`oodzoo.core.events`.

    Examples
    --------
    >>> import numpy as np, oodzoo
    >>> rng = np.random.default_rng(0)
    >>> y, domains = np.tile([0, 1], 60), np.repeat(["a", "b", "c"], 40)
    >>> good = np.stack([y, 1 - y], 1) + 0.3 * rng.normal(size=(120, 2))
    >>> zoo = {"noise": rng.normal(size=(120, 2)), "good": good}
    >>> result = oodzoo.evaluate(zoo, y, domains, top_k=2)
    >>> result.single.cells["a"].models
    ('good',)
    >>> result.selection.average > 95
    True
    """
    require_known("evaluate", options, EvaluateOptions)
    tuning = options_of(_FineTuning, options)
    with_target, published = options.get("with_target", False), options.get("published")
    chosen = as_score(score)
    require_seed(seed)
    search = options_of(_Search, options)
    require_search_space(search.search_space)
    require_rule(search.selection)
    compute = options_of(Compute, {"device": device, **options})
    here = compute.arrays
    backend(here)
    numbers = parse_top_k(top_k)
    trials = resolve_trials(protocol, search.trials)
    limits = options_of(Limits, options)
    source = as_source(features, y, domains, groups, task=options.get("task"))
    source = restricted(source, limits)
    require_score_of_task(chosen, source.task)
    peers = parse_peers(baselines, source.task)
    if protocol == "domainbed":
        require_classes_for(source.task, "the protocol 'domainbed'")
    require_classes_to_tell_apart(source)
    with_splits = trials > 1 or protocol == "domainbed" or tuning.tune is not False
    require_usable(source, with_splits=with_splits)
    if with_target:
        require_target_images(source)
    if published is not None:
        require_published(published, source.task)
    if numbers is not None:
        numbers = limited_top_k(numbers, len(source.models))
    settings = Settings(
        top_k=numbers,
        protocol=protocol,
        score=score,
        trials=trials,
        draws=search.draws,
        steps=search.steps,
        search_space=search.search_space,
        selection=search.selection,
        seed=seed,
        peers=peers,
        with_target=with_target,
        max_models=limits.max_models,
        max_ms=limits.max_ms,
    )
    settings.trainer(here)  # rejects bad values
    request = _request(source, tuning, here)
    facts = extent(source) | {"protocol": protocol, "score": score, "top_k": top_k}
    with (
        open_engine(compute) as opened,
        Stage(listener, "evaluation", **facts) as stage,
    ):
        result = _evaluate(source, settings, opened, here, stage, request)
        if published is not None:
            result = replace(
                result, published=published, extraction_hours=_extraction_hours(source)
            )
        stage.finish(result, result.metrics)
    return result


def _evaluate(
    source: FeatureSource,
    settings: Settings,
    engine: Engine | None,
    device: str | None,
    stage: Stage,
    request: Request | None,
) -> Evaluation:
    models = count(len(source.models), "model")
    phase = stage.phases(_costs(source, settings, engine, fine_tuned=request is not None))
    what = f"heads of {models}, trained without each domain, each pair and each fold"
    if few := few_samples(source):
        stage.say(few)
    if engine is not None:
        with phase("tasks of models"):
            stage.say(f"{what}, on {count(engine.slots, 'worker')} ({engine.name})")
            compute_heads(source, engine, by_test=settings.peers is not None)
    with phase("ranking"):
        stage.say(f"ranking {models} without each held-out domain")
        rankings = Rankings.of(source, settings, device)
    with phase("heads"):
        if engine is None:
            stage.say(what)
        heads = predict_with_heads(source, device=device)
    judge = Judge(source, settings, heads, rankings, device, stage.say)
    with phase("deciding"):
        stage.say("deciding on all domains")
        final = judge.final()
    what_if = WhatIf(judge, final)
    if engine is not None:
        with phase("tasks of domains"):
            what_if.compute_by(engine)
    with phase("domains"):
        folds = {test: judge.fold(test) for test in tracked(source.domains)}
    result = assemble(source, folds, final, settings)
    if request is not None:
        top = {test: cell.models[0] for test, cell in result.single.cells.items()}
        names = ", ".join(dict.fromkeys(top.values()))
        with phase("fine-tuning"):
            stage.say(f"fine-tuning {names} without each held-out domain")
            tuned = fine_tune(require_store(source), top, request, stage)
        result = with_fine_tuned(result, source, tuned, final.chosen[SINGLE.name].models[0])
    with phase("what if"):
        stage.say("measuring what more images, more domains and less time would change")
        return what_if.add_to(result, folds)


def _costs(
    source: FeatureSource, settings: Settings, engine: Engine | None, *, fine_tuned: bool
) -> dict[str, float]:
    """Expected seconds of the phases, measured on one core; only their ratios matter."""
    images = sum(len(source.labels(domain)) for domain in source.domains)
    width = sum(source.facts(model).feature_dim for model in source.models)
    ranking = sum(moment_costs(source, source.models))
    heads = sum(head_costs(source, source.models))
    fold = 1.0 + 3e-7 * images * width**1.5
    folds = fold * len(source.domains) * (20 if settings.protocol == "domainbed" else 1)
    timed = all(source.facts(model).milliseconds for model in source.models)
    limits = len(SHARES) if timed else 0
    deciding = 0.75 * fold
    what_if = 0.3 * fold + 0.035 * limits * len(source.models) * (len(source.domains) + 1)
    costs = {"ranking": ranking, "heads": heads, "deciding": deciding, "domains": folds}
    if engine is not None:  # what tasks have computed is only read
        read = {name: 0.02 * cost for name, cost in costs.items()}
        costs = {
            "tasks of models": 2.0 + (ranking + heads) / engine.slots,
            "ranking": read["ranking"],
            "heads": read["heads"],
            "deciding": deciding,
            "tasks of domains": (folds + what_if) / engine.slots,
            "domains": read["domains"],
        }
        what_if *= 0.02
    if fine_tuned:
        costs["fine-tuning"] = 5.0 * sum(costs.values())
    return costs | {"what if": what_if}


def few_samples(source: FeatureSource) -> str:
    """Say which class of a domain is missing in some folds; empty if none is."""
    if not source.task.one_class:
        return ""
    for domain in source.domains:
        sizes = np.bincount(source.labels(domain), minlength=len(source.classes))
        few = np.flatnonzero((sizes > 0) & (sizes < FOLDS))
        if len(few):
            at = int(few[0])
            return (
                f"class {source.classes[at]!r} has {count(int(sizes[at]), 'sample')} in domain "
                f"{domain!r}: fewer than {FOLDS} folds of the cross-validation within the domains "
                "have it"
            )
    return ""


def _request(source: FeatureSource, tuning: _FineTuning, device: str | None) -> Request | None:
    """What to fine-tune, checked; None if nothing is."""
    zoo, max_hours = tuning.zoo, tuning.max_hours
    if tuning.tune is False:
        for name, value in vars(tuning).items():
            if name != "tune" and value is not None:
                raise InputError(f"{name} is only used with tune (--tune); leave it out")
        return None
    store = require_store(source)
    if tuning.data is None:
        raise InputError(
            "fine-tuning needs the images of the store; give them with data= (--data DATA)"
        )
    if max_hours is not None and not max_hours > 0:
        raise InputError(f"max_hours must be positive, got {max_hours}")
    import_torch()
    specs = [] if zoo is None else load_zoo(zoo) if isinstance(zoo, str | Path) else list(zoo)
    settings = TuneSettings() if tuning.tune is True else tuning.tune
    where = tuning.tune_device or device or "auto"
    require_device(where)
    return Request(find_images(store, tuning.data), settings, specs, where, max_hours)


def _extraction_hours(source: FeatureSource) -> float | None:
    """Time to extract the features of all models, by their time per image; None if unknown."""
    each = milliseconds_of(source, source.models)
    n = sum(len(source.labels(domain)) for domain in source.domains)
    return None if each is None else each * n / 3.6e6
