r"""Which scores are statistically tied, corrected for the number of scores compared.

All pairs of scores are compared at once. With :math:`\hat\delta_p` the difference of a pair p,
:math:`\delta^*_{pb}` the same in bootstrap resample b, and :math:`s_p` the standard deviation of
the latter, the intervals

.. math:: \hat\delta_p \pm c\,s_p, \qquad
   c = \text{90 % quantile over b of } \max_p \frac{|\delta^*_{pb} - \bar\delta^*_p|}{s_p}

contain all true differences at the same time with a probability of about 90 % (the maximum
statistic; J. P. Romano, M. Wolf, Exact and approximate stepdown methods for multiple hypothesis
testing, JASA 2005). So if all scores are equally good, the chance that any of them is called worse
than the best is at most about 10 %, no matter how many scores there are. Intervals of one pair at
a time would call one worse in more than half of the cases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.ranking.intervals import CONFIDENCE

Floats = NDArray[np.float64]
Pair = tuple[str, str]


class Difference(NamedTuple):
    """Difference of two scores, and the same in each bootstrap resample."""

    value: float
    draws: Floats


def simultaneous_intervals(
    differences: Mapping[Pair, Difference],
) -> dict[Pair, tuple[float, float]]:
    """Compute intervals that contain all true differences at the same time, with 90 % probability.

    Parameters
    ----------
    differences : mapping
        For each pair of scores, with the same resamples for all. A resample is NaN where it has no
        order, but not all of them.

    Examples
    --------
    >>> draws = np.array([-1.0, 0.0, 1.0])
    >>> one, two = Difference(0.5, draws), Difference(20.0, 2 * draws)
    >>> intervals = simultaneous_intervals({("a", "b"): one, ("a", "c"): two})
    >>> [low > 0 for low, high in intervals.values()]
    [False, True]
    """
    if not differences:
        return {}
    values = np.array([difference.value for difference in differences.values()])
    draws = np.stack([difference.draws for difference in differences.values()])
    deviations = draws - np.nanmean(draws, axis=1, keepdims=True)
    spread = np.nanstd(draws, axis=1)
    # equal scores differ in no resample: they need no share of the correction
    standardised = deviations[spread > 0] / spread[spread > 0, None]
    largest = np.nan_to_num(np.abs(standardised)).max(axis=0, initial=0.0)
    half = float(np.quantile(largest, CONFIDENCE)) * spread
    ends = zip((values - half).tolist(), (values + half).tolist(), strict=True)
    return dict(zip(differences, ends, strict=True))


def tied_pairs(intervals: Mapping[Pair, tuple[float, float]]) -> tuple[Pair, ...]:
    """Return the pairs whose interval contains zero."""
    return tuple(pair for pair, (low, high) in intervals.items() if low <= 0 <= high)


def behind(
    best: str, names: Sequence[str], intervals: Mapping[Pair, tuple[float, float]]
) -> dict[str, tuple[float, float]]:
    """Return the intervals of how far each score is behind the best one."""
    found = {}
    for name in names:
        if (best, name) in intervals:
            found[name] = intervals[best, name]
        elif (name, best) in intervals:
            low, high = intervals[name, best]
            found[name] = (-high, -low)
    return found
