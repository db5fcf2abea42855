"""Which way of combining models to recommend, from left-out domains.

A few left-out domains seldom tell which way is best on another one. The choice is therefore
cautious, and in two steps:

1. A pool, unless another way is more accurate by more than a standard error *between domains*. A
   pool depends least on any one model and on any one domain.
2. A cheaper way instead, if it is within a standard error of that one, on the same images, in
   *every* left-out domain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_ROUNDING = 1e-9
"""Differences of metrics up to this are rounding."""

CHOICES = ("single", "pool", "ensemble", "selection")
"""Ways of combining models."""


@dataclass(frozen=True)
class Estimate:
    """What left-out domains say about one way of combining models.

    Attributes
    ----------
    contributions : list of arrays (n,)
        For each left-out domain, what each sample contributes to the metric
        (:mod:`oodzoo.metrics`), such as whether it was classified correctly.
    cost : float
    """

    contributions: Sequence[NDArray[np.bool_ | np.float64]]
    cost: float

    @property
    def accuracy(self) -> float:
        """The metric in percent; all domains weigh alike."""
        return 100 * float(np.mean([each.mean() for each in self.contributions]))


def recommend(estimates: Mapping[str, Estimate]) -> str:
    """Return the name of the recommended way; "pool" is one of them.

    Examples
    --------
    >>> right, wrong = np.ones(100, bool), np.arange(100) < 50
    >>> recommend({"single": Estimate([wrong] * 3, 1.0), "pool": Estimate([right] * 3, 3.0)})
    'pool'
    >>> recommend({"single": Estimate([right] * 3, 1.0), "pool": Estimate([right] * 3, 3.0)})
    'single'
    """
    best = max(estimates, key=lambda name: estimates[name].accuracy)
    if not is_better(estimates[best], estimates["pool"]):
        best = "pool"
    chosen = estimates[best]
    close = {n: e for n, e in estimates.items() if n == best or is_close(e, chosen)}
    return min(close, key=lambda name: (close[name].cost, name != best))


def is_better(one: Estimate, other: Estimate) -> bool:
    """Whether one way is more accurate than another by more than a standard error between domains.

    With one domain it never is.
    """
    pairs = zip(one.contributions, other.contributions, strict=True)
    gains = np.array([a.mean() - b.mean() for a, b in pairs])
    if len(gains) < 2:
        return False
    # a gain in one domain only is equal to its standard error, but for rounding
    return bool(gains.mean() > (1 + 1e-9) * gains.std(ddof=1) / math.sqrt(len(gains)))


def is_close(one: Estimate, best: Estimate) -> bool:
    """Whether one way is within a standard error of the best in every domain."""
    for here, there in zip(one.contributions, best.contributions, strict=True):
        loss = there.astype(np.float64) - here
        if loss.mean() > loss.std() / math.sqrt(len(loss)) + _ROUNDING:
            return False
    return True
