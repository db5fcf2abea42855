"""Compare scores over several test beds."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from oodzoo.errors import InputError
from oodzoo.testbed.bed import Interval, TestBed
from oodzoo.testbed.correlation import differ, interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Means:
    """Means of a score over the test beds that have it.

    Attributes
    ----------
    weighted_tau : float or None
    interval : (float, float) or None
        90 % bootstrap interval of the mean weighted tau, from resampling models; the data sets are
        fixed.
    regret : float or None
        Percentage points.
    beds : int
        Number of test beds that have the score.
    """

    weighted_tau: float | None
    interval: Interval
    regret: float | None
    beds: int


@dataclass(frozen=True)
class Comparison:
    """Several test beds, and the mean of each score over them.

    Attributes
    ----------
    beds : dict
        A :class:`~oodzoo.testbed.TestBed` for each data set.
    means : dict
        A :class:`Means` for each score, sorted by the number of data sets that have it and then by
        weighted tau.
    indistinguishable : tuple of (str, str)
        Pairs of scores whose mean weighted taus, over the data sets that have both, are
        statistically tied.
    """

    beds: dict[str, TestBed]
    means: dict[str, Means]
    indistinguishable: tuple[tuple[str, str], ...]

    def tied(self, one: str, two: str) -> bool:
        """Whether two scores are statistically tied."""
        return (one, two) in self.indistinguishable or (two, one) in self.indistinguishable

    def plot(self) -> Figure:
        """Plot each score against accuracy: one row per data set, one column per score."""
        from oodzoo.report.figures import plot_scores

        return plot_scores(list(self.beds.values()))


def compare(beds: Mapping[str, TestBed]) -> Comparison:
    """Compare test beds.

    Test beds of the same models share their bootstrap resamples; others are resampled
    independently.

    Examples
    --------
    >>> from oodzoo.testbed import paper
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
    pairs = []
    for one, two in itertools.combinations(means, 2):
        both = [bed for bed in beds.values() if one in bed.scores and two in bed.scores]
        if both and not differ(_mean(both, one, two), _mean(both, two, one)):
            pairs.append((one, two))
    return Comparison(dict(beds), means, tuple(pairs))


def _best_first(item: tuple[str, Means]) -> tuple[int, float]:
    _, mean = item
    return -mean.beds, np.inf if mean.weighted_tau is None else -mean.weighted_tau


def _means(name: str, beds: Mapping[str, TestBed]) -> Means:
    used = [bed for bed in beds.values() if name in bed.scores]
    results = [bed.scores[name] for bed in used]
    taus = [result.weighted_tau for result in results if result.weighted_tau is not None]
    regrets = [result.regret for result in results if result.regret is not None]
    return Means(
        weighted_tau=float(np.mean(taus)) if taus else None,
        interval=interval(_mean(used, name)),
        regret=float(np.mean(regrets)) if regrets else None,
        beds=len(used),
    )


def _mean(beds: Sequence[TestBed], score: str, *others: str) -> NDArray[np.float64]:
    """Mean over test beds in each resample; the fewest resamples of any test bed are used."""
    fewest = min(bed.resamples for bed in beds)
    draws = np.stack([bed.resampled(score, *others)[:fewest] for bed in beds])
    ordered = draws[np.isfinite(draws).any(axis=1)]  # without test beds where all models are tied
    if not len(ordered):
        return np.full(fewest, np.nan)
    mean: NDArray[np.float64] = ordered.mean(axis=0)
    return mean
