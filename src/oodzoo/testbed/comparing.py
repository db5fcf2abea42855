"""Several test beds side by side: which scores hold up over data sets."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from oodzoo.errors import InputError
from oodzoo.testbed.bed import Interval, TestBed
from oodzoo.testbed.correlation import apart, interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Means:
    """A score over several data sets.

    Attributes
    ----------
    weighted_tau : float or None
        The mean over the data sets that have the score.
    interval : (float, float) or None
        Its 90 % interval, by resampling models; the data sets stay as they are.
    regret : float or None
        The mean, in percentage points.
    beds : int
        How many data sets have the score.
    """

    weighted_tau: float | None
    interval: Interval
    regret: float | None
    beds: int


@dataclass(frozen=True)
class Comparison:
    """Several test beds, and what they say of each score together.

    Attributes
    ----------
    beds : dict
        A :class:`~oodzoo.testbed.TestBed` for each data set.
    means : dict
        A :class:`Means` for each score, the best first; scores that all data sets have come first.
    indistinguishable : tuple of (str, str)
        Scores whose mean weighted taus, over the data sets that have both, cannot be told apart.
    """

    beds: dict[str, TestBed]
    means: dict[str, Means]
    indistinguishable: tuple[tuple[str, str], ...]

    def plot(self) -> Figure:
        """Each score against accuracy: a row for each data set, a column for each score."""
        from oodzoo.report.plots import plot_scores

        return plot_scores(list(self.beds.values()))


def compare(beds: Mapping[str, TestBed]) -> Comparison:
    """Put test beds side by side.

    Models are resampled for the intervals. Test beds of the same models share the resamples,
    others are resampled each on its own.

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
        raise InputError("there are no results to compare")
    names = list(dict.fromkeys(name for bed in beds.values() for name in bed.scores))
    means = {name: _means(name, beds) for name in names}
    means = dict(
        sorted(
            means.items(),
            key=lambda item: (
                -item[1].beds,
                np.inf if item[1].weighted_tau is None else -item[1].weighted_tau,
            ),
        )
    )
    pairs = []
    for one, two in itertools.combinations(means, 2):
        both = [bed for bed in beds.values() if one in bed.scores and two in bed.scores]
        if both and not apart(_mean(both, one, two), _mean(both, two, one)):
            pairs.append((one, two))
    return Comparison(dict(beds), means, tuple(pairs))


def _means(name: str, beds: Mapping[str, TestBed]) -> Means:
    having = [bed for bed in beds.values() if name in bed.scores]
    judged = [bed.scores[name] for bed in having]
    taus = [one.weighted_tau for one in judged if one.weighted_tau is not None]
    regrets = [one.regret for one in judged if one.regret is not None]
    return Means(
        weighted_tau=float(np.mean(taus)) if taus else None,
        interval=interval(_mean(having, name)),
        regret=float(np.mean(regrets)) if regrets else None,
        beds=len(judged),
    )


def _mean(beds: Sequence[TestBed], score: str, *beside: str) -> NDArray[np.float64]:
    """The mean over test beds in each resample; as many as the one with the fewest has."""
    fewest = min(bed.resamples for bed in beds)
    draws = np.stack([bed.resampled(score, *beside)[:fewest] for bed in beds])
    ordered = draws[np.isfinite(draws).any(axis=1)]  # a score that orders nothing has no part
    if not len(ordered):
        return np.full(fewest, np.nan)
    mean: NDArray[np.float64] = ordered.mean(axis=0)
    return mean
