"""Results of test beds: written, read, and compared over several test beds.

A result is a JSON object::

    schema              2
    data                name of the data set, and optionally more about it
    models              names of the models
    accuracy            accuracy of each model, in percent: mean over held-out domains
    accuracy_by_domain  the same on each held-out domain; empty if only the means are known
    scores              for each score: title, values (a number or null for each model),
                        values_by_domain (the same for each held-out domain, if they differ), models
                        (how many have it); means over held-out domains: regret, weighted_tau, tau,
                        interval, tau_interval, behind_best, common; by_domain and averaged: regret,
                        weighted_tau and tau on each held-out domain, and of the means
    indistinguishable   pairs of scores that are statistically tied
    left_out            for each score, the models that lack it and the reason
    resamples, seed     number and seed of the bootstrap resamples

Everything that follows from the values is recomputed when a file is read, and an inconsistent file
is rejected.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from oodzoo.core.errors import InputError
from oodzoo.core.io import json_bytes, read_json, require_schema, write_tidily
from oodzoo.core.tables import Table
from oodzoo.core.text import count, number, some_of
from oodzoo.ranking.testbed.agreement import (
    Difference,
    behind,
    interval,
    mean_of,
    mean_of_draws,
    simultaneous_intervals,
    tied_pairs,
)
from oodzoo.ranking.testbed.bed import RESAMPLES, SCHEMA, SEED, Column, Interval, TestBed, judge

if TYPE_CHECKING:
    from oodzoo.report.figures import Plot


@dataclass(frozen=True)
class Means:
    """Means and worst values of a score over the test beds that have it.

    Attributes
    ----------
    regret, worst_regret : float or None
        Mean and largest, in percentage points.
    weighted_tau, worst_weighted_tau : float or None
        Mean and smallest.
    averaged_weighted_tau : float or None
        Mean of the weighted taus in the paper's form.
    interval : (float, float) or None
        90 % bootstrap interval of the mean weighted tau, from resampling models; the data sets and
        their held-out domains are fixed.
    behind_best : (float, float) or None
        Interval of how much lower the mean weighted tau is than that of the best score, on the
        data sets that have both; corrected for the number of scores.
    beds : int
        Number of test beds that have the score.
    """

    regret: float | None
    worst_regret: float | None
    weighted_tau: float | None
    worst_weighted_tau: float | None
    averaged_weighted_tau: float | None
    interval: Interval
    beds: int
    behind_best: Interval = None


@dataclass(frozen=True)
class Comparison:
    """Several test beds, and the mean of each score over them.

    Attributes
    ----------
    beds : dict
        A :class:`~oodzoo.ranking.testbed.TestBed` for each data set.
    means : dict
        A :class:`Means` for each score, sorted by the number of data sets that have it and then by
        weighted tau.
    indistinguishable : tuple of (str, str)
        Pairs of scores whose mean weighted taus, over the data sets that have both, are
        statistically tied. The intervals of all pairs hold at the same time with 90 % probability.
    """

    beds: dict[str, TestBed]
    means: dict[str, Means]
    indistinguishable: tuple[tuple[str, str], ...]

    def tied(self, one: str, two: str) -> bool:
        """Whether two scores are statistically tied."""
        return (one, two) in self.indistinguishable or (two, one) in self.indistinguishable

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the columns and rows of a table of the scores, as text, the best score first."""
        columns = ["score", "weighted tau", "worst", "regret", "worst regret", "data sets"]
        return columns, [
            [
                name,
                number(each.weighted_tau, 3),
                number(each.worst_weighted_tau, 2),
                number(each.regret, 1),
                number(each.worst_regret, 1),
                number(each.beds),
            ]
            for name, each in self.means.items()
        ]

    def __str__(self) -> str:
        return Table.of(*self.table()).text()

    def __repr__(self) -> str:
        size = f"{count(len(self.beds), 'data set')}, {count(len(self.means), 'score')}"
        best = f": {some_of(list(self.means), 3)}" if self.means else ""
        return f"Comparison({size}{best})"

    def _repr_html_(self) -> str:
        caption = f"Means over {some_of(list(self.beds), 6)}"
        return Table.of(*self.table(), caption=caption).html()

    def plot(self) -> Plot:
        """Plot each score against accuracy: a row of panels for each data set."""
        from oodzoo.report.figures import plot_scores

        return plot_scores(list(self.beds.values()))


def compare(beds: Mapping[str, TestBed]) -> Comparison:
    """Compare test beds.

    Test beds of the same models share their bootstrap resamples; others are resampled
    independently.

    Examples
    --------
    >>> from oodzoo.ranking.testbed import paper
    >>> together = compare(paper())
    >>> list(together.means)
    ['zood', 'logme', 'knn', 'h_score']
    >>> round(together.means["zood"].weighted_tau, 2)
    0.8
    """
    if not beds:
        raise InputError("no test beds to compare; pass at least one")
    names = list(dict.fromkeys(name for bed in beds.values() for name in bed.scores))
    means = dict(sorted(((name, _means(name, beds)) for name in names), key=_best_first))
    fewest = min(bed.resamples for bed in beds.values())
    found = {
        pair: difference
        for pair in itertools.combinations(means, 2)
        if (difference := _difference(list(beds.values()), *pair, fewest)) is not None
    }
    intervals = simultaneous_intervals(found)
    distances = behind(next(iter(means), ""), list(means), intervals)
    means = {n: replace(mean, behind_best=distances.get(n)) for n, mean in means.items()}
    return Comparison(dict(beds), means, tied_pairs(intervals))


def _best_first(item: tuple[str, Means]) -> tuple[int, float]:
    _, mean = item
    return -mean.beds, np.inf if mean.weighted_tau is None else -mean.weighted_tau


def _means(name: str, beds: Mapping[str, TestBed]) -> Means:
    used = [bed for bed in beds.values() if name in bed.scores]
    results = [bed.scores[name] for bed in used]
    taus = [result.weighted_tau for result in results]
    regrets = [result.regret for result in results]
    fewest = min(bed.resamples for bed in used)
    return Means(
        regret=mean_of(regrets),
        worst_regret=max((r for r in regrets if r is not None), default=None),
        weighted_tau=mean_of(taus),
        worst_weighted_tau=min((tau for tau in taus if tau is not None), default=None),
        averaged_weighted_tau=mean_of([result.averaged.weighted_tau for result in results]),
        interval=interval(mean_of_draws([bed.resampled(name)[:fewest] for bed in used])),
        beds=len(used),
    )


def _difference(beds: Sequence[TestBed], one: str, two: str, fewest: int) -> Difference | None:
    """Mean difference over the test beds that have both scores, with the fewest resamples."""
    both = [bed for bed in beds if one in bed.scores and two in bed.scores]
    found = [each for bed in both if (each := bed.difference(one, two)) is not None]
    if not found:
        return None
    draws = mean_of_draws([each.draws[:fewest] for each in found])
    if not np.isfinite(draws).any():
        return None
    return Difference(float(np.mean([each.value for each in found])), draws)


_TOLERANCE = 1e-6
"""Largest difference between a value in a file and the recomputed one."""

_LARGEST = 1e300
"""Largest value: means of larger ones could overflow."""


def save(bed: TestBed, path: str | Path) -> None:
    """Write a test bed to a JSON file, atomically."""
    write_tidily(Path(path), json_bytes(bed.to_dict()))


def load(path: str | Path) -> TestBed:
    """Read a test bed from a JSON file and verify it."""
    return verified(read_json(Path(path), "the result"), f"the result {str(path)!r}")


def verified(content: dict[str, Any], context: str = "the result") -> TestBed:
    """Recompute a test bed from a JSON object; `context` names the object in error messages."""
    advice = "write it again with: oodzoo testbed STORE --out FILE"
    require_schema(content, SCHEMA, context, advice)
    data = _mapping(content, "data", context)
    if not isinstance(data.get("name"), str) or not data["name"]:
        raise InputError(f"{context}: 'data' must have the 'name' of the data set, a string")
    accuracy = _accuracy(content, context)
    by_domain = _accuracy_by_domain(content, accuracy, context)
    scores = _mapping(content, "scores", context)
    if not scores:
        raise InputError(f"{context}: 'scores' is empty")
    bed = judge(
        data,
        accuracy,
        {
            name: _column(name, score, accuracy, by_domain, context)
            for name, score in scores.items()
        },
        by_domain=by_domain,
        left_out=_left_out(content, context),
        resamples=_count(content, "resamples", RESAMPLES, context),
        seed=_count(content, "seed", SEED, context),
    )
    for name, score in scores.items():
        for part in ("regret", "weighted_tau", "tau"):
            stated, follows = score.get(part), getattr(bed.scores[name], part)
            if part in score and not _agree(stated, follows):
                raise InputError(
                    f"{context}: {part} of {name!r} is {stated!r}, but its values give "
                    f"{follows!r}; the file was edited"
                )
    return bed


def _accuracy(content: dict[str, Any], context: str) -> dict[str, float]:
    accuracy = _mapping(content, "accuracy", context)
    models = content.get("models")
    listed = isinstance(models, list) and all(isinstance(model, str) for model in models)
    if not isinstance(models, list) or not listed or sorted(models) != sorted(accuracy):
        raise InputError(f"{context}: 'models' must list the models in 'accuracy'")
    if len(models) < 2:
        raise InputError(f"{context} has {count(len(models), 'model')}; at least 2 are needed")
    _require_percentages(accuracy, context)
    return {model: float(accuracy[model]) for model in models}


def _accuracy_by_domain(
    content: dict[str, Any], accuracy: dict[str, float], context: str
) -> dict[str, dict[str, float]]:
    by_domain = _optional_mapping(content, "accuracy_by_domain", context)
    for domain in by_domain:
        there = _mapping(by_domain, domain, f"{context}: 'accuracy_by_domain'")
        if set(there) != set(accuracy):
            raise InputError(f"{context}: the models of {domain!r} must be those in 'accuracy'")
        _require_percentages(there, f"{context}, domain {domain!r}")
    for model, stated in accuracy.items() if by_domain else ():
        mean = mean_of([there[model] for there in by_domain.values()])
        if not _agree(stated, mean):
            raise InputError(
                f"{context}: the accuracy of {model!r} is {stated!r}, but its mean over "
                f"held-out domains is {mean!r}; the file was edited"
            )
    return {d: {m: float(there[m]) for m in accuracy} for d, there in by_domain.items()}


def _require_percentages(accuracy: dict[str, Any], context: str) -> None:
    for model, value in accuracy.items():
        if not _is_number(value) or not 0 <= value <= 100:
            raise InputError(
                f"{context}: the accuracy of {model!r} must be a percentage, got {value!r}"
            )


def _column(
    name: str,
    score: Any,
    accuracy: dict[str, float],
    by_domain: dict[str, dict[str, float]],
    context: str,
) -> Column:
    if not isinstance(score, dict):
        raise InputError(f"{context}: the score {name!r} must be an object, got {score!r}")
    title = score.get("title", "")
    if not isinstance(title, str):
        raise InputError(f"{context}: the title of {name!r} must be a string, got {title!r}")
    where = f"{context}, score {name!r}"
    values = _mapping(score, "values", where)
    _require_values(values, accuracy, where)
    each = _optional_mapping(score, "values_by_domain", where)
    if not each:
        return Column(values, title)
    if set(each) != set(by_domain):
        raise InputError(
            f"{where}: 'values_by_domain' must have the domains of 'accuracy_by_domain'"
        )
    for domain in each:
        _require_values(_mapping(each, domain, f"{where}: 'values_by_domain'"), accuracy, where)
    averaged = Column.averaged(
        {domain: _complete(each[domain], accuracy) for domain in each}, title
    )
    for model, mean in averaged.values.items():
        if not _agree(values.get(model), mean):
            raise InputError(
                f"{where}: the value of {model!r} is {values.get(model)!r}, but its mean over "
                f"held-out domains is {mean!r}; the file was edited"
            )
    return averaged


def _complete(values: dict[str, Any], accuracy: dict[str, float]) -> dict[str, float | None]:
    return {model: values.get(model) for model in accuracy}


def _require_values(values: dict[str, Any], accuracy: dict[str, float], context: str) -> None:
    for model, value in values.items():
        if model not in accuracy:
            raise InputError(f"{context} has an unknown model {model!r}")
        if value is not None and not _is_number(value):
            raise InputError(
                f"{context}: the value of {model!r} must be a number or null, got {value!r}"
            )


def _left_out(content: dict[str, Any], context: str) -> dict[str, dict[str, str]]:
    reasons = _optional_mapping(content, "left_out", context)
    for name, why in reasons.items():
        if not isinstance(why, dict) or not all(isinstance(text, str) for text in why.values()):
            raise InputError(
                f"{context}: 'left_out' of {name!r} must map models to reasons, got {why!r}"
            )
    return reasons


def _mapping(content: dict[str, Any], key: str, context: str) -> dict[str, Any]:
    value = content.get(key)
    if not isinstance(value, dict):
        raise InputError(f"{context} must have an object {key!r}, got {value!r}")
    return value


def _optional_mapping(content: dict[str, Any], key: str, context: str) -> dict[str, Any]:
    return _mapping(content, key, context) if key in content else {}


def _count(content: dict[str, Any], key: str, default: int, context: str) -> int:
    value = content.get(key, default)
    least = 1 if key == "resamples" else 0
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= 1_000_000:
        raise InputError(
            f"{context}: {key!r} must be an integer from {least} to 1,000,000, got {value!r}"
        )
    return value


def _is_number(value: Any) -> bool:
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return numeric and abs(value) <= _LARGEST  # NaN is not


def _agree(stated: Any, follows: float | None) -> bool:
    if stated is None or follows is None:
        return stated is follows
    return _is_number(stated) and abs(stated - follows) <= _TOLERANCE * max(1.0, abs(follows))
