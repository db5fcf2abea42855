"""Accuracy of what was chosen for a test domain on that domain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from oodzoo.combination.heads import Heads
from oodzoo.combination.pool import Limits
from oodzoo.combination.target import pool_for_target
from oodzoo.combination.zero_shot import pool_columns
from oodzoo.evaluation.choice import Candidate, Choice, Predicted
from oodzoo.evaluation.metrics import Measures, measures
from oodzoo.evaluation.result import Cell
from oodzoo.evaluation.training import TrainingView
from oodzoo.features.source import FeatureSource, total


def trial_rows(
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
    if choice.zero_shot is not None:
        scored["zero_shot"] = cell(choice.zero_shot)
    if choice.random:
        scored["random_features"] = _mean_cell([cell(each) for each in choice.random])
        scored["oracle"] = max(singles.values(), key=lambda each: each.accuracy)
    for name, model in choice.best_by.items():
        scored[f"best_by_{name}"] = singles[model]
    return scored


def _probabilities(
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
    found = tuple(measures(*each) for each in _probabilities(source, test, candidate, rows))
    if isinstance(candidate, Predicted):
        models, n_features = candidate.models, candidate.n_features
    else:
        models, n_features = candidate.columns.models, len(candidate.columns)
    facts = [source.facts(model) for model in models]
    milliseconds = total(fact.milliseconds for fact in facts)
    parameters = total(fact.parameters for fact in facts)
    return Cell(found, models, n_features, milliseconds, parameters)


def _mean_cell(draws: Sequence[Cell]) -> Cell:
    """Average over draws in each trial."""
    means = np.mean([cell.measures for cell in draws], axis=0)
    models = tuple(dict.fromkeys(model for cell in draws for model in cell.models))
    found = tuple(Measures(*each) for each in means.tolist())
    return replace(draws[0], measures=found, models=models)


def cell_with_target(
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
        lambda model: pool_columns(source, [model]).samples(source, [test]).features,
        limits,
        device=device,
    ).pool
    if pool.test is None:
        raise ValueError("the pool has no predictions for the test domain")
    width = sum(source.facts(model).feature_dim for model in pool.models)
    predicted = Predicted(pool.models, width, pool.test)
    return _cell(source, test, predicted, [np.arange(len(source.labels(test)))])
