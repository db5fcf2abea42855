"""A test bed: accuracy of models on held-out domains, and the scores compared with it."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.io import structured
from oodzoo.core.tables import Table
from oodzoo.core.text import MISSING, count, number, short_name, span, unknown
from oodzoo.core.threads import LARGE_PRODUCT, blas_threads
from oodzoo.ranking.testbed.agreement import (
    Agreement,
    Difference,
    Resampled,
    UnseenDomain,
    Values,
    agreement,
    behind,
    interval,
    mean_agreement,
    simultaneous_intervals,
    tied_pairs,
)

if TYPE_CHECKING:
    from oodzoo.report.figures import Plot


SCHEMA = 2
RESAMPLES = 10_000
SEED = 0

Interval = tuple[float, float] | None


@dataclass(frozen=True)
class Column:
    """Values of a score.

    Attributes
    ----------
    values : mapping
        Value for each model; None if the model has none.
    title : str
        Full name of the score.
    by_domain : mapping
        The values computed for each held-out domain, if they differ; `values` are then their means.
    """

    values: Values
    title: str = ""
    by_domain: Mapping[str, Values] = field(default_factory=dict)

    @classmethod
    def averaged(cls, by_domain: Mapping[str, Values], title: str = "") -> Column:
        """Make a column of the values for each held-out domain; a model must have all or none."""
        means: dict[str, float | None] = {}
        for model in next(iter(by_domain.values())):
            known = [v for values in by_domain.values() if (v := values.get(model)) is not None]
            means[model] = float(np.mean(known)) if len(known) == len(by_domain) else None
        return cls(means, title, by_domain)


@dataclass(frozen=True)
class ScoreResult:
    """Agreement of a score with accuracy, on the models that have the score.

    Attributes
    ----------
    values, title
        As in :class:`Column`.
    models : int
        Number of models that have the score.
    regret : float or None
        Percentage points of accuracy between the best model of all and the top model under this
        score (the mean of several that are tied): mean over held-out domains.
    weighted_tau, tau : float or None
        Means over held-out domains. None if all models have the same score or the same accuracy.
    interval, tau_interval : (float, float) or None
        90 % bootstrap intervals of the two, from resampling models; the held-out domains are fixed.
    behind_best : (float, float) or None
        Interval of how much lower the weighted tau is than that of the best score, on the models
        that have both. The intervals of all pairs of scores hold at the same time with 90 %
        probability. None for the best score itself.
    common : float or None
        Weighted tau on the models that have every score, averaged over held-out domains.
    averaged : Agreement
        As in the paper: scores and accuracies are averaged over held-out domains first.
    by_domain : dict of str to Agreement
        Agreement on each held-out domain.
    values_by_domain : dict
        As `by_domain` in :class:`Column`.
    """

    values: Values
    title: str
    models: int
    regret: float | None
    weighted_tau: float | None
    tau: float | None
    interval: Interval
    tau_interval: Interval
    common: float | None
    behind_best: Interval = None
    averaged: Agreement = field(default_factory=Agreement)
    by_domain: dict[str, Agreement] = field(default_factory=dict)
    values_by_domain: dict[str, Values] = field(default_factory=dict)

    def __repr__(self) -> str:
        taus = f"weighted tau {number(self.weighted_tau, 2)}"
        regret = f"regret {number(self.regret, 1)}"
        models = count(self.models, "model")
        return f"ScoreResult({short_name(self.title)!r}: {taus}, {regret}, {models})"


@dataclass(frozen=True)
class TestBed:
    """Accuracy of models, and scores compared with it.

    It is a mapping from scores to their results, in the order of `order`: `bed["logme"]`,
    `"logme" in bed`, `for score in bed`, `len(bed)`.

    Attributes
    ----------
    data : dict
        Provenance of the data: its `name`, and optionally more.
    accuracy : dict
        Accuracy of each model, in percent: mean over held-out domains.
    scores : dict
        A :class:`ScoreResult` for each score.
    indistinguishable : tuple of (str, str)
        Pairs of scores that are statistically tied: the interval of the difference of their
        weighted taus contains zero. The intervals of all pairs hold at the same time with 90 %
        probability, over resamples of the models.
    left_out : dict
        For each score, the models that lack it and the reason.
    resamples, seed : int
        Number and seed of the bootstrap resamples.
    accuracy_by_domain : dict
        Accuracy of each model on each held-out domain; empty if only the means are known.
    """

    __test__: ClassVar[bool] = False  # not a pytest class

    data: dict[str, Any]
    accuracy: dict[str, float]
    scores: dict[str, ScoreResult]
    indistinguishable: tuple[tuple[str, str], ...]
    left_out: dict[str, dict[str, str]] = field(default_factory=dict)
    resamples: int = RESAMPLES
    seed: int = SEED
    accuracy_by_domain: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the data set."""
        return str(self.data["name"])

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(self.accuracy)

    @property
    def order(self) -> list[str]:
        """The scores by weighted tau, the highest first; those without one come last."""
        taus = {name: result.weighted_tau for name, result in self.scores.items()}
        known = {name: -np.inf if tau is None else tau for name, tau in taus.items()}
        return sorted(known, key=lambda name: (-known[name], name))

    @property
    def best(self) -> str:
        """The score with the highest weighted tau, of those that the most models have."""
        most = max(result.models for result in self.scores.values())
        return next(name for name in self.order if self.scores[name].models == most)

    def __iter__(self) -> Iterator[str]:
        return iter(self.order)

    def __len__(self) -> int:
        return len(self.scores)

    def __contains__(self, score: object) -> bool:
        return score in self.scores

    def __getitem__(self, score: str) -> ScoreResult:
        """Return the result of a score."""
        if score not in self.scores:
            raise KeyError(unknown("the test bed", "score", score, self.order))
        return self.scores[score]

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the columns and rows of a table of the scores, as text, the best score first."""
        columns = ["score", "weighted tau", "90 %", "tau", "regret", "models"]
        results = [(name, self.scores[name]) for name in self.order]
        return columns, [
            [
                name,
                number(each.weighted_tau, 3),
                MISSING if each.interval is None else span(*each.interval, digits=2),
                number(each.tau, 3),
                number(each.regret, 1),
                number(each.models),
            ]
            for name, each in results
        ]

    def __str__(self) -> str:
        return Table.of(*self.table()).text()

    def __repr__(self) -> str:
        size = f"{count(len(self.models), 'model')}, {count(len(self), 'score')}"
        tau = number(self.scores[self.best].weighted_tau, 2) if self.scores else MISSING
        best = f", best {short_name(self.best)} (weighted tau {tau})" if self.scores else ""
        return f"TestBed({short_name(self.name)!r}: {size}{best})"

    def _repr_html_(self) -> str:
        return Table.of(
            *self.table(),
            caption=f"{self.name}: {count(len(self.models), 'model')}",
            notes=["Weighted tau: agreement with the accuracy. Regret: accuracy lost, in points."],
        ).html()

    @property
    def metrics(self) -> dict[str, float]:
        """Taus and regret of each score, where it has them, as a listener gets them."""
        found = {
            f"{score}/{name}": getattr(result, name)
            for score, result in self.scores.items()
            for name in ("weighted_tau", "tau", "regret")
        }
        return {name: value for name, value in found.items() if value is not None}

    def tied(self, one: str, two: str) -> bool:
        """Whether two scores are statistically tied."""
        return (one, two) in self.indistinguishable or (two, one) in self.indistinguishable

    def resampled(self, score: str) -> NDArray[np.float64]:
        """Return the weighted tau of a score in each bootstrap resample of the models."""
        models = self._resampled.models_with(score)
        return self._resampled.draws("weighted_tau", score, models)

    def difference(self, one: str, two: str) -> Difference | None:
        """Compare the weighted taus of two scores on the models that have both."""
        return self._resampled.difference(one, two)

    @functools.cached_property
    def _resampled(self) -> Resampled:
        columns = {
            name: Column(result.values, by_domain=result.values_by_domain)
            for name, result in self.scores.items()
        }
        tests = tests_of(self.accuracy, columns, self.accuracy_by_domain)
        return Resampled(list(tests.values()), self.resamples, self.seed)

    def to_dict(self) -> dict[str, Any]:
        """Convert the test bed to a JSON document."""
        return {
            "schema": SCHEMA,
            "data": self.data,
            "models": list(self.models),
            "accuracy": self.accuracy,
            "accuracy_by_domain": self.accuracy_by_domain,
            "scores": {name: dataclasses.asdict(result) for name, result in self.scores.items()},
            "indistinguishable": [list(pair) for pair in self.indistinguishable],
            "left_out": self.left_out,
            "resamples": self.resamples,
            "seed": self.seed,
        }

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> TestBed:
        """Restore a test bed from :meth:`to_dict`, without recomputing anything."""
        return structured(document, cls, "the test bed")

    def plot(self) -> Plot:
        """Plot each score against accuracy, one panel per score."""
        from oodzoo.report.figures import plot_scores

        return plot_scores([self])


def tests_of(
    accuracy: Mapping[str, float],
    columns: Mapping[str, Column],
    by_domain: Mapping[str, Mapping[str, float]],
) -> dict[str, UnseenDomain]:
    """Return the tests of a test bed: one for each held-out domain, or one of the means."""
    if not by_domain:
        return {
            "": UnseenDomain(accuracy, {name: column.values for name, column in columns.items()})
        }
    return {
        domain: UnseenDomain(
            {model: there[model] for model in accuracy},
            {name: column.by_domain.get(domain, column.values) for name, column in columns.items()},
        )
        for domain, there in by_domain.items()
    }


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
        Accuracy of each model, in percent; the mean over held-out domains.
    columns : mapping
        Scores by name.
    by_domain : mapping, optional
        Accuracy of each model on each held-out domain. Correlation and regret are then computed on
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
