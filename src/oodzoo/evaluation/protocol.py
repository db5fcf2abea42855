"""Each domain in turn is one that nobody has seen."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from oodzoo import scores
from oodzoo.backend import Array, backend
from oodzoo.errors import InputError
from oodzoo.evaluation.choice import PEERS, Choice, Part, choose
from oodzoo.evaluation.metrics import Measures, measures
from oodzoo.evaluation.result import Aggregation, Cell, Evaluation, Row
from oodzoo.evaluation.training import LeftOut, domainbed, fast
from oodzoo.events import Log
from oodzoo.features.source import FeatureSource, as_source
from oodzoo.features.store import FeatureStore
from oodzoo.heads.domainbed.sweep import STEPS
from oodzoo.ranking.ranker import rankings_without, require_score

TOP_K = 3
"""As in the paper."""

_SMALLEST = 5
"""Samples of a domain that can be split into 80 % and 20 %."""


def evaluate(
    features: Mapping[str, Array] | FeatureStore,
    y: Sequence[Any] | Array | None = None,
    domains: Sequence[Any] | Array | None = None,
    *,
    top_k: int | Sequence[int] | Literal["auto"] = TOP_K,
    protocol: Literal["fast", "domainbed"] = "fast",
    score: str = "zood",
    trials: int | None = None,
    draws: int = 10,
    steps: int = STEPS,
    seed: int = 0,
    baselines: bool | Sequence[str] = True,
    device: str | None = None,
    progress: Log | None = None,
) -> Evaluation:
    """Measure what models, chosen and combined without a domain, reach on that domain.

    Each domain is the test domain once. The others rank the models, select features, choose every
    parameter and train the heads; only then the test domain is looked at.

    Parameters
    ----------
    features : mapping or FeatureStore
        Features (n, d) of each model by name, with `y` and `domains`; or a store. Three domains
        or more.
    y, domains : sequence
        Class and domain of each row, texts or integers.
    top_k : int, sequence of int or "auto"
        How many models to put side by side. Several make a table of all of them (the paper's
        ablation; the main rows are those of 3, or of the first). With "auto" the training domains
        choose among 1, 3, 5 and 7, by leaving each of them out in turn.
    protocol : {"fast", "domainbed"}
        How heads are trained: logistic regression, or DomainBed's random search.
    score : str, default "zood"
        What models are ranked by, see :func:`oodzoo.rank`.
    trials : int, optional
        Repetitions with other splits, which give a standard error; 1 for "fast" (which then trains
        on everything), 3 for "domainbed".
    draws, steps : int
        Of "domainbed": hyper-parameters to try, and steps to train.
    seed : int
        Of random features, and of training by "domainbed".
    baselines : bool or sequence of str
        Whether to train every single model and random features too, to compare with; or the peer
        scores whose best model is to be shown beside them.
    device : str, optional
        Where to compute: NumPy if None, else PyTorch on this device ("cuda").
    progress : callable, optional
        Called with a line about each step.

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
    backend(device)
    peers = _peers(baselines)
    numbers = numbers_of(top_k)
    trials = trials_of(protocol, trials)
    train = fast(trials) if protocol == "fast" else domainbed(trials, draws, steps, seed, device)
    source = _usable(as_source(features, y, domains), trials > 1 or protocol == "domainbed")
    if numbers is not None:
        numbers = _at_most(numbers, len(source.models))
    main = None if numbers is None else main_number(numbers)
    say = progress or (lambda message: None)
    say(f"ranking {len(source.models)} models without each of {len(source.domains)} domains")
    rankings = rankings_without(source, score=score, device=device)
    outcome: dict[str, dict[str, Cell]] = {}
    choices: dict[str, Choice] = {}
    for test in source.domains:
        where = f"test domain {test!r}: "
        choice = choose(
            LeftOut.of(source, test),
            rankings[test],
            train,
            top_k=numbers,
            main=main,
            peers=peers,
            seed=seed,
            device=device,
            say=lambda message, where=where: say(where + message),  # type: ignore[misc]
        )
        outcome[test] = cells(source, test, choice)
        choices[test] = choice
    return _evaluation(source, outcome, choices, protocol, score, trials, numbers)


def cells(source: FeatureSource, test: str, choice: Choice) -> dict[str, Cell]:
    """What was chosen, scored on the test domain: a cell of each row."""
    scored: dict[str, Cell] = {}
    singles = {model: _cell(source, test, part) for model, part in choice.singles.items()}
    scored["single"] = singles[choice.best]
    for k in choice.ensembles:
        scored[f"ensemble {k}"] = _cell(source, test, choice.ensembles[k])
        scored[f"selection {k}"] = _cell(source, test, choice.selections[k])
    if choice.random:
        draws = [_cell(source, test, part) for part in choice.random]
        scored["random_features"] = _mean_cell(draws)
        scored["oracle"] = max(singles.values(), key=lambda cell: cell.accuracy)
    for name, model in choice.best_by.items():
        scored[f"best_by_{name}"] = singles[model]
    return scored


def probabilities(
    source: FeatureSource, test: str, part: Part
) -> list[tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """Class probabilities and labels of the rows that each trial is scored on."""
    known = source.only([domain for domain in source.domains if domain != test]).classes
    columns = [source.classes.index(label) for label in known]
    features = part.columns.samples(source, [test]).features
    labels = source.labels(test)
    result = []
    for head, rows in part.trained:
        full = np.zeros((len(rows), len(source.classes)))
        full[:, columns] = head.probabilities(features[rows])
        result.append((full, labels[rows]))
    return result


def _cell(source: FeatureSource, test: str, part: Part) -> Cell:
    found = tuple(measures(*each) for each in probabilities(source, test, part))
    return Cell(found, part.columns.models, len(part.columns))


def _mean_cell(draws: Sequence[Cell]) -> Cell:
    """The mean over draws in each trial."""
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

    def of_main(kind: str) -> Row:
        return Row({t: found[f"{kind} {choices[t].top_k}"] for t, found in outcome.items()})

    ablation = {}
    if numbers is not None and len(numbers) > 1:
        for k in numbers:
            ratios = {test: choice.ratios[k] for test, choice in choices.items()}
            ablation[k] = Aggregation(row(f"ensemble {k}"), row(f"selection {k}"), ratios)
    chosen = {test: choice.top_k for test, choice in choices.items()}
    first = next(iter(outcome.values()))
    return Evaluation(
        protocol=protocol,
        score=score,
        top_k=chosen if numbers is None else next(iter(chosen.values())),
        trials=trials,
        domains=source.domains,
        single=row("single"),
        ensemble=of_main("ensemble"),
        selection=of_main("selection"),
        feature_ratio={test: choice.ratios[choice.top_k] for test, choice in choices.items()},
        baselines={name: row(name) for name in _baseline_names(first)},
        ablation=ablation,
        unseen=_unseen(source),
    )


def _baseline_names(found: Mapping[str, Cell]) -> list[str]:
    known = ("random_features", "oracle")
    return [name for name in found if name in known or name.startswith("best_by_")]


def _unseen(source: FeatureSource) -> dict[str, tuple[str, ...]]:
    unseen = {}
    for test in source.domains:
        others = [source.labels(domain) for domain in source.domains if domain != test]
        alone = np.setdiff1d(source.labels(test), np.concatenate(others))
        if len(alone):
            unseen[test] = tuple(str(source.classes[at]) for at in alone)
    return unseen


# --- what may be asked for ---------------------------------------------------------------------


def _peers(baselines: bool | Sequence[str]) -> tuple[str, ...] | None:
    if isinstance(baselines, bool):
        return PEERS if baselines else None
    names = (baselines,) if isinstance(baselines, str) else tuple(baselines)
    return tuple(scores.get(name).name for name in names)


def numbers_of(top_k: int | Sequence[int] | str) -> list[int] | None:
    """How many models to put side by side, in order; None for as many as turn out best."""
    if isinstance(top_k, str):
        if top_k == "auto":
            return None
        raise InputError(f"top_k is {top_k!r}; give numbers such as 3 or (1, 3, 5, 7), or 'auto'")
    numbers = list(top_k) if isinstance(top_k, Iterable) else [top_k]
    whole = [isinstance(k, int | np.integer) and k >= 1 for k in numbers]
    if not numbers or not all(whole):
        raise InputError(f"top_k is {top_k!r}; give whole numbers from 1, or 'auto'")
    return sorted({int(k) for k in numbers})


def main_number(numbers: Sequence[int]) -> int:
    """Of several, the number whose rows stand for all."""
    return TOP_K if TOP_K in numbers else numbers[0]


def _at_most(numbers: Sequence[int], n_models: int) -> list[int]:
    if max(numbers) > n_models:
        warnings.warn(
            f"there are {n_models} models, fewer than {max(numbers)}; all are taken",
            stacklevel=3,
        )
    return sorted({min(k, n_models) for k in numbers})


def require_seed(seed: int) -> None:
    if seed < 0:
        raise InputError(f"seed is {seed}; it must be 0 or more")


def trials_of(protocol: str, trials: int | None) -> int:
    """How often a protocol repeats itself."""
    if protocol not in ("fast", "domainbed"):
        raise InputError(f"protocol is {protocol!r}; it can be 'fast' or 'domainbed'")
    if trials is None:
        return 1 if protocol == "fast" else 3
    if trials < 1:
        raise InputError(f"trials is {trials!r}; it must be 1 or more")
    return trials


def _usable(source: FeatureSource, with_splits: bool) -> FeatureSource:
    """Domains that have samples; three of them, and two classes without any of them."""
    names = source.domains
    if len(names) < 3:
        raise InputError(
            f"an evaluation takes three domains, one to test on and two to rank models by; "
            f"usable here: {', '.join(map(repr, names)) or 'none'}"
        )
    for test in names:
        training = source.only([domain for domain in names if domain != test])
        if len(training.classes) < 2:
            raise InputError(
                f"without domain {test!r} there is the single class {training.classes[0]!r}; a "
                "classifier needs two"
            )
        if with_splits and len(source.labels(test)) < _SMALLEST:
            raise InputError(
                f"domain {test!r} has {len(source.labels(test))} samples; splits of 80 % and 20 % "
                f"take at least {_SMALLEST}"
            )
    return source
