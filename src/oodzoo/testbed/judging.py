"""Compare scores with the accuracy of models."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from oodzoo._threads import LARGE_PRODUCT, blas_threads
from oodzoo.testbed.agreement import Resampled, agreement, mean_agreement
from oodzoo.testbed.bed import RESAMPLES, SEED, Column, ScoreResult, TestBed, tests_of
from oodzoo.testbed.correlation import interval
from oodzoo.testbed.ties import behind, simultaneous_intervals, tied_pairs


def judge(
    data: dict[str, Any],
    accuracy: Mapping[str, float],
    columns: Mapping[str, Column],
    *,
    by_domain: Mapping[str, Mapping[str, float]] | None = None,
    left_out: Mapping[str, Mapping[str, str]] | None = None,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> TestBed:
    """Compare scores with the accuracy of the models.

    Parameters
    ----------
    data : dict
        Provenance of the data; needs a `name`, which is shown in tables.
    accuracy : mapping
        Accuracy of each model, in percent; the mean over test domains.
    columns : mapping
        Scores by name.
    by_domain : mapping, optional
        Accuracy of each model on each test domain. Correlation and regret are then computed on
        each of them and averaged.
    left_out : mapping, optional
        For each score, the models that lack it and the reason.
    resamples, seed : int
        Number and seed of the bootstrap resamples.

    Examples
    --------
    >>> accuracy = {"a": 50.0, "b": 60.0, "c": 70.0, "d": 80.0}
    >>> wide = Column({"a": 2.0, "b": 1.0, "c": 3.0, "d": None})
    >>> bed = judge({"name": "toy"}, accuracy, {"wide": wide})
    >>> bed.scores["wide"].models, round(bed.scores["wide"].tau, 3), bed.scores["wide"].regret
    (3, 0.333, 10.0)
    """
    with blas_threads(resamples * len(accuracy), LARGE_PRODUCT):
        return _judge(data, accuracy, columns, by_domain or {}, left_out or {}, resamples, seed)


def _judge(
    data: dict[str, Any],
    accuracy: Mapping[str, float],
    columns: Mapping[str, Column],
    by_domain: Mapping[str, Mapping[str, float]],
    left_out: Mapping[str, Mapping[str, str]],
    resamples: int,
    seed: int,
) -> TestBed:
    columns = {name: _of_models(column, accuracy) for name, column in columns.items()}
    each_accuracy = {domain: dict(there) for domain, there in by_domain.items()}
    tests = tests_of(accuracy, columns, each_accuracy)
    draws = Resampled(list(tests.values()), resamples, seed)
    common = draws.models_with(*columns)
    scores = {}
    for name, column in columns.items():
        own = draws.models_with(name)
        each = {d: agreement(test.accuracy, test.values[name]) for d, test in tests.items()}
        mean = mean_agreement(list(each.values()))
        scores[name] = ScoreResult(
            values=column.values,
            title=column.title or name,
            models=len(own),
            regret=mean.regret,
            weighted_tau=mean.weighted_tau,
            tau=mean.tau,
            interval=interval(draws.draws("weighted_tau", name, own)),
            tau_interval=interval(draws.draws("tau", name, own)),
            common=draws.correlation(name, common),
            averaged=agreement(accuracy, column.values),
            by_domain=each if by_domain else {},
            values_by_domain=dict(column.by_domain),
        )
    found = {
        pair: difference
        for pair in itertools.combinations(sorted(scores), 2)
        if (difference := draws.difference(*pair)) is not None
    }
    intervals = simultaneous_intervals(found)
    bed = TestBed(
        dict(data),
        dict(accuracy),
        scores,
        tied_pairs(intervals),
        {name: dict(why) for name, why in left_out.items()},
        resamples,
        seed,
        each_accuracy,
    )
    distances = behind(bed.best, list(scores), intervals) if scores else {}
    judged = {n: replace(result, behind_best=distances.get(n)) for n, result in scores.items()}
    return replace(bed, scores=judged)


def _of_models(column: Column, accuracy: Mapping[str, float]) -> Column:
    """The column with a value or None for each model of the test bed, in its order."""

    def complete(values: Mapping[str, float | None]) -> dict[str, float | None]:
        return {m: values.get(m) if column.values.get(m) is not None else None for m in accuracy}

    by_domain = {domain: complete(values) for domain, values in column.by_domain.items()}
    return Column(complete(column.values), column.title, by_domain)
