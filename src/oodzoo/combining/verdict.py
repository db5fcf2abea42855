"""Which way of combining models to recommend, from two kinds of predictions; and the words for it.

Left-out domains see the shift to another domain, but a few of them seldom tell which way is best on
another one. Cross-validation within the domains varies little, but does not see the shift. The
choice is therefore cautious:

1. A pool, unless another way is more accurate on left-out domains by more than domains differ (a
   one-sided test of Student's at 90 %) and by more than two standard errors, on the same images,
   and not less accurate within the domains. A pool depends least on any one model and on any one
   domain. Two gains that are alike by chance would pass the first test alone.
2. A single model instead, if what was chosen is much worse in a left-out domain or within the
   domains, and the single model is so nowhere. Much worse is more than two standard errors, on the
   same images.
3. A cheaper way instead, if it is not less accurate in any domain, neither left out nor within,
   and there are enough images to exclude a loss of 5 points.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from oodzoo.combining.statements import TITLES, disagreement, shown_choice
from oodzoo.core.errors import InputError
from oodzoo.core.text import count, short_name

_ROUNDING = 1e-9
"""Differences of metrics up to this are rounding."""

_LEVEL = 0.9
_MANY_ERRORS = 2.0

_TOLERANCE = 0.05
"""A cheaper way must not possibly lose more than this share of all images."""

Contributions = Sequence[NDArray[np.bool_ | np.float64]]
"""For each domain, what each sample contributes to the metric (:mod:`oodzoo.tasks`), such
as whether it was classified correctly."""


@dataclass(frozen=True)
class Estimate:
    """What is known about one way of combining models.

    Attributes
    ----------
    contributions : list of arrays (n,)
        Of left-out domains.
    cost : float
    within : list of arrays (n,), optional
        Contributions by cross-validation within the domains.
    """

    contributions: Contributions
    cost: float
    within: Contributions | None = None

    @property
    def accuracy(self) -> float:
        """The metric on left-out domains in percent; all domains weigh alike."""
        return _percent(self.contributions)

    @property
    def accuracy_within(self) -> float | None:
        """The metric within the domains in percent; all domains weigh alike."""
        return None if self.within is None else _percent(self.within)


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
    pool = estimates["pool"]
    better = [
        name
        for name, each in estimates.items()
        if is_better(each, pool) and _is_beyond_chance(each, pool)
    ]
    best = max(better, key=lambda name: estimates[name].accuracy, default="pool")
    single = estimates.get("single")
    if single is not None and is_much_worse(estimates[best], single):
        best = best if is_much_worse(single, estimates[best]) else "single"
    close = [name for name, e in estimates.items() if is_as_accurate(e, estimates[best])]
    return min(close, key=lambda name: (estimates[name].cost, name != best))


def is_better(one: Estimate, other: Estimate) -> bool:
    """Whether one way is more accurate than another by more than domains differ.

    With one domain it never is.
    """
    gains = _gains(one.contributions, other.contributions)
    if len(gains) < 2 or _within_gain(one, other) < -_ROUNDING:
        return False
    error = student.ppf(_LEVEL, len(gains) - 1) * gains.std(ddof=1) / math.sqrt(len(gains))
    return bool(gains.mean() > error + _ROUNDING)


def _is_beyond_chance(one: Estimate, other: Estimate) -> bool:
    """Whether the gain on left-out domains is more than its standard errors, over the images."""
    gain, error = _gain_over_images(one, other)
    return gain > _MANY_ERRORS * error


def _gain_over_images(one: Estimate, other: Estimate) -> tuple[float, float]:
    """Mean gain on left-out domains, and its standard error if only the images vary."""
    pairs = zip(one.contributions, other.contributions, strict=True)
    gains = [here.astype(np.float64) - there for here, there in pairs]
    error = math.sqrt(sum(each.var() / len(each) for each in gains)) / len(gains)
    return float(np.mean([each.mean() for each in gains])), error


def is_much_worse(one: Estimate, other: Estimate) -> bool:
    """Whether one way is much worse than another in a left-out domain or within a domain."""
    pairs = zip(one.contributions, other.contributions, strict=True)
    inside = zip(one.within or (), other.within or (), strict=False)  # one may be unknown
    for here, there in chain(pairs, inside):
        loss = there.astype(np.float64) - here
        if loss.mean() > _MANY_ERRORS * loss.std() / math.sqrt(len(loss)) + _ROUNDING:
            return True
    return False


def is_as_accurate(one: Estimate, best: Estimate) -> bool:
    """Whether one way is at least as accurate as the best in every domain, left out and within.

    What is unknown of one way only is not. So many images are needed that a loss larger than
    `_TOLERANCE` is excluded.
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


@dataclass(frozen=True)
class Recommended:
    """The recommended way to combine the models, and its accuracy on unseen domains.

    For other tasks than classification, the main metric takes the place of the accuracy.

    Attributes
    ----------
    choice : str
        "single", "pool", "ensemble" or "selection": decided on all domains. "fine_tuned" if that
        is better on the test domains by more than a standard error between them.
    models : tuple of str
        The models that it uses, those of a pool in the order of their shares.
    average : float
        Accuracy in percent, mean over the test domains. For each of them, the choice was made on
        the other domains only.
    interval : tuple of float, optional
        90 % interval for a single new domain.
    domains : dict of str to float
        Accuracy on each test domain.
    choices : dict of str to str
        What was chosen for each test domain.
    estimates, within : dict of str to float
        What decided: accuracy of each way on left-out domains, and by cross-validation within the
        domains, in percent. They are comparisons; the accuracy to expect is `average`.
    candidates : tuple of str
        The models that it was chosen from; empty if an earlier version wrote it.
    max_models, max_ms : int and float, optional
        The limits within which it was chosen.
    """

    choice: str
    models: tuple[str, ...]
    average: float
    interval: tuple[float, float] | None
    domains: dict[str, float]
    choices: dict[str, str]
    estimates: dict[str, float]
    within: dict[str, float] = field(default_factory=dict)
    candidates: tuple[str, ...] = ()
    max_models: int | None = None
    max_ms: float | None = None

    def __post_init__(self) -> None:
        for choice in (self.choice, *self.choices.values()):
            if choice not in TITLES:
                raise ValueError(f"a choice must be one of {', '.join(TITLES)}, got {choice!r}")
        if self.choices.keys() != self.domains.keys():
            raise ValueError("the choices and the accuracies must be of the same domains")

    @property
    def brief(self) -> str:
        """The choice and its metric, in a few words."""
        choice = shown_choice(self.choice, self.models)
        models = f"{choice} of {count(len(self.models), 'model')}"
        if len(self.models) == 1:
            models = f"{choice} {short_name(self.models[0])}"
        return f"{models}, {self.average:.1f} %"

    @property
    def disagreement(self) -> str:
        """What it means if left-out domains and the domains within disagree; empty if they do not.

        Examples
        --------
        >>> both = {"single": 70.0, "pool": 72.0}, {"single": 91.0, "pool": 88.0}
        >>> best = Recommended("pool", ("a", "b"), 72.0, None, {}, {}, *both)
        >>> print(best.disagreement.split(". ")[0])
        The two estimates disagree: Pool is best on left-out domains (72.0 %), but Single within
        the domains (91.0 %)
        """
        return disagreement(self)

    def __repr__(self) -> str:
        return f"Recommended({self.brief})"

    def to_dict(self) -> dict[str, Any]:
        """Convert to a JSON document."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document


def require_no_oracle(rule: str | None) -> None:
    """Raise an InputError if what is recommended was measured by DomainBed's oracle."""
    if rule == "oracle":
        raise InputError(
            "the evaluation selected heads by the oracle, with labels of the test domains: its "
            "accuracy is no promise; evaluate again without selection='oracle' (--selection oracle)"
        )
