"""The row of fine-tuned models, and whether it is recommended."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from oodzoo.combination.verdict import is_better
from oodzoo.evaluation.choice import Predicted
from oodzoo.evaluation.fine_tuning import TunedFold
from oodzoo.evaluation.folds import interval_of
from oodzoo.evaluation.recommended import FINE_TUNED, Recommended
from oodzoo.evaluation.result import Evaluation, estimate_of
from oodzoo.evaluation.rows import Gain, Row, Tuning
from oodzoo.evaluation.scoring import diagnose_predicted, score_predicted, trial_rows
from oodzoo.features.source import FeatureSource
from oodzoo.tuning.choice import metric


def with_fine_tuned(
    evaluation: Evaluation, source: FeatureSource, folds: Mapping[str, TunedFold], best: str
) -> Evaluation:
    """Add the row of fine-tuned models to an evaluation.

    They are recommended if they are better than what is recommended otherwise, on the test domains
    (three or more), by more than a standard error between them; and better on average than the
    linear heads that the training starts from, to which the gain may be due otherwise.

    Parameters
    ----------
    evaluation : Evaluation
    source : FeatureSource
    folds : dict of str to TunedFold
        By test domain.
    best : str
        The first model of the ranking on all domains.
    """
    cells, diagnoses = {}, {}
    for test, fold in folds.items():
        model = evaluation.single.cells[test].models[0]
        predicted = Predicted((model,), source.facts(model).feature_dim, fold.outputs)
        rows = trial_rows(source, test, evaluation.protocol, evaluation.trials)
        cells[test] = score_predicted(source, test, predicted, rows)
        if (found := diagnose_predicted(source, test, predicted, rows)) is not None:
            diagnoses[test] = found
    row = Row(cells)
    before = evaluation.recommended
    tuned = row.measure(row.metric)
    gains = np.array([tuned[test] - before.domains[test] for test in evaluation.domains])
    error = float(gains.std(ddof=1)) / math.sqrt(len(gains))
    over_head = [_gain_over_head(source, test, fold) for test, fold in folds.items()]
    tuning = Tuning(
        Gain(before.choice, float(gains.mean()), error, float(np.mean(over_head))),
        {test: fold.facts for test, fold in folds.items()},
    )
    recommended, diagnosis = before, evaluation.diagnosis
    better = is_better(estimate_of(tuned), estimate_of(before.domains))
    if better and tuning.gain.over_head > 0:
        diagnosis = diagnoses
        recommended = Recommended(
            choice=FINE_TUNED,
            models=(best,),
            average=row.average,
            interval=interval_of(source, cells),
            domains=tuned,
            choices=dict.fromkeys(tuned, FINE_TUNED),
            estimates=before.estimates,
            within=before.within,
            candidates=before.candidates,
            max_models=before.max_models,
            max_ms=before.max_ms,
        )
    return replace(
        evaluation, fine_tuned=row, tuning=tuning, recommended=recommended, diagnosis=diagnosis
    )


def _gain_over_head(source: FeatureSource, test: str, fold: TunedFold) -> float:
    tuned = 100 * metric(source.task.kind, fold.outputs, source.labels(test))
    return tuned - fold.facts.linear_head
