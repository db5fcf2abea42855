"""What is chosen for a held-out domain, without using it, and its accuracy, as a store keeps it.

So is what would be recommended with less time per image: it is decided again within the limit, on
the training domains only, from the predictions that are there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from oodzoo.combining.combination import Training
from oodzoo.combining.evaluation.choice import Candidate, TrainingView, choose
from oodzoo.combining.evaluation.learning_curve import percent
from oodzoo.combining.evaluation.result import Evaluation, Recommended
from oodzoo.combining.evaluation.rows import Aggregation, Cell, Row, mean_of
from oodzoo.combining.evaluation.scoring import (
    ALL_OF,
    SELECTED_OF,
    Scorer,
    cell_by,
    oracle_on,
    sample_paths,
    trial_rows,
)
from oodzoo.combining.evaluation.settings import Settings
from oodzoo.combining.one_head import ENSEMBLE, SINGLE
from oodzoo.combining.pool import POOL
from oodzoo.combining.predictions import Heads, pool_columns
from oodzoo.combining.selection import SELECTION
from oodzoo.combining.verdict import Estimate
from oodzoo.combining.ways import COMBINATIONS, Decision, decide, decide_again, relative_cost
from oodzoo.core.events import Log, part
from oodzoo.core.limits import Limits, cost_of
from oodzoo.extraction.features import FeatureSource, groups_of
from oodzoo.linear.heads.domainbed.protocol import RULES
from oodzoo.ranking.constraints import choose_top_k
from oodzoo.ranking.intervals import new_domain_interval
from oodzoo.ranking.ranker import model_orders, rank, rank_for_test_domains
from oodzoo.ranking.ranking import Ranking
from oodzoo.tasks.classification import ClassDiagnosis

SHARES = (1 / 2, 1 / 10)
"""Of the time per image of what is recommended."""

WITH_TARGET = "{} with target"
"""Name of the cell of a way for which the images of the held-out domain are known."""

_KINDS = ("left out", "within")


@dataclass(frozen=True)
class Fold:
    """The result of one held-out domain, as it is kept in a store.

    Attributes
    ----------
    cells : dict of str to Cell
        By row.
    top_k : int
        The K of the main rows.
    paper_ratios : dict of str to float
        Share of the features of the best K models that the paper's method selects, by K.
    selection_ratio : float
        Share of the features of all models that are selected.
    recommended : str
    diagnosis : ClassDiagnosis, optional
        Of what is recommended; None without classes.
    estimates : dict of str to pair of lists of array
        Contributions to the metric of the training domains, held out and within, of the
        combinations that need heads of their own: see
        :class:`~oodzoo.combining.verdict.Estimate`. The second list may be empty.
    """

    cells: dict[str, Cell]
    top_k: int
    paper_ratios: dict[str, float]
    selection_ratio: float
    recommended: str
    diagnosis: ClassDiagnosis | None = None
    estimates: dict[str, list[list[NDArray[Any]]]] = field(default_factory=dict)


def kept_fold(
    source: FeatureSource, test: str, settings: Sequence[Any], judge: Callable[[], Fold]
) -> Fold:
    """The result of a held-out domain, from the cache of a store if it is there."""

    def compute() -> dict[str, NDArray[Any]]:
        fold = judge()
        arrays = {"fold": np.array(msgspec.json.encode(replace(fold, estimates={})).decode())}
        for name, kinds in fold.estimates.items():
            for kind, parts in zip(_KINDS, kinds, strict=True):
                arrays |= {f"{name} {kind} {number}": each for number, each in enumerate(parts)}
        return arrays

    arrays = source.cached(
        "evaluations", source.models, compute, settings=json.dumps([test, *settings])
    )
    document = msgspec.json.decode(str(arrays["fold"]))
    estimates = {
        name: [
            [
                arrays[key]
                for number in range(len(source.domains) - 1)
                if (key := f"{name} {kind} {number}") in arrays
            ]
            for kind in _KINDS
        ]
        for name in COMBINATIONS
        if f"{name} {_KINDS[0]} 0" in arrays
    }
    found = document["diagnosis"]
    diagnosis = None if found is None else ClassDiagnosis.from_dict(found)
    cells = {}
    for name, cell in document["cells"].items():
        measures = tuple(source.task.measures(*each) for each in cell["measures"])
        cells[name] = Cell(**cell | {"measures": measures, "models": tuple(cell["models"])})
    read = {"cells": cells, "diagnosis": diagnosis, "estimates": estimates}
    return Fold(**document | read)


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
    return cost_of({model: source.facts(model) for model in models}).milliseconds


def budgets_of(source: FeatureSource, models: Sequence[str]) -> list[float]:
    """Time limits, as shares of the time of some models, that at least one model meets.

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


@dataclass
class Judge:
    """Chooses and measures for each held-out domain, with heads that are already trained.

    Attributes
    ----------
    source : FeatureSource
    settings : Settings
    predicted : dict of str or None to Heads
        For each held-out domain, and for none.
    rankings : Rankings
    device : str, optional
    log : callable
        Called with one line about each step.
    """

    source: FeatureSource
    settings: Settings
    predicted: Mapping[str | None, Heads]
    rankings: Rankings
    device: str | None
    log: Log = lambda _: None

    def training(self, test: str | None, limits: Limits | None = None) -> Training:
        """What may be known without a held-out domain; of all domains, if it is None."""
        source = self.source
        if test is not None:
            source = source.only([domain for domain in source.domains if domain != test])
        return Training(
            source,
            self.rankings.orders[test],
            limits or self.settings.limits,
            self.settings.main_top_k,
            self.device,
            self.predicted,
            test,
        )

    @cached_property
    def top_models(self) -> dict[str, str]:
        """The first model without each held-out domain that is within the limits."""
        return {test: SINGLE.choose(self.training(test)).models[0] for test in self.source.domains}

    def final(self) -> Decision:
        """Decide on all domains."""
        with part(0.0, 0.1):
            training = self.training(None)
            training = replace(training, top_k=self._top_k(training))
        with part(0.1, 1.0):
            return decide(training)

    def _top_k(self, training: Training) -> int:
        """The number of models to concatenate, which the training domains choose for "auto"."""
        known = self.settings.main_top_k
        return choose_top_k(training.source, training.order) if known is None else known

    def fold(self, test: str) -> Fold:
        """Judge a held-out domain; the result is kept in a store."""
        source, settings = self.source, self.settings
        costs = [[each.parameters, each.milliseconds] for each in map(source.facts, source.models)]
        inputs = [msgspec.to_builtins(settings), costs, groups_of(source, source.domains)]
        inputs.append(list(COMBINATIONS))
        if source.task.one_class:  # the diagnosis names images, which may have moved
            paths = "\n".join(sample_paths(source, test))
            inputs.append(hashlib.sha256(paths.encode()).hexdigest())
        else:
            inputs.append(source.task.kind)
        if known := class_texts(source):
            inputs.append(known)
        return kept_fold(source, test, inputs, lambda: self._judge(test))

    def _judge(self, test: str) -> Fold:
        source, settings = self.source, self.settings
        training = self.training(test)
        top_k = self._top_k(training)
        training = replace(training, top_k=top_k)
        train = settings.trainer(self.device, oracle_on(source, test))
        choice = choose(
            training,
            partial(train, TrainingView.without(source, test)),
            top_k=settings.top_k or [top_k],
            peers=settings.peers,
            ranking=self.rankings.scores.get(test),
            retrain=settings.protocol == "domainbed" or settings.trials > 1,
            seed=settings.seed,
            log=lambda message: self.log(f"held-out domain {test!r}: {message}"),
        )
        decision = choice.decision
        scorer = Scorer(source, test, trial_rows(source, test, settings.protocol, settings.trials))
        cells = scorer.choice(choice)
        if settings.with_target:
            self.log(f"held-out domain {test!r}: heads for its unlabelled images")
            cells |= self._with_target(training, decision, scorer)
        selected = decision.chosen[SELECTION.name]
        return Fold(
            cells,
            top_k,
            {
                str(k): len(selected.columns) / len(every.columns)
                for k, (every, selected) in choice.ablation.items()
            },
            len(selected.columns) / selected.n_candidates,
            decision.recommended,
            scorer.diagnose(choice.candidates[decision.recommended]),
            {
                name: [list(estimate.contributions), list(estimate.within or ())]
                for name, estimate in decision.estimates.items()
                if not COMBINATIONS[name].from_heads
            },
        )

    def _with_target(
        self, training: Training, decision: Decision, scorer: Scorer
    ) -> dict[str, Cell]:
        """Score the combinations that adapt to the unlabelled images of the held-out domain."""
        source, test = self.source, scorer.test

        def images(model: str) -> NDArray[np.float32]:
            return pool_columns(source, [model]).samples(source, [test]).features

        training = replace(training, source=source, target=images)  # with the classes of all
        cells = {}
        for name, way in COMBINATIONS.items():
            if way.adapts:
                chosen = way.choose_for_target(training, decision.chosen[name])
                candidate = Candidate(chosen.columns, outputs=chosen.test)
                cells[WITH_TARGET.format(name)] = scorer.cell(candidate)
        return cells

    def limited(self, test: str, fold: Fold, max_ms: float) -> Limited:
        """Decide again within a limit, and measure on the held-out domain; kept in a store."""
        source, limits = self.source, Limits(max_models=self.settings.max_models, max_ms=max_ms)
        training = self.training(test, limits)
        cells = {name: fold.cells[name] for name in fold.estimates}

        def compute() -> dict[str, np.ndarray]:
            found = decide_again(
                training,
                {
                    name: Estimate(
                        left_out, relative_cost(source, cells[name].models), within or None
                    )
                    for name, (left_out, within) in fold.estimates.items()
                    if training.allows(cells[name].models)
                },
            )
            name = found.recommended
            if (chosen := found.chosen.get(name)) is None:
                limited = Limited(name, cells[name].models, cells[name].accuracy)
            else:
                assert chosen.test is not None
                metric = percent(source, chosen.test, source.labels(test))
                limited = Limited(name, chosen.models, metric)
            return {"limited": np.array(json.dumps(limited))}

        costs = [source.facts(model).milliseconds for model in source.models]
        known = {name: [list(cell.models), cell.accuracy] for name, cell in cells.items()}
        key: list[Any] = [test, list(training.order), limits.max_models, max_ms, costs, known]
        if texts := class_texts(source):
            key.append(texts)
        arrays = source.cached("budgets", source.models, compute, settings=json.dumps(key))
        choice, models, metric = json.loads(str(arrays["limited"]))
        return Limited(choice, tuple(models), metric)

    def limited_final(self, final: Decision, max_ms: float) -> Limited:
        """Decide again within a limit on all domains; `final` was decided without it."""
        limits = Limits(max_models=self.settings.max_models, max_ms=max_ms)
        training = self.training(None, limits)
        found = decide_again(
            training,
            {
                name: estimate
                for name, estimate in final.estimates.items()
                if not COMBINATIONS[name].from_heads and training.allows(final.chosen[name].models)
            },
        )
        name = found.recommended
        return Limited(name, (final.chosen | found.chosen)[name].models)


def assemble(
    source: FeatureSource, folds: Mapping[str, Fold], final: Decision, settings: Settings
) -> Evaluation:
    """Put the results of all held-out domains together; `final` was decided on all domains."""
    first = next(iter(folds.values()))

    def row(name: str) -> Row:
        return Row({test: fold.cells[name] for test, fold in folds.items()})

    def best(cell: str) -> Row:
        return Row({test: fold.cells[cell.format(fold.top_k)] for test, fold in folds.items()})

    numbers, ablation = settings.top_k, {}
    if numbers is not None and len(numbers) > 1:
        for k in numbers:
            ratios = {test: fold.paper_ratios[str(k)] for test, fold in folds.items()}
            ablation[k] = Aggregation(row(ALL_OF.format(k)), row(SELECTED_OF.format(k)), ratios)
    baselines = {
        name: row(name)
        for name in first.cells
        if name.startswith(("random_features", "oracle", "best_by_", "zero_shot"))
    }
    if "oracle" in baselines:
        baselines["paper_selection"] = best(SELECTED_OF)
    rows = {name: row(name) for name in COMBINATIONS}
    return Evaluation(
        protocol=settings.protocol,
        score=settings.score,
        top_k={t: fold.top_k for t, fold in folds.items()} if numbers is None else first.top_k,
        trials=settings.trials,
        domains=source.domains,
        recommended=_recommended(source, folds, final, settings),
        single=rows.pop(SINGLE.name),
        pool=rows.pop(POOL.name),
        ensemble=rows.pop(ENSEMBLE.name),
        selection=rows.pop(SELECTION.name),
        others=rows,
        feature_ratio={test: fold.selection_ratio for test, fold in folds.items()},
        with_target={
            name: row(WITH_TARGET.format(name))
            for name in COMBINATIONS
            if WITH_TARGET.format(name) in first.cells
        },
        baselines=baselines,
        ablation=ablation,
        rule=settings.selection if settings.protocol == "domainbed" else None,
        by_rule={
            rule: {n: row(cell) for n in COMBINATIONS if (cell := cell_by(rule, n)) in first.cells}
            for rule in RULES
            if cell_by(rule, SINGLE.name) in first.cells
        },
        unseen=_unseen(source),
        task=source.task.kind,
        diagnosis={test: f.diagnosis for test, f in folds.items() if f.diagnosis is not None},
    )


def _recommended(
    source: FeatureSource,
    folds: Mapping[str, Fold],
    final: Decision,
    settings: Settings,
) -> Recommended:
    """What is recommended for a new domain; its accuracy is that of what each fold recommends."""
    choices = {test: fold.recommended for test, fold in folds.items()}
    cells = {test: folds[test].cells[choice] for test, choice in choices.items()}
    domains = {test: cell.accuracy for test, cell in cells.items()}
    return Recommended(
        choice=final.recommended,
        models=final.chosen[final.recommended].models,
        average=mean_of(domains),
        interval=interval_of(source, cells),
        domains=domains,
        choices=choices,
        estimates={name: each.accuracy for name, each in final.estimates.items()},
        within={
            name: each.accuracy_within
            for name, each in final.estimates.items()
            if each.accuracy_within is not None
        },
        candidates=source.models,
        max_models=settings.max_models,
        max_ms=settings.max_ms,
    )


def interval_of(source: FeatureSource, cells: Mapping[str, Cell]) -> tuple[float, float]:
    """The 90 % interval of the main metric on a new domain, from the cells of held-out domains."""
    values = np.array([cell.accuracy for cell in cells.values()])
    variances = [_variance(cell, len(source.labels(test))) for test, cell in cells.items()]
    low, high = new_domain_interval(values, np.array(variances))
    return max(source.task.lowest, low), min(100.0, high)


def _variance(cell: Cell, n: int) -> float:
    """Variance of the metric that is due to n samples; that of an accuracy is binomial."""
    if cell.variance is None:
        return cell.accuracy * (100 - cell.accuracy) / n
    return cell.variance


def _unseen(source: FeatureSource) -> dict[str, tuple[str, ...]]:
    """The classes or labels that occur in one domain only, by domain."""
    if not source.task.has_probabilities:
        return {}

    def present(domain: str) -> NDArray[np.int64]:
        labels = source.labels(domain)
        if source.task.one_class:
            return np.unique(labels)
        return np.flatnonzero(labels.any(axis=0))

    unseen = {}
    for test in source.domains:
        others = [present(domain) for domain in source.domains if domain != test]
        alone = np.setdiff1d(present(test), np.concatenate(others))
        if len(alone):
            unseen[test] = tuple(str(source.classes[at]) for at in alone)
    return unseen
