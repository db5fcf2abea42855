"""Accuracy, or another metric, of what was chosen for a held-out domain on that domain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.combining.adaptation import pool_for_target
from oodzoo.combining.evaluation.choice import (
    Candidate,
    Choice,
    Oracle,
    Predicted,
    TrainedHead,
    TrainingView,
)
from oodzoo.combining.evaluation.rows import Cell, Outputs
from oodzoo.combining.predictions import Heads, pool_columns
from oodzoo.core.options import Limits, total_cost
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.features import FeatureSource, StoreSource
from oodzoo.linear.heads.linear import LinearHead
from oodzoo.ranking.intervals import covariance_of_means
from oodzoo.tasks import CLASSIFICATION
from oodzoo.tasks.classification import ClassDiagnosis


class _Rows(NamedTuple):
    """Some rows of a held-out domain: what is predicted for them, and their labels."""

    rows: NDArray[np.int64]
    values: NDArray[np.float64]
    labels: NDArray[Any]


def trial_rows(
    source: FeatureSource, test: str, protocol: str, trials: int
) -> list[NDArray[np.int64]]:
    """Rows of the held-out domain on which predictions without trials are scored, by trial."""
    view = TrainingView.without(source, test)
    if protocol == "domainbed":
        return [view.test_split(trial).inside for trial in range(trials)]
    return [np.arange(view.n_test)] * trials


def score_choice(
    source: FeatureSource, test: str, choice: Choice, rows: Sequence[NDArray[np.int64]]
) -> dict[str, Cell]:
    """Score a choice on its held-out domain: one cell per row of the table."""

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
    if choice.zero_shot is not None:
        scored["zero_shot"] = cell(choice.zero_shot)
    if choice.random:
        scored["random_features"] = _mean_cell([cell(each) for each in choice.random])
        scored["oracle"] = max(singles.values(), key=lambda each: each.accuracy)
    for name, model in choice.best_by.items():
        scored[f"best_by_{name}"] = singles[model]
    main = {
        "single": choice.singles[choice.decision.best],
        "ensemble": choice.ensembles[choice.top_k],
        "selection": choice.selection,
    }
    for rule in choice.selection.rules:
        for name, each in main.items():
            assert isinstance(each, Candidate)
            scored[cell_by(rule, name)] = cell(each.by(rule))
    return scored


def cell_by(rule: str, row: str) -> str:
    """Name of the cell of a row whose heads a rule of DomainBed selects."""
    return f"rule {rule}: {row}"


def oracle_on(source: FeatureSource, test: str) -> Oracle:
    """DomainBed's oracle for a held-out domain; ties go to the last draw, as in DomainBed."""

    def best(columns: Columns, heads: Sequence[LinearHead], rows: NDArray[np.int64]) -> LinearHead:
        each = Candidate(columns, [TrainedHead(head, rows) for head in heads])
        found = _predictions(source, test, each, [rows])
        right = [np.mean(one.values.argmax(axis=1) == one.labels) for one in found]
        return heads[max(range(len(heads)), key=lambda at: (right[at], at))]

    return best


def score_predicted(
    source: FeatureSource, test: str, predicted: Predicted, rows: Sequence[NDArray[np.int64]]
) -> Cell:
    """Score predictions for a held-out domain."""
    return _cell(source, test, predicted, rows)


def diagnose_choice(
    source: FeatureSource, test: str, choice: Choice, rows: Sequence[NDArray[np.int64]]
) -> ClassDiagnosis | None:
    """Diagnose the recommendation for a held-out domain, in the first trial, for classes."""
    candidates = {
        "single": choice.singles[choice.decision.best],
        "pool": choice.pool,
        "ensemble": choice.ensembles[choice.top_k],
        "selection": choice.selection,
    }
    return diagnose_predicted(source, test, candidates[choice.decision.recommended], rows)


def diagnose_predicted(
    source: FeatureSource,
    test: str,
    candidate: Candidate | Predicted,
    rows: Sequence[NDArray[np.int64]],
) -> ClassDiagnosis | None:
    """Diagnose predictions for a held-out domain, in the first trial; None without classes."""
    first = _predictions(source, test, candidate, rows)[0]
    return diagnose(source, test, first.rows, first.values, first.labels)


def _predictions(
    source: FeatureSource,
    test: str,
    candidate: Candidate | Predicted,
    rows: Sequence[NDArray[np.int64]],
) -> list[_Rows]:
    """Return probabilities or numbers, and labels, of the rows that each trial is scored on."""
    labels = source.labels(test)
    if isinstance(candidate, Predicted):
        full = source.task.values(candidate.outputs)
        return [_Rows(each, full[each], labels[each]) for each in rows]
    known = source.only([domain for domain in source.domains if domain != test]).classes
    columns = [source.classes.index(label) for label in known]
    features = candidate.columns.samples(source, [test]).features
    result = []
    for head, each, _ in candidate.heads:
        full = np.zeros((len(each), len(source.classes)))
        full[:, columns] = head.values(features[each])
        result.append(_Rows(each, full, labels[each]))
    return result


def _cell(
    source: FeatureSource,
    test: str,
    candidate: Candidate | Predicted,
    rows: Sequence[NDArray[np.int64]],
) -> Cell:
    trials = _predictions(source, test, candidate, rows)
    found = tuple(source.task.measured(each.values, each.labels) for each in trials)
    if isinstance(candidate, Predicted):
        models, n_features = candidate.models, candidate.n_features
    else:
        models, n_features = candidate.columns.models, len(candidate.columns)
    facts = {model: source.facts(model) for model in models}
    milliseconds = total_cost({model: fact.milliseconds for model, fact in facts.items()})
    parameters = total_cost({model: fact.parameters for model, fact in facts.items()})
    variance = _variance(source, test, trials)
    outputs = _mean_outputs(
        [source.task.measured_outputs(each.values, each.labels, source.classes) for each in trials]
    )
    return Cell(found, models, n_features, milliseconds, parameters, variance, outputs)


def _mean_outputs(several: Sequence[Outputs]) -> Outputs:
    """Average the measures of each output; all are of the same samples."""
    return {
        output: {name: fmean(each[output][name] for each in several) for name in measures}
        for output, measures in several[0].items()
    }


def _variance(source: FeatureSource, test: str, trials: Sequence[_Rows]) -> float | None:
    """Variance of the main metric in percent that is due to the samples; mean over trials.

    None for classes.
    """
    groups = source.groups(test)
    if source.task.one_class:
        return None
    found = []
    for each in trials:
        mine = None if groups is None else [groups[row] for row in each.rows.tolist()]
        values = 100 * source.task.contributions(each.values, each.labels)[:, None]
        found.append(covariance_of_means(values, mine)[0, 0])
    return float(np.mean(found))


def _mean_cell(draws: Sequence[Cell]) -> Cell:
    """Average over draws in each trial."""
    means = np.mean([cell.measures for cell in draws], axis=0)
    models = tuple(dict.fromkeys(model for cell in draws for model in cell.models))
    kind = type(draws[0].measures[0])
    found = tuple(kind(*each) for each in means.tolist())
    outputs = _mean_outputs([cell.outputs for cell in draws])
    return replace(draws[0], measures=found, models=models, outputs=outputs)


def cell_with_target(
    source: FeatureSource,
    test: str,
    heads: Heads,
    choice: Choice,
    rows: Sequence[NDArray[np.int64]],
    limits: Limits,
    device: str | None,
) -> Cell:
    """Score the pool that knows all unlabelled images of the held-out domain."""
    pool = pool_for_target(
        source,
        heads,
        choice.decision.pool,
        lambda model: pool_columns(source, [model]).samples(source, [test]).features,
        limits,
        device=device,
    ).pool
    if pool.test is None:
        raise ValueError("the pool has no predictions for the held-out domain")
    width = sum(source.facts(model).feature_dim for model in pool.models)
    predicted = Predicted(pool.models, width, pool.test)
    return _cell(source, test, predicted, rows)


def diagnose(
    source: FeatureSource,
    test: str,
    rows: NDArray[np.int64],
    values: NDArray[np.float64],
    labels: NDArray[Any],
) -> ClassDiagnosis | None:
    """Diagnose predictions of some rows of a held-out domain; None unless they are of classes.

    Parameters
    ----------
    source : FeatureSource
    test : str
        The domain.
    rows : array of int (n,)
        Which of its samples the predictions are for.
    values : array (n, C)
        Probabilities of the classes.
    labels : array (n,)
    """
    if not source.task.one_class:
        return None
    paths = sample_paths(source, test)
    return CLASSIFICATION.diagnose(
        values,
        labels,
        [str(name) for name in source.classes],
        paths=[paths[row] for row in rows.tolist()],
        domains=test,
    )


def sample_paths(source: FeatureSource, domain: str) -> list[str]:
    """The path of the image of each sample; "row 0", … of the domain, if there are only arrays."""
    if isinstance(source, StoreSource):
        return source.store.paths(domain)
    return [f"row {row}" for row in range(len(source.labels(domain)))]
