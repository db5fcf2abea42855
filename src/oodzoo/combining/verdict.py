"""Which combination of models to recommend, from two kinds of predictions.

Held-out domains see the shift to another domain, but a few of them seldom tell which combination is
best on another one. Cross-validation within the domains varies little, but does not see the shift.
The choice is therefore cautious:

1. A pool, unless another combination is more accurate on held-out domains by more than domains
   differ (a one-sided test of Student's at 90 %) and by more than two standard errors, on the same
   images, and not less accurate within the domains. A pool depends least on any one model and on
   any one domain. Two gains that are alike by chance would pass the first test alone.
2. A single model instead, if what was chosen is much worse in a held-out domain or within the
   domains, and the single model is so nowhere. Much worse is more than two standard errors, on the
   same images.
3. A cheaper combination instead, if it is not less accurate in any domain, neither left out nor
   within, and there are enough images to exclude a loss of 5 points.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

_ROUNDING = 1e-9
"""Differences of metrics up to this are rounding."""

_LEVEL = 0.9
_MANY_ERRORS = 2.0

_TOLERANCE = 0.05
"""A cheaper combination must not possibly lose more than this share of all images."""

Contributions = Sequence[NDArray[np.bool_ | np.float64]]
"""For each domain, what each sample contributes to the metric (:mod:`oodzoo.tasks`), such
as whether it was classified correctly."""


@dataclass(frozen=True)
class Estimate:
    """What is known about one combination.

    Attributes
    ----------
    contributions : list of arrays (n,)
        Of held-out domains.
    cost : float
    within : list of arrays (n,), optional
        Contributions by cross-validation within the domains.
    """

    contributions: Contributions
    cost: float
    within: Contributions | None = None

    @property
    def accuracy(self) -> float:
        """The metric on held-out domains in percent; all domains weigh alike."""
        return _percent(self.contributions)

    @property
    def accuracy_within(self) -> float | None:
        """The metric within the domains in percent; all domains weigh alike."""
        return None if self.within is None else _percent(self.within)


def recommend(estimates: Mapping[str, Estimate], *, usual: str, simple: str) -> str:
    """Return the name of the recommended combination.

    Parameters
    ----------
    estimates : dict of str to Estimate
    usual : str
        The combination that others must be better than: the pool.
    simple : str
        The combination that stands in where others are much worse: the single model.

    Examples
    --------
    >>> right, wrong = np.ones(100, bool), np.arange(100) < 50
    >>> one, all = Estimate([wrong] * 3, 1.0), Estimate([right] * 3, 3.0)
    >>> recommend({"single": one, "pool": all}, usual="pool", simple="single")
    'pool'
    >>> one = Estimate([right] * 3, 1.0)
    >>> recommend({"single": one, "pool": all}, usual="pool", simple="single")
    'single'
    """
    pool = estimates[usual]
    better = [
        name
        for name, each in estimates.items()
        if is_better(each, pool) and _is_beyond_chance(each, pool)
    ]
    best = max(better, key=lambda name: estimates[name].accuracy, default=usual)
    single = estimates.get(simple)
    if single is not None and is_much_worse(estimates[best], single):
        best = best if is_much_worse(single, estimates[best]) else simple
    close = [name for name, e in estimates.items() if is_as_accurate(e, estimates[best])]
    return min(close, key=lambda name: (estimates[name].cost, name != best))


def is_better(one: Estimate, other: Estimate) -> bool:
    """Whether one combination is more accurate than another by more than domains differ.

    With one domain it never is.
    """
    gains = _gains(one.contributions, other.contributions)
    if len(gains) < 2 or _within_gain(one, other) < -_ROUNDING:
        return False
    error = stdtrit(len(gains) - 1, _LEVEL) * gains.std(ddof=1) / math.sqrt(len(gains))
    return bool(gains.mean() > error + _ROUNDING)


def _is_beyond_chance(one: Estimate, other: Estimate) -> bool:
    """Whether the gain on held-out domains is more than its standard errors, over the images."""
    gain, error = _gain_over_images(one, other)
    return gain > _MANY_ERRORS * error


def _gain_over_images(one: Estimate, other: Estimate) -> tuple[float, float]:
    """Mean gain on held-out domains, and its standard error if only the images vary."""
    pairs = zip(one.contributions, other.contributions, strict=True)
    gains = [here.astype(np.float64) - there for here, there in pairs]
    error = math.sqrt(sum(each.var() / len(each) for each in gains)) / len(gains)
    return float(np.mean([each.mean() for each in gains])), error


def is_much_worse(one: Estimate, other: Estimate) -> bool:
    """Whether one combination is much worse than another in a held-out domain or within one."""
    pairs = zip(one.contributions, other.contributions, strict=True)
    inside = zip(one.within or (), other.within or (), strict=False)  # one may be unknown
    for here, there in chain(pairs, inside):
        loss = there.astype(np.float64) - here
        if loss.mean() > _MANY_ERRORS * loss.std() / math.sqrt(len(loss)) + _ROUNDING:
            return True
    return False


def is_as_accurate(one: Estimate, best: Estimate) -> bool:
    """Whether one combination is as accurate as the best in every domain, held out and within.

    What is unknown of one combination only is not. So many images are needed that a loss larger
    than `_TOLERANCE` is excluded.
    """
    gain, error = _gain_over_images(one, best)
    if gain - _MANY_ERRORS * error < -_TOLERANCE:
        return False
    gains = _gains(one.contributions, best.contributions)
    if best.within is not None:
        if one.within is None:
            return one is best
        gains = np.concatenate([gains, _gains(one.within, best.within)])
    return bool(gains.min() > -_ROUNDING)


def _gains(one: Contributions, other: Contributions) -> NDArray[np.float64]:
    return np.array([a.mean() - b.mean() for a, b in zip(one, other, strict=True)])


def _within_gain(one: Estimate, other: Estimate) -> float:
    """Gain within the domains; 0 if it is unknown."""
    if one.within is None or other.within is None:
        return 0.0
    return float(_gains(one.within, other.within).mean())


def _percent(contributions: Contributions) -> float:
    return 100 * float(np.mean([each.mean() for each in contributions]))
