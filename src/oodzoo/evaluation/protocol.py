"""Leave-one-domain-out evaluation."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from oodzoo import scores
from oodzoo._text import count
from oodzoo.backend import Array, backend
from oodzoo.combination.decision import FEWEST_DOMAINS, Decision, decide
from oodzoo.combination.heads import Heads, predict_with_heads
from oodzoo.combination.pool import Limits
from oodzoo.combination.target import pool_for_target
from oodzoo.errors import InputError
from oodzoo.evaluation.choice import (
    FAST_PEERS,
    Candidate,
    Choice,
    Predicted,
    choose,
    choose_top_k,
)
from oodzoo.evaluation.metrics import Measures, measures
from oodzoo.evaluation.result import Aggregation, Cell, Evaluation, Recommended, Row
from oodzoo.evaluation.training import TrainingView, domainbed_trainer, fast_trainer
from oodzoo.events import Log, Progress
from oodzoo.features.columns import Columns
from oodzoo.features.source import Features, FeatureSource, as_source, groups_of
from oodzoo.heads.adaptive import MIN_IMAGES
from oodzoo.heads.classes import require_classes_to_tell_apart
from oodzoo.heads.domainbed.protocol import require_search_space
from oodzoo.heads.domainbed.sweep import STEPS
from oodzoo.ranking.intervals import new_domain_interval
from oodzoo.ranking.ranker import rank, rank_for_test_domains, require_score

TOP_K = 3
"""Number of concatenated models in the paper."""

_MIN_SPLIT_SAMPLES = 5
"""Fewest samples of a domain that can be split into 80 % and 20 %."""


def evaluate(
    features: Features,
    y: Sequence[Any] | Array | None = None,
    domains: Sequence[Any] | Array | None = None,
    *,
    groups: Sequence[Any] | None = None,
    top_k: int | Sequence[int] | Literal["auto"] = TOP_K,
    protocol: Literal["fast", "domainbed"] = "fast",
    score: str = "unseen",
    trials: int | None = None,
    draws: int = 10,
    steps: int = STEPS,
    search_space: Literal["default", "DomainNet"] = "default",
    seed: int = 0,
    baselines: bool | Sequence[str] = True,
    with_target: bool = False,
    max_models: int | None = None,
    max_ms: float | None = None,
    device: str | None = None,
    progress: Progress | None = None,
    log: Log | None = None,
) -> Evaluation:
    """Evaluate single models and their combinations on test domains, and recommend one.

    Each domain is the test domain once. Models are ranked, pools and features are chosen,
    hyper-parameters are tuned and heads are trained on the other domains only. In a store, the
    result of each test domain is kept, so that an evaluation that was stopped continues.

    Parameters
    ----------
    features : mapping, FeatureStore, path or FeatureSource
        Features (n, d) of each model by name, with `y` and `domains`; or a feature store. At least
        three domains.
    y, domains : sequence
        Class and domain of each row, strings or integers.
    groups : sequence, optional
        Group of each row (a patient, a video), None for a row without one; splits keep groups
        whole. A store has its own groups.
    top_k : int, sequence of int or "auto"
        Number of models to concatenate. Several numbers are all evaluated (the paper's ablation);
        the main rows are those of 3 if given, else of the smallest. "auto" chooses 1, 3, 5 or 7 by
        leave-one-domain-out validation on the training domains.
    protocol : {"fast", "domainbed"}
        How heads are trained: logistic regression, or DomainBed's random search.
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
    seed : int
        Seed of random features and of "domainbed".
    baselines : bool or sequence of str
        Whether to evaluate every single model, random features and the paper's selection as well;
        or names of other scores whose top model is evaluated.
    with_target : bool
        Whether to evaluate, too, what unlabelled images of the test domain are worth.
    max_models, max_ms : int and float, optional
        Largest number of models, and time per image in milliseconds (the sum over the models), of
        what is recommended.
    device : str, optional
        PyTorch device such as "cuda"; NumPy if None.
    progress : callable, optional
        Called with (done, total).
    log : callable, optional
        Called with one line about each step.

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
    require_score(score)
    require_seed(seed)
    require_search_space(search_space)
    backend(device)
    peers = _peers(baselines)
    numbers = parse_top_k(top_k)
    trials = resolve_trials(protocol, trials)
    train = fast_trainer(trials)
    if protocol == "domainbed":
        train = domainbed_trainer(trials, draws, steps, seed, device, search_space)
    source = as_source(features, y, domains, groups)
    require_classes_to_tell_apart(source)
    _require_usable(source, with_splits=trials > 1 or protocol == "domainbed")
    if with_target:
        _require_target_images(source)
    if numbers is not None:
        numbers = _limited(numbers, len(source.models))
    main = None if numbers is None else main_top_k(numbers)
    log = log or (lambda message: None)
    limits = Limits(max_models, max_ms)
    # The final recommendation is made in the same way as those that are measured.
    compare = len(source.domains) > FEWEST_DOMAINS
    steps_of = _Steps(len(source.models), len(source.domains), progress)
    log(f"ranking {count(len(source.models), 'model')} without each test domain")
    rankings = rank_for_test_domains(source, score=score, device=device)
    log(f"heads of {count(len(source.models), 'model')}, trained without each domain and each pair")
    heads = predict_with_heads(source, device=device, progress=steps_of.heads)

    def judge(test: str) -> Fold:
        choice = choose(
            TrainingView.without(source, test),
            rankings[test],
            heads[test],
            train,
            top_k=numbers,
            main=main,
            limits=limits,
            compare=compare,
            peers=peers,
            retrain=protocol == "domainbed" or trials > 1,
            seed=seed,
            device=device,
            log=lambda message: log(f"test domain {test!r}: {message}"),
        )
        cells = score_choice(source, test, choice, _trial_rows(source, test, protocol, trials))
        if with_target:
            log(f"test domain {test!r}: heads for its unlabelled images")
            cells["pool with target"] = _cell_with_target(
                source, test, heads[test], choice, limits, device
            )
        return Fold(
            cells,
            choice.top_k,
            {str(k): _ratio(choice, k) for k in choice.paper_selections},
            choice.selection_ratio,
            choice.decision.recommended,
        )

    costs = [[each.parameters, each.milliseconds] for each in map(source.facts, source.models)]
    settings = [score, protocol, trials, numbers, peers, seed, with_target, max_models, max_ms]
    settings += [costs, groups_of(source, source.domains)]
    if protocol == "domainbed":
        settings += [draws, steps, search_space]
    folds = {}
    for test in source.domains:
        folds[test] = _kept(source, test, settings, lambda test=test: judge(test))  # type: ignore[misc]
        steps_of.fold()
    log("deciding on all domains")
    final = _final(source, heads[None], score, main, limits, compare, device)
    steps_of.fold()
    return _evaluation(source, folds, final, protocol, score, trials, numbers)


@dataclass(frozen=True)
class Fold:
    """The result of one test domain, as it is kept in a store."""

    cells: dict[str, Cell]
    top_k: int
    paper_ratios: dict[str, float]
    selection_ratio: float
    recommended: str


def _kept(
    source: FeatureSource, test: str, settings: Sequence[Any], judge: Callable[[], Fold]
) -> Fold:
    """The result of a test domain, from the cache of a store if it is there."""

    def compute() -> dict[str, NDArray[Any]]:
        return {"fold": np.array(msgspec.json.encode(judge()).decode())}

    arrays = source.cached(
        "evaluations", source.models, compute, settings=json.dumps([test, *settings])
    )
    return msgspec.json.decode(str(arrays["fold"]), type=Fold)


def _final(
    source: FeatureSource,
    heads: Heads,
    score: str,
    top_k: int | None,
    limits: Limits,
    compare: bool,
    device: str | None,
) -> Decision:
    """Decide on all domains."""
    order = [row.model for row in rank(source, score=score, device=device).rows]
    number = choose_top_k(source, order) if top_k is None else top_k
    return decide(source, order, heads, top_k=number, limits=limits, compare=compare, device=device)


class _Steps:
    """Progress of an evaluation: the heads of each model, then each test domain."""

    def __init__(self, n_models: int, n_domains: int, progress: Progress | None) -> None:
        self._progress = progress or (lambda done, total: None)
        self._fold = max(1, n_models // 2)
        self._total = n_models + (n_domains + 1) * self._fold
        self._done = 0

    def heads(self, done: int, total: int) -> None:
        self._done = done
        self._progress(self._done, self._total)

    def fold(self) -> None:
        self._done += self._fold
        self._progress(self._done, self._total)


def _trial_rows(
    source: FeatureSource, test: str, protocol: str, trials: int
) -> list[NDArray[np.int64]]:
    """The rows of the test domain that predictions without trials are scored on, in each trial."""
    view = TrainingView.without(source, test)
    if protocol == "domainbed":
        return [view.test_split(trial).inside for trial in range(trials)]
    return [np.arange(view.n_test)] * trials


def score_choice(
    source: FeatureSource, test: str, choice: Choice, rows: Sequence[NDArray[np.int64]]
) -> dict[str, Cell]:
    """Score a choice on its test domain: one cell per row of the table."""

    def cell(candidate: Candidate | Predicted) -> Cell:
        return _cell(source, test, candidate, rows)

    singles = {model: cell(each) for model, each in choice.singles.items()}
    scored = {
        "single": singles[choice.decision.best],
        "pool": cell(choice.pool),
        "selection": cell(choice.selection),
    }
    for k, ensemble in choice.ensembles.items():
        scored[f"ensemble {k}"] = cell(ensemble)
    for k, selection in choice.paper_selections.items():
        scored[f"paper_selection {k}"] = cell(selection)
    if choice.random:
        scored["random_features"] = _mean_cell([cell(each) for each in choice.random])
        scored["oracle"] = max(singles.values(), key=lambda each: each.accuracy)
    for name, model in choice.best_by.items():
        scored[f"best_by_{name}"] = singles[model]
    return scored


def probabilities(
    source: FeatureSource,
    test: str,
    candidate: Candidate | Predicted,
    rows: Sequence[NDArray[np.int64]],
) -> list[tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """Return class probabilities and labels of the rows that each trial is scored on."""
    labels = source.labels(test)
    if isinstance(candidate, Predicted):
        full = np.exp(candidate.log_probabilities.astype(np.float64))
        return [(full[each], labels[each]) for each in rows]
    known = source.only([domain for domain in source.domains if domain != test]).classes
    columns = [source.classes.index(label) for label in known]
    features = candidate.columns.samples(source, [test]).features
    result = []
    for head, each in candidate.heads:
        full = np.zeros((len(each), len(source.classes)))
        full[:, columns] = head.probabilities(features[each])
        result.append((full, labels[each]))
    return result


def _cell(
    source: FeatureSource,
    test: str,
    candidate: Candidate | Predicted,
    rows: Sequence[NDArray[np.int64]],
) -> Cell:
    found = tuple(measures(*each) for each in probabilities(source, test, candidate, rows))
    if isinstance(candidate, Predicted):
        models, n_features = candidate.models, candidate.n_features
    else:
        models, n_features = candidate.columns.models, len(candidate.columns)
    facts = [source.facts(model) for model in models]
    times = [fact.milliseconds for fact in facts if fact.milliseconds is not None]
    sizes = [fact.parameters for fact in facts if fact.parameters is not None]
    return Cell(
        found,
        models,
        n_features,
        sum(times) if len(times) == len(facts) else None,
        sum(sizes) if len(sizes) == len(facts) else None,
    )


def _mean_cell(draws: Sequence[Cell]) -> Cell:
    """Average over draws in each trial."""
    means = np.mean([cell.measures for cell in draws], axis=0)
    models = tuple(dict.fromkeys(model for cell in draws for model in cell.models))
    found = tuple(Measures(*each) for each in means.tolist())
    return replace(draws[0], measures=found, models=models)


def _cell_with_target(
    source: FeatureSource,
    test: str,
    heads: Heads,
    choice: Choice,
    limits: Limits,
    device: str | None,
) -> Cell:
    """Score the pool for which the unlabelled images of the test domain are known."""
    pool = pool_for_target(
        source,
        heads,
        choice.decision.pool,
        lambda model: Columns.all_of(source, [model]).samples(source, [test]).features,
        limits,
        device=device,
    ).pool
    width = sum(source.facts(model).feature_dim for model in pool.models)
    predicted = Predicted(pool.models, width, _required(pool.test))
    return _cell(source, test, predicted, [np.arange(len(source.labels(test)))])


def _required(values: NDArray[np.float64] | None) -> NDArray[np.float64]:
    if values is None:
        raise ValueError("the pool has no predictions for a test domain")
    return values


def _ratio(choice: Choice, k: int) -> float:
    """Share of the features of the best K models that the paper's method selects."""
    return len(choice.paper_selections[k].columns) / len(choice.ensembles[k].columns)


def _evaluation(
    source: FeatureSource,
    folds: Mapping[str, Fold],
    final: Decision,
    protocol: str,
    score: str,
    trials: int,
    numbers: Sequence[int] | None,
) -> Evaluation:
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
        if name.startswith(("random_features", "oracle", "best_by_"))
    }
    if "oracle" in baselines:
        baselines["paper_selection"] = main_row("paper_selection")
    rows = {"single": row("single"), "pool": row("pool"), "selection": row("selection")}
    rows["ensemble"] = main_row("ensemble")
    chosen = {test: fold.top_k for test, fold in folds.items()}
    return Evaluation(
        protocol=protocol,
        score=score,
        top_k=chosen if numbers is None else first.top_k,
        trials=trials,
        domains=source.domains,
        recommended=_recommended(source, folds, final, rows),
        **rows,
        feature_ratio={test: fold.selection_ratio for test, fold in folds.items()},
        with_target={"pool": row("pool with target")} if "pool with target" in first.cells else {},
        baselines=baselines,
        ablation=ablation,
        unseen=_unseen(source),
    )


def _recommended(
    source: FeatureSource, folds: Mapping[str, Fold], final: Decision, rows: Mapping[str, Row]
) -> Recommended:
    """What is recommended for a new domain; its accuracy is that of what each fold recommends."""
    choices = {test: fold.recommended for test, fold in folds.items()}
    domains = {test: rows[choice].cells[test].accuracy for test, choice in choices.items()}
    values = np.array(list(domains.values()))
    sizes = np.array([len(source.labels(test)) for test in domains])
    low, high = new_domain_interval(values, values * (100 - values) / sizes)
    return Recommended(
        choice=final.recommended,
        models=final.models(final.recommended),
        average=float(values.mean()),
        interval=(max(0.0, low), min(100.0, high)),
        domains=domains,
        choices=choices,
        estimates={name: each.accuracy for name, each in final.estimates.items()},
    )


def _unseen(source: FeatureSource) -> dict[str, tuple[str, ...]]:
    unseen = {}
    for test in source.domains:
        others = [source.labels(domain) for domain in source.domains if domain != test]
        alone = np.setdiff1d(source.labels(test), np.concatenate(others))
        if len(alone):
            unseen[test] = tuple(str(source.classes[at]) for at in alone)
    return unseen


# --- options -----------------------------------------------------------------------------------


def _peers(baselines: bool | Sequence[str]) -> tuple[str, ...] | None:
    if isinstance(baselines, bool):
        return FAST_PEERS if baselines else None
    names = (baselines,) if isinstance(baselines, str) else tuple(baselines)
    return tuple(scores.get(name).name for name in names)


def parse_top_k(top_k: int | Sequence[int] | str) -> list[int] | None:
    """Validate numbers of models to concatenate and sort them; None for "auto"."""
    if isinstance(top_k, str) and top_k == "auto":
        return None
    numbers: list[Any] = list(top_k) if isinstance(top_k, Iterable) else [top_k]
    if not numbers or not all(isinstance(k, int | np.integer) and k >= 1 for k in numbers):
        raise InputError(
            "top_k must be a positive integer, several such as (1, 3, 5, 7), or 'auto', "
            f"got {top_k!r}"
        )
    return sorted({int(k) for k in numbers})


def main_top_k(numbers: Sequence[int]) -> int:
    """Return the number used for the main rows: 3 if present, else the first."""
    return TOP_K if TOP_K in numbers else numbers[0]


def _limited(numbers: Sequence[int], n_models: int) -> list[int]:
    if max(numbers) > n_models:
        warnings.warn(
            f"only {count(n_models, 'model')} available, fewer than {max(numbers)}; using all",
            stacklevel=3,
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


def _require_target_images(source: FeatureSource) -> None:
    for domain in source.domains:
        n = len(source.labels(domain))
        if n < MIN_IMAGES:
            raise InputError(
                f"domain {domain!r} has {count(n, 'sample')}; with_target needs at least "
                f"{MIN_IMAGES} to adapt to; leave it out"
            )


def _require_usable(source: FeatureSource, *, with_splits: bool) -> None:
    """Require three domains, two classes without any one domain, and enough samples to split."""
    names = source.domains
    if len(names) < 3:
        raise InputError(
            "an evaluation needs at least three domains, one to test on and two to rank models on; "
            f"got {', '.join(map(repr, names)) or 'none'}"
        )
    for test in names:
        training = source.only([domain for domain in names if domain != test])
        if len(training.classes) < 2:
            raise InputError(
                f"the domains other than {test!r} have only the class {training.classes[0]!r}; a "
                "classifier needs at least two"
            )
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
