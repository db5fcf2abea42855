"""Compare scores over several test beds."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from oodzoo.core.errors import InputError
from oodzoo.core.html import html_table
from oodzoo.core.numbers import number
from oodzoo.core.text import count, some_of, text_table
from oodzoo.ranking.testbed.agreement import mean_of
from oodzoo.ranking.testbed.bed import Interval, TestBed
from oodzoo.ranking.testbed.correlation import (
    Difference,
    behind,
    interval,
    mean_of_draws,
    simultaneous_intervals,
    tied_pairs,
)

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
        their test domains are fixed.
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
        return text_table(*self.table())

    def __repr__(self) -> str:
        size = f"{count(len(self.beds), 'data set')}, {count(len(self.means), 'score')}"
        best = f": {some_of(list(self.means), 3)}" if self.means else ""
        return f"Comparison({size}{best})"

    def _repr_html_(self) -> str:
        return html_table(*self.table(), caption=f"Means over {some_of(list(self.beds), 6)}")

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
