"""Leave-one-domain-out evaluation."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from oodzoo import scores
from oodzoo._text import count
from oodzoo.backend import Array, backend
from oodzoo.errors import InputError
from oodzoo.evaluation.choice import FAST_PEERS, Candidate, Choice, choose
from oodzoo.evaluation.metrics import Measures, measures
from oodzoo.evaluation.result import Aggregation, Cell, Evaluation, Row
from oodzoo.evaluation.training import TrainingView, domainbed_trainer, fast_trainer
from oodzoo.events import Log
from oodzoo.features.source import Features, FeatureSource, as_source
from oodzoo.heads.classes import require_classes_to_tell_apart
from oodzoo.heads.domainbed.protocol import require_search_space
from oodzoo.heads.domainbed.sweep import STEPS
from oodzoo.ranking.ranker import rank_for_test_domains, require_score

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
    device: str | None = None,
    progress: Log | None = None,
) -> Evaluation:
    """Evaluate ranking, concatenation and feature selection on test domains.

    Each domain is the test domain once. Models are ranked, features are selected, hyper-parameters
    are chosen and heads are trained on the other domains only.

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
        Whether to evaluate every single model and random features as well; or names of other
        scores whose top model is evaluated.
    device : str, optional
        PyTorch device such as "cuda"; NumPy if None.
    progress : callable, optional
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
    if numbers is not None:
        numbers = _limited(numbers, len(source.models))
    main = None if numbers is None else main_top_k(numbers)
    log = progress or (lambda message: None)
    n_models, n_domains = len(source.models), len(source.domains)
    log(f"ranking {count(n_models, 'model')} for each of {count(n_domains, 'test domain')}")
    rankings = rank_for_test_domains(source, score=score, device=device)
    outcome: dict[str, dict[str, Cell]] = {}
    choices: dict[str, Choice] = {}
    for test in source.domains:
        choice = choose(
            TrainingView.without(source, test),
            rankings[test],
            train,
            top_k=numbers,
            main=main,
            peers=peers,
            seed=seed,
            device=device,
            log=lambda message, test=test: log(f"test domain {test!r}: {message}"),  # type: ignore[misc]
        )
        outcome[test] = cells(source, test, choice)
        choices[test] = choice
    return _evaluation(source, outcome, choices, protocol, score, trials, numbers)


def cells(source: FeatureSource, test: str, choice: Choice) -> dict[str, Cell]:
    """Score a choice on its test domain: one cell per row."""
    scored: dict[str, Cell] = {}
    singles = {model: _cell(source, test, each) for model, each in choice.singles.items()}
    scored["single"] = singles[choice.best]
    for k in choice.ensembles:
        scored[f"ensemble {k}"] = _cell(source, test, choice.ensembles[k])
        scored[f"selection {k}"] = _cell(source, test, choice.selections[k])
    if choice.random:
        draws = [_cell(source, test, each) for each in choice.random]
        scored["random_features"] = _mean_cell(draws)
        scored["oracle"] = max(singles.values(), key=lambda cell: cell.accuracy)
    for name, model in choice.best_by.items():
        scored[f"best_by_{name}"] = singles[model]
    return scored


def probabilities(
    source: FeatureSource, test: str, candidate: Candidate
) -> list[tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """Return class probabilities and labels of the rows that each trial is scored on."""
    known = source.only([domain for domain in source.domains if domain != test]).classes
    columns = [source.classes.index(label) for label in known]
    features = candidate.columns.samples(source, [test]).features
    labels = source.labels(test)
    result = []
    for head, rows in candidate.heads:
        full = np.zeros((len(rows), len(source.classes)))
        full[:, columns] = head.probabilities(features[rows])
        result.append((full, labels[rows]))
    return result


def _cell(source: FeatureSource, test: str, candidate: Candidate) -> Cell:
    found = tuple(measures(*each) for each in probabilities(source, test, candidate))
    return Cell(found, candidate.columns.models, len(candidate.columns))


def _mean_cell(draws: Sequence[Cell]) -> Cell:
    """Average over draws in each trial."""
    means = np.mean([cell.measures for cell in draws], axis=0)
    models = tuple(dict.fromkeys(model for cell in draws for model in cell.models))
    return Cell(tuple(Measures(*each) for each in means.tolist()), models, draws[0].n_features)


def _evaluation(
    source: FeatureSource,
    outcome: Mapping[str, Mapping[str, Cell]],
    choices: Mapping[str, Choice],
    protocol: str,
    score: str,
    trials: int,
    numbers: Sequence[int] | None,
) -> Evaluation:
    def row(name: str) -> Row:
        return Row({test: found[name] for test, found in outcome.items()})

    def main_row(kind: str) -> Row:
        return Row({t: found[f"{kind} {choices[t].top_k}"] for t, found in outcome.items()})

    ablation = {}
    if numbers is not None and len(numbers) > 1:
        for k in numbers:
            ratios = {test: choice.ratios[k] for test, choice in choices.items()}
            ablation[k] = Aggregation(row(f"ensemble {k}"), row(f"selection {k}"), ratios)
    chosen = {test: choice.top_k for test, choice in choices.items()}
    first = next(iter(outcome.values()))
    baselines = [
        name for name in first if name.startswith(("random_features", "oracle", "best_by_"))
    ]
    return Evaluation(
        protocol=protocol,
        score=score,
        top_k=chosen if numbers is None else next(iter(chosen.values())),
        trials=trials,
        domains=source.domains,
        single=row("single"),
        ensemble=main_row("ensemble"),
        selection=main_row("selection"),
        feature_ratio={test: choice.ratios[choice.top_k] for test, choice in choices.items()},
        baselines={name: row(name) for name in baselines},
        ablation=ablation,
        unseen=_unseen(source),
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
