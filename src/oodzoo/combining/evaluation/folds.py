"""Options of an evaluation, and its results by held-out domain, which are put together."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from oodzoo.combining.decision import Decision
from oodzoo.combining.evaluation.choice import (
    FAST_PEERS,
    Oracle,
    Trainer,
    domainbed_trainer,
    fast_trainer,
)
from oodzoo.combining.evaluation.result import Evaluation, Recommended
from oodzoo.combining.evaluation.rows import Aggregation, Cell, Row, mean_of
from oodzoo.combining.evaluation.scoring import cell_by
from oodzoo.core.errors import InputError
from oodzoo.core.options import Limits
from oodzoo.core.text import count
from oodzoo.extraction.features import FeatureSource
from oodzoo.linear.heads.adaptive import MIN_IMAGES
from oodzoo.linear.heads.domainbed.protocol import RULES
from oodzoo.linear.heads.samples import require_classes_for
from oodzoo.ranking import scores
from oodzoo.ranking.constraints import TOP_K
from oodzoo.ranking.intervals import new_domain_interval
from oodzoo.ranking.ranker import require_score_of_task
from oodzoo.tasks import Task
from oodzoo.tasks.classification import ClassDiagnosis

_MIN_SPLIT_SAMPLES = 5
"""Fewest samples of a domain that can be split into 80 % and 20 %."""


def parse_peers(baselines: bool | Sequence[str], task: Task) -> tuple[str, ...] | None:
    """Names of the scores to compare with; None for no baselines."""
    if isinstance(baselines, bool):
        fast = tuple(name for name in FAST_PEERS if task.kind in scores.get(name).tasks)
        return fast if baselines else None
    names = (baselines,) if isinstance(baselines, str) else tuple(baselines)
    for name in names:
        require_score_of_task(scores.get(name), task)
    return tuple(scores.get(name).name for name in names)


def main_top_k(numbers: Sequence[int]) -> int:
    """Return the number used for the main rows: 3 if present, else the first."""
    return TOP_K if TOP_K in numbers else numbers[0]


def limited_top_k(numbers: Sequence[int], n_models: int) -> list[int]:
    """Limit numbers of models to those there are, with a warning."""
    if max(numbers) > n_models:
        warnings.warn(
            f"only {count(n_models, 'model')} available, fewer than {max(numbers)}; using all",
            stacklevel=3,  # evaluate
        )
    return sorted({min(k, n_models) for k in numbers})


def require_seed(seed: int) -> None:
    """Raise an InputError if the seed is negative."""
    if seed < 0:
        raise InputError(f"seed must be 0 or more, got {seed}")


def resolve_trials(protocol: str, trials: int | None = None) -> int:
    """Validate a protocol and its number of trials; the default number if None."""
    if protocol not in ("fast", "domainbed"):
        raise InputError(f"unknown protocol {protocol!r}; expected one of fast, domainbed")
    if trials is None:
        return 1 if protocol == "fast" else 3
    if trials < 1:
        raise InputError(f"trials must be 1 or more, got {trials!r}")
    return trials


def require_target_images(source: FeatureSource) -> None:
    """Require classes, and enough images of each domain to adapt to them."""
    require_classes_for(source.task, "with_target")
    for domain in source.domains:
        n = len(source.labels(domain))
        if n < MIN_IMAGES:
            raise InputError(
                f"domain {domain!r} has {count(n, 'sample')}; with_target needs at least "
                f"{MIN_IMAGES} to adapt to; leave it out"
            )


def require_usable(source: FeatureSource, *, with_splits: bool) -> None:
    """Require three domains, labels that vary without any one domain, and samples to split."""
    names = source.domains
    if len(names) < 3:
        raise InputError(
            "an evaluation needs at least three domains, one to test on and two to rank models on; "
            f"got {', '.join(map(repr, names)) or 'none'}"
        )
    for test in names:
        _require_variation_without(source, test)
        n = len(source.labels(test))
        if with_splits and n < _MIN_SPLIT_SAMPLES:
            raise InputError(
                f"domain {test!r} has {count(n, 'sample')}; splits of 80 % and 20 % need at least "
                f"{_MIN_SPLIT_SAMPLES}"
            )
        groups = set(source.groups(test) or ()) if with_splits else set()
        if len(groups) == 1 and None not in groups:
            raise InputError(
                f"all samples of domain {test!r} are of the group {groups.pop()!r}; "
                "splits of 80 % and 20 % keep groups whole and need at least two; use the protocol "
                "'fast' with one trial, or leave the groups out"
            )


def _require_variation_without(source: FeatureSource, test: str) -> None:
    training = source.only([domain for domain in source.domains if domain != test])
    if source.task.one_class:
        if len(training.classes) < 2:
            raise InputError(
                f"the domains other than {test!r} have only the class {training.classes[0]!r}; a "
                "classifier needs at least two"
            )
        return
    labels = np.concatenate([training.labels(domain) for domain in training.domains])
    constant = (labels == labels[0]).all(axis=0)
    if source.task.has_probabilities and constant.all():
        raise InputError(
            f"the samples of the domains other than {test!r} all have the same labels; nothing can "
            "be learned from them"
        )
    if not source.task.has_probabilities and constant.any():
        at = int(np.argmax(constant))
        raise InputError(
            f"{source.classes[at]!r} is constant, {labels[0, at]:g}, in the domains other than "
            f"{test!r}; nothing can be learned from it"
        )


class Settings(msgspec.Struct, frozen=True):
    """Options of an evaluation, checked; see :func:`oodzoo.evaluate`.

    `top_k` is None if K is chosen on the training domains, `peers` is None without baselines.
    """

    top_k: list[int] | None
    protocol: str
    score: str
    trials: int
    draws: int
    steps: int
    search_space: str
    selection: str
    seed: int
    peers: tuple[str, ...] | None
    with_target: bool
    max_models: int | None
    max_ms: float | None

    @property
    def main_top_k(self) -> int | None:
        return None if self.top_k is None else main_top_k(self.top_k)

    @property
    def limits(self) -> Limits:
        return Limits(max_models=self.max_models, max_ms=self.max_ms)

    def trainer(self, device: str | None, oracle: Oracle | None = None) -> Trainer:
        if self.protocol == "domainbed":
            return domainbed_trainer(
                self.trials,
                self.draws,
                self.steps,
                self.seed,
                device,
                self.search_space,
                self.selection,
                oracle,
            )
        return fast_trainer(self.trials)

    def check(self, device: str | None) -> None:
        """Raise an InputError for options that only show to be wrong when they are used."""
        self.trainer(device)
        _ = self.limits


_KINDS = ("left out", "within")

WITH_TARGET = "pool with target"
"""Name of the cell of the pool for which the images of the held-out domain are known."""


@dataclass(frozen=True)
class Fold:
    """The result of one held-out domain, as it is kept in a store.

    Attributes
    ----------
    cells : dict of str to Cell
        By row; those of the best K models end with K.
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
        combinations that need heads of their own (ensemble, selection): see
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
        for name in ("ensemble", "selection")
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


def assemble(
    source: FeatureSource, folds: Mapping[str, Fold], final: Decision, settings: Settings
) -> Evaluation:
    """Put the results of all held-out domains together; `final` was decided on all domains."""
    numbers = settings.top_k

    def row(name: str) -> Row:
        return Row({test: fold.cells[name] for test, fold in folds.items()})

    def main_row(kind: str) -> Row:
        return Row({test: fold.cells[f"{kind} {fold.top_k}"] for test, fold in folds.items()})

    ablation = {}
    if numbers is not None and len(numbers) > 1:
        for k in numbers:
            ratios = {test: fold.paper_ratios[str(k)] for test, fold in folds.items()}
            ablation[k] = Aggregation(row(f"ensemble {k}"), row(f"paper_selection {k}"), ratios)
    first = next(iter(folds.values()))
    baselines = {
        name: row(name)
        for name in first.cells
        if name.startswith(("random_features", "oracle", "best_by_", "zero_shot"))
    }
    if "oracle" in baselines:
        baselines["paper_selection"] = main_row("paper_selection")
    rows = {name: row(name) for name in ("single", "pool", "selection")}
    rows["ensemble"] = main_row("ensemble")
    chosen = {test: fold.top_k for test, fold in folds.items()}
    return Evaluation(
        protocol=settings.protocol,
        score=settings.score,
        top_k=chosen if numbers is None else first.top_k,
        trials=settings.trials,
        domains=source.domains,
        recommended=_recommended(source, folds, final, rows, settings),
        single=rows["single"],
        pool=rows["pool"],
        ensemble=rows["ensemble"],
        selection=rows["selection"],
        feature_ratio={test: fold.selection_ratio for test, fold in folds.items()},
        with_target={"pool": row(WITH_TARGET)} if WITH_TARGET in first.cells else {},
        baselines=baselines,
        ablation=ablation,
        rule=settings.selection if settings.protocol == "domainbed" else None,
        by_rule={
            rule: {name: row(cell_by(rule, name)) for name in ("single", "ensemble", "selection")}
            for rule in RULES
            if cell_by(rule, "single") in first.cells
        },
        unseen=_unseen(source),
        task=source.task.kind,
        diagnosis={test: f.diagnosis for test, f in folds.items() if f.diagnosis is not None},
    )


def _recommended(
    source: FeatureSource,
    folds: Mapping[str, Fold],
    final: Decision,
    rows: Mapping[str, Row],
    settings: Settings,
) -> Recommended:
    """What is recommended for a new domain; its accuracy is that of what each fold recommends."""
    choices = {test: fold.recommended for test, fold in folds.items()}
    cells = {test: rows[choice].cells[test] for test, choice in choices.items()}
    domains = {test: cell.accuracy for test, cell in cells.items()}
    return Recommended(
        choice=final.recommended,
        models=final.models(final.recommended),
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
