"""What is chosen for a held-out domain, without using it, and its accuracy; as tasks with a cache.

So is what would be recommended with less time per image: it is decided again within the limit, on
the training domains only, from the predictions that are there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import numpy as np

from oodzoo.combining.decision import Decision, Way, decide, decide_within, first_within
from oodzoo.combining.evaluation.choice import TrainingView, choose
from oodzoo.combining.evaluation.folds import WITH_TARGET, Fold, Settings, kept_fold
from oodzoo.combining.evaluation.learning_curve import (
    Part,
    metric_of_all,
    metrics_of,
    metrics_without_one,
    percent,
)
from oodzoo.combining.evaluation.scoring import (
    cell_with_target,
    diagnose_choice,
    oracle_on,
    sample_paths,
    score_choice,
    trial_rows,
)
from oodzoo.combining.predictions import Heads, predict_with_heads
from oodzoo.combining.work import StoreJob, compute_device, describe_store, open_source, run_all
from oodzoo.combining.work import missing_here as missing_store
from oodzoo.core.events import Log, Progress
from oodzoo.core.options import Limits, total_cost
from oodzoo.extraction.engines import Engine, Work, Worker
from oodzoo.extraction.features import FeatureSource, groups_of
from oodzoo.ranking.constraints import choose_top_k
from oodzoo.ranking.ranker import model_orders, rank, rank_for_test_domains
from oodzoo.ranking.ranking import Ranking

SHARES = (1 / 2, 1 / 10)
"""Of the time per image of what is recommended."""


class Limited(NamedTuple):
    """What is recommended within a limit.

    Attributes
    ----------
    choice : str
    models : tuple of str
    metric : float or None
        Main metric in percent on the held-out domain, if there is one.
    """

    choice: str
    models: tuple[str, ...]
    metric: float | None = None


def milliseconds_of(source: FeatureSource, models: Sequence[str]) -> float | None:
    """Time per image of some models together; None if it is unknown."""
    return total_cost({model: source.facts(model).milliseconds for model in models})


def budgets_of(source: FeatureSource, models: Sequence[str]) -> list[float]:
    """Shares of the time per image of some models in which at least one model of all can run.

    Two digits are enough for an option; none if the time of a model is unknown.
    """
    time = milliseconds_of(source, models)
    each = [source.facts(model).milliseconds for model in source.models]
    known = [ms for ms in each if ms is not None]
    if not time or len(known) < len(each):
        return []
    limits = [float(f"{share * time:.2g}") for share in SHARES]
    return [limit for limit in limits if min(known) <= limit < time]


def class_texts(source: FeatureSource) -> dict[str, str]:
    """Digests of the class embeddings of the models that have some: heads depend on them, too."""
    found = {model: source.class_embeddings(model) for model in source.models}
    return {model: each.digest for model, each in found.items() if each is not None}


def limited_final(
    source: FeatureSource,
    order: Sequence[str],
    heads: Heads,
    limits: Limits,
    final: Decision,
) -> Limited:
    """Decide within limits on all domains; `final` is what was decided without them."""
    ways: dict[str, Way] = {
        name: Way(
            final.models(name), final.estimates[name].contributions, final.estimates[name].within
        )
        for name in ("ensemble", "selection")
        if name in final.estimates
    }
    found = decide_within(source, order, heads, limits, ways)
    models = {"single": (found.best,), "pool": found.pool.models}
    return Limited(
        found.recommended, models.get(found.recommended) or final.models(found.recommended)
    )


def limited_fold(
    source: FeatureSource,
    test: str,
    order: Sequence[str],
    heads: Heads,
    limits: Limits,
    fold: Fold,
) -> Limited:
    """Decide within limits without a held-out domain, and measure on it; kept in a store.

    Parameters
    ----------
    source : FeatureSource
    test : str
    order : sequence of str
        The models, the best without the held-out domain first.
    heads : Heads
        For the held-out domain.
    limits : Limits
    fold : Fold
        What was found without the limits.
    """
    cells = {"selection": fold.cells["selection"], "ensemble": fold.cells[f"ensemble {fold.top_k}"]}
    ways = {
        name: Way(cells[name].models, left_out, within or None)
        for name, (left_out, within) in fold.estimates.items()
    }

    def compute() -> dict[str, np.ndarray]:
        found = decide_within(source, order, heads, limits, ways)
        if found.recommended == "single":
            limited = Limited(
                "single", (found.best,), metric_of_all(source, heads, test, found.best)
            )
        elif found.recommended == "pool":
            if found.pool.test is None:
                raise ValueError("the pool has no predictions for the held-out domain")
            metric = percent(source, found.pool.test, source.labels(test))
            limited = Limited("pool", found.pool.models, metric)
        else:
            cell = cells[found.recommended]
            limited = Limited(found.recommended, cell.models, cell.accuracy)
        return {"limited": np.array(json.dumps(limited))}

    costs = [source.facts(model).milliseconds for model in source.models]
    known = {name: [list(way.models), cells[name].accuracy] for name, way in ways.items()}
    key: list[Any] = [test, list(order), limits.max_models, limits.max_ms, costs, known]
    if texts := class_texts(source):
        key.append(texts)
    arrays = source.cached("budgets", source.models, compute, settings=json.dumps(key))
    choice, models, metric = json.loads(str(arrays["limited"]))
    return Limited(choice, tuple(models), metric)


@dataclass(frozen=True)
class Rankings:
    """The order of the models without each held-out domain, the best first.

    Attributes
    ----------
    orders : dict of str or None to list of str
        That of all domains under None.
    scores : dict of str to Ranking
        With all scores; empty if no baselines are wanted.
    """

    orders: dict[str | None, list[str]]
    scores: dict[str, Ranking]

    @classmethod
    def of(cls, source: FeatureSource, settings: Settings, device: str | None) -> Rankings:
        if settings.peers is None:
            return cls(model_orders(source, score=settings.score, device=device), {})
        found = rank_for_test_domains(source, score=settings.score, device=device)
        final = rank(source, score=settings.score, device=device)
        return cls({None: final.models, **{test: r.models for test, r in found.items()}}, found)


class Judge:
    """Chooses and measures for each held-out domain, with heads that are already trained.

    Parameters
    ----------
    source : FeatureSource
    settings : Settings
    heads : dict of str or None to Heads
        For each held-out domain, and for none.
    rankings : Rankings
    device : str, optional
    log : callable
        Called with one line about each step.
    """

    def __init__(
        self,
        source: FeatureSource,
        settings: Settings,
        heads: Mapping[str | None, Heads],
        rankings: Rankings,
        device: str | None,
        log: Log = lambda _: None,
    ) -> None:
        self._source = source
        self._settings = settings
        self._heads = heads
        self._rankings = rankings
        self._device = device
        self._log = log

    def fold(self, test: str) -> Fold:
        """Judge a held-out domain; the result is kept in a store."""
        source, settings = self._source, self._settings
        costs = [[each.parameters, each.milliseconds] for each in map(source.facts, source.models)]
        inputs = [msgspec.to_builtins(settings), costs, groups_of(source, source.domains)]
        if source.task.one_class:  # the diagnosis names images, which may have moved
            paths = "\n".join(sample_paths(source, test))
            inputs.append(hashlib.sha256(paths.encode()).hexdigest())
        else:
            inputs.append(source.task.kind)
        if known := class_texts(source):
            inputs.append(known)
        return kept_fold(source, test, inputs, lambda: self._judge(test))

    def _judge(self, test: str) -> Fold:
        source, settings = self._source, self._settings
        choice = choose(
            TrainingView.without(source, test),
            self._rankings.orders[test],
            self._heads[test],
            settings.trainer(self._device, oracle_on(source, test)),
            top_k=settings.top_k,
            main=settings.main_top_k,
            limits=settings.limits,
            peers=settings.peers,
            ranking=self._rankings.scores.get(test),
            retrain=settings.protocol == "domainbed" or settings.trials > 1,
            seed=settings.seed,
            device=self._device,
            log=lambda message: self._log(f"held-out domain {test!r}: {message}"),
        )
        rows = trial_rows(source, test, settings.protocol, settings.trials)
        cells = score_choice(source, test, choice, rows)
        if settings.with_target:
            self._log(f"held-out domain {test!r}: heads for its unlabelled images")
            cells[WITH_TARGET] = cell_with_target(
                source, test, self._heads[test], choice, rows, settings.limits, self._device
            )
        return Fold(
            cells,
            choice.top_k,
            {str(k): ratio for k, ratio in choice.paper_ratios.items()},
            choice.selection_ratio,
            choice.decision.recommended,
            diagnose_choice(source, test, choice, rows),
            {
                name: [list(estimate.contributions), list(estimate.within or ())]
                for name, estimate in choice.decision.estimates.items()
                if name in ("ensemble", "selection")
            },
        )

    def limited(self, test: str, fold: Fold, max_ms: float) -> Limited:
        """Decide again within a limit, and measure on the held-out domain; kept in a store."""
        return limited_fold(
            self._source,
            test,
            self._rankings.orders[test],
            self._heads[test],
            Limits(max_models=self._settings.max_models, max_ms=max_ms),
            fold,
        )

    def limited_final(self, final: Decision, max_ms: float) -> Limited:
        """Decide again within a limit on all domains."""
        return limited_final(
            self._source,
            self._rankings.orders[None],
            self._heads[None],
            Limits(max_models=self._settings.max_models, max_ms=max_ms),
            final,
        )

    @property
    def top_models(self) -> dict[str, str]:
        """The first model without each held-out domain that is within the limits."""
        limits = self._settings.limits
        return {
            test: first_within(order, self._heads[test], limits)
            for test, order in self._rankings.orders.items()
            if test is not None
        }

    def final(self) -> Decision:
        """Decide on all domains."""
        source, settings, order = self._source, self._settings, self._rankings.orders[None]
        top_k = settings.main_top_k
        return decide(
            source,
            order,
            self._heads[None],
            top_k=choose_top_k(source, order) if top_k is None else top_k,
            limits=settings.limits,
            device=self._device,
        )


class _Job(msgspec.Struct, frozen=True):
    source: StoreJob
    settings: Settings


class FoldTask(msgspec.Struct, frozen=True, tag="fold"):
    """Judge a held-out domain, and what would be recommended for it in less time per image."""

    test: str
    budgets: list[float]

    def __str__(self) -> str:
        return f"the result for the held-out domain {self.test!r}"


class CurveTask(msgspec.Struct, frozen=True, tag="curve"):
    """Train heads on a part of the images."""

    part: Part

    def __str__(self) -> str:
        return f"the learning curve of {self.part.model!r}"


class FewerTask(msgspec.Struct, frozen=True, tag="fewer"):
    """Train heads on fewer domains."""

    model: str
    settings: dict[str, int]

    def __str__(self) -> str:
        return f"the heads of {self.model!r} on fewer domains"


Task = FoldTask | CurveTask | FewerTask


def compute_tasks(
    source: FeatureSource,
    settings: Settings,
    tasks: Sequence[Task],
    engine: Engine,
    progress: Progress,
) -> None:
    """Run tasks on an engine; the heads are already in the store."""
    job = _Job(describe_store(source, engine), settings)
    work = Work(f"{__name__}:run_task", msgspec.json.encode(job), check=f"{__name__}:missing_here")
    named = [(str(task), msgspec.json.encode(task)) for task in tasks]
    run_all(work, named, engine, progress)


def missing_here(shared: bytes) -> list[str]:
    """List what this machine lacks to compute on a store."""
    return missing_store(msgspec.json.encode(msgspec.json.decode(shared, type=_Job).source))


def run_task(shared: bytes, task: bytes, worker: Worker) -> bytes:
    """Run a task; of a held-out domain, return what is recommended without it."""
    todo, device = msgspec.json.decode(task, type=Task), compute_device(worker)
    if isinstance(todo, FoldTask):
        judge = _judge(shared, device)
        fold = judge.fold(todo.test)
        for max_ms in todo.budgets:
            judge.limited(todo.test, fold, max_ms)
        return fold.recommended.encode()
    source = _source(shared)
    if isinstance(todo, CurveTask):
        metrics_of(source, todo.part, device=device)
    else:
        metrics_without_one(source, todo.model, todo.settings, device=device)
    return b""


def _source(shared: bytes) -> FeatureSource:
    return open_source(msgspec.json.encode(msgspec.json.decode(shared, type=_Job).source))


@lru_cache(maxsize=1)
def _judge(shared: bytes, device: str | None) -> Judge:
    settings = msgspec.json.decode(shared, type=_Job).settings
    source = _source(shared)
    rankings = Rankings.of(source, settings, device)
    heads = predict_with_heads(source, device=device)
    return Judge(source, settings, heads, rankings, device)
