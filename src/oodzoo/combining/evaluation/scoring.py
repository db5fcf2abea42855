"""Accuracy, or another metric, of what was chosen for a held-out domain on that domain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.combining.evaluation.choice import (
    Candidate,
    Choice,
    Oracle,
    TrainedHead,
    TrainingView,
)
from oodzoo.combining.evaluation.rows import Cell, Outputs
from oodzoo.core.limits import cost_of
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.features import FeatureSource, StoreSource
from oodzoo.linear.heads.linear import LinearHead
from oodzoo.ranking.intervals import covariance_of_means
from oodzoo.tasks import CLASSIFICATION
from oodzoo.tasks.classification import ClassDiagnosis

ALL_OF, SELECTED_OF = "all features of {}", "selected of {}"
"""Names of the cells of the best K models, with all features and with the paper's selection."""


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


@dataclass(frozen=True)
class Scorer:
    """Scores what was chosen for a held-out domain on that domain.

    Attributes
    ----------
    source : FeatureSource
        All domains.
    test : str
    rows : sequence of arrays
        Rows of the held-out domain on which predictions without trials are scored, by trial.
    """

    source: FeatureSource
    test: str
    rows: Sequence[NDArray[np.int64]]

    def choice(self, choice: Choice) -> dict[str, Cell]:
        """Score a choice: one cell per row of the table."""
        cell = cache(self.cell)
        scored = {name: cell(each) for name, each in choice.candidates.items()}
        for k, (every, selected) in choice.ablation.items():
            scored[ALL_OF.format(k)], scored[SELECTED_OF.format(k)] = cell(every), cell(selected)
        singles = {model: cell(each) for model, each in choice.singles.items()}
        if choice.random:
            scored["random_features"] = _mean_cell([cell(each) for each in choice.random])
            scored["oracle"] = max(singles.values(), key=lambda each: each.accuracy)
        for name, model in choice.best_by.items():
            scored[f"best_by_{name}"] = singles[model]
        for name, each in choice.candidates.items():
            for rule in each.rules:
                scored[cell_by(rule, name)] = cell(each.by(rule))
        return scored

    def cell(self, candidate: Candidate) -> Cell:
        """Score predictions."""
        source, trials = self.source, self.predictions(candidate)
        task, columns = source.task, candidate.columns
        cost = cost_of({model: source.facts(model) for model in columns.models})
        outputs = [task.measured_outputs(e.values, e.labels, source.classes) for e in trials]
        return Cell(
            tuple(task.measured(each.values, each.labels) for each in trials),
            columns.models,
            len(columns),
            cost.milliseconds,
            cost.parameters,
            self._variance(trials),
            _mean_outputs(outputs),
        )

    def diagnose(self, candidate: Candidate) -> ClassDiagnosis | None:
        """Diagnose predictions in the first trial; None unless they are of classes."""
        if not self.source.task.one_class:
            return None
        first, paths = self.predictions(candidate)[0], sample_paths(self.source, self.test)
        return CLASSIFICATION.diagnose(
            first.values,
            first.labels,
            [str(name) for name in self.source.classes],
            paths=[paths[row] for row in first.rows.tolist()],
            domains=self.test,
        )

    def predictions(self, candidate: Candidate) -> list[_Rows]:
        """Return probabilities or numbers, and labels, of the rows each trial is scored on."""
        source, labels = self.source, self.source.labels(self.test)
        if candidate.outputs is not None:
            full = source.task.values(candidate.outputs)
            return [_Rows(each, full[each], labels[each]) for each in self.rows]
        known = source.only([domain for domain in source.domains if domain != self.test]).classes
        columns = [source.classes.index(label) for label in known]
        features = candidate.columns.samples(source, [self.test]).features
        result = []
        for head, each, _ in candidate.heads:
            full = np.zeros((len(each), len(source.classes)))
            full[:, columns] = head.values(features[each])
            result.append(_Rows(each, full, labels[each]))
        return result

    def _variance(self, trials: Sequence[_Rows]) -> float | None:
        """Variance of the main metric in percent that is due to the samples; mean over trials.

        None for classes.
        """
        groups, task = self.source.groups(self.test), self.source.task
        if task.one_class:
            return None
        found = []
        for each in trials:
            mine = None if groups is None else [groups[row] for row in each.rows.tolist()]
            values = 100 * task.contributions(each.values, each.labels)[:, None]
            found.append(covariance_of_means(values, mine)[0, 0])
        return float(np.mean(found))


def cell_by(rule: str, row: str) -> str:
    """Name of the cell of a row whose heads a rule of DomainBed selects."""
    return f"rule {rule}: {row}"


def oracle_on(source: FeatureSource, test: str) -> Oracle:
    """DomainBed's oracle for a held-out domain; ties go to the last draw, as in DomainBed."""

    def best(columns: Columns, heads: Sequence[LinearHead], rows: NDArray[np.int64]) -> LinearHead:
        each = Candidate(columns, [TrainedHead(head, rows) for head in heads])
        found = Scorer(source, test, [rows]).predictions(each)
        right = [np.mean(one.values.argmax(axis=1) == one.labels) for one in found]
        return heads[max(range(len(heads)), key=lambda at: (right[at], at))]

    return best


def _mean_outputs(several: Sequence[Outputs]) -> Outputs:
    """Average the measures of each output; all are of the same samples."""
    return {
        output: {name: fmean(each[output][name] for each in several) for name in measures}
        for output, measures in several[0].items()
    }


def _mean_cell(draws: Sequence[Cell]) -> Cell:
    """Average over draws in each trial."""
    means = np.mean([cell.measures for cell in draws], axis=0)
    models = tuple(dict.fromkeys(model for cell in draws for model in cell.models))
    kind = type(draws[0].measures[0])
    found = tuple(kind(*each) for each in means.tolist())
    outputs = _mean_outputs([cell.outputs for cell in draws])
    return replace(draws[0], measures=found, models=models, outputs=outputs)


def sample_paths(source: FeatureSource, domain: str) -> list[str]:
    """The path of the image of each sample; "row 0", … of the domain, if there are only arrays."""
    if isinstance(source, StoreSource):
        return source.store.paths(domain)
    return [f"row {row}" for row in range(len(source.labels(domain)))]
