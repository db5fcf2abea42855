r"""Agreement of scores with accuracy: rank correlations, bootstrap intervals, statistical ties.

On each held-out domain, the models are ordered by a score and by their accuracy there, which gives
a rank correlation and a regret. Both are averaged over held-out domains. Bootstrap resamples are of
models; the held-out domains are fixed, and one resample of models serves all of them.

Kendall's tau and the weighted tau of Vigna (A Weighted Correlation Index for Rankings with Ties,
WWW 2015), as ``scipy.stats.kendalltau`` and ``scipy.stats.weightedtau`` define them:

.. math:: \tau = \frac{\langle x, y\rangle}{\sqrt{\langle x, x\rangle\langle y, y\rangle}},\qquad
   \langle x, y\rangle = \sum_{i,j} \operatorname{sign}(x_i-x_j)\operatorname{sign}(y_i-y_j)\,
   (w_i + w_j),

with :math:`w_i = 1` for Kendall's tau and :math:`w_i = 1/(1+r_i)` for the weighted tau, where
:math:`r_i` is the rank of model i from the top, by x and then y; the result is averaged with that
for the rank by y and then x. The best models have the largest weights.

A bootstrap resample is given by the number of times each model was drawn. Copies of a model are
adjacent in every order and tied with each other, so the models are sorted once and all resamples
are computed by one matrix product.

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

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oodzoo.ranking.intervals import CONFIDENCE

Kind = Literal["weighted_tau", "tau"]
Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Pair = tuple[str, str]


def correlation(kind: Kind, x: ArrayLike, y: ArrayLike) -> float | None:
    """Compute a rank correlation; None if all values of x or of y are tied.

    Examples
    --------
    >>> correlation("tau", [1, 2, 3, 4], [10, 20, 40, 30])
    0.6666666666666666
    >>> correlation("tau", [1, 1, 1], [10, 20, 40]) is None
    True
    """
    value = resampled(kind, x, y, np.ones((1, np.size(x)), np.int64))[0]
    return float(value) if np.isfinite(value) else None


def resampled(kind: Kind, x: ArrayLike, y: ArrayLike, counts: Counts) -> Floats:
    """Compute a rank correlation of x and y (n,) in each of B bootstrap resamples, (B,).

    `counts` (B, n) is how often each model was drawn. NaN where all models drawn are tied.
    """
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if kind == "tau":
        return _ratio(x, y, counts.astype(np.float64), counts)
    return (
        _ratio(x, y, _hyperbolic(np.lexsort((y, x))[::-1], counts), counts)
        + _ratio(x, y, _hyperbolic(np.lexsort((x, y))[::-1], counts), counts)
    ) / 2


def _hyperbolic(order: NDArray[np.intp], counts: Counts) -> Floats:
    """Sum of 1/(1 + rank) over the copies of each model."""
    ends = counts[:, order].cumsum(axis=1)
    most = int(ends[:, -1].max(initial=0)) if len(order) else 0
    sums = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, most + 1))])
    weights = np.empty(counts.shape)
    weights[:, order] = np.diff(sums[ends], axis=1, prepend=0.0)
    return weights


def _ratio(x: Floats, y: Floats, weights: Floats, counts: Counts) -> Floats:
    in_x, in_y = (np.sign(z[:, None] - z[None, :]) for z in (x, y))

    def product(signs: Floats) -> Floats:
        total: Floats = ((weights @ signs) * counts).sum(axis=1)
        return total

    of_x = product(in_x * in_x)
    # usually the same, as no two models are tied
    of_y = of_x if np.array_equal(in_x == 0, in_y == 0) else product(in_y * in_y)
    scale = np.sqrt(of_x * of_y)
    ratio = np.full(len(counts), np.nan)
    np.divide(product(in_x * in_y), scale, out=ratio, where=scale > 0)
    clipped: Floats = np.clip(ratio, -1.0, 1.0)  # rounding errors
    return clipped


def draw_counts(models: Sequence[str], resamples: int, seed: int) -> Counts:
    """Draw bootstrap resamples: how often each model is drawn, with replacement.

    The same models give the same resamples for any data set, so that comparisons are paired.
    """
    names = hashlib.sha256("\n".join(models).encode()).digest()
    rng = np.random.default_rng([seed, int.from_bytes(names[:8], "big")])
    counts: Counts = rng.multinomial(len(models), np.full(len(models), 1 / len(models)), resamples)
    return counts


def interval(draws: Floats) -> tuple[float, float] | None:
    """Return the central 90 % interval of resampled values; None if none is finite."""
    draws = draws[np.isfinite(draws)]
    if not len(draws):
        return None
    low, high = np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def mean_of_draws(draws: Sequence[Floats]) -> Floats:
    """Average resampled correlations over tests; tests without any order are left out."""
    ordered = [each for each in draws if np.isfinite(each).any()]
    if not ordered:
        return np.full(len(draws[0]), np.nan)
    mean: Floats = np.mean(ordered, axis=0)
    return mean


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


Values = Mapping[str, float | None]
"""Value of a score for each model; None if the model has none."""


@dataclass(frozen=True)
class Agreement:
    """How well a score orders the models by accuracy.

    Attributes
    ----------
    regret : float or None
        Percentage points of accuracy between the best model of all and the top model under the
        score (the mean of several that are tied); None if no model has the score.
    weighted_tau, tau : float or None
        None if all models have the same score or the same accuracy.
    """

    regret: float | None = None
    weighted_tau: float | None = None
    tau: float | None = None


@dataclass(frozen=True)
class UnseenDomain:
    """Accuracy of the models on one held-out domain, and the scores that were computed for it.

    A model that lacks a score lacks it on every held-out domain.
    """

    accuracy: Mapping[str, float]
    values: Mapping[str, Values]


def agreement(accuracy: Mapping[str, float], values: Values) -> Agreement:
    """Compute the agreement of one score with accuracy, on the models that have the score."""
    models = tuple(model for model in accuracy if values.get(model) is not None)
    return Agreement(
        _regret(accuracy, values),
        _correlation("weighted_tau", accuracy, values, models),
        _correlation("tau", accuracy, values, models),
    )


def mean_agreement(each: Sequence[Agreement]) -> Agreement:
    """Average over held-out domains; those where a value is undefined are left out of its mean."""
    return Agreement(
        mean_of([one.regret for one in each]),
        mean_of([one.weighted_tau for one in each]),
        mean_of([one.tau for one in each]),
    )


def mean_of(values: Sequence[float | None]) -> float | None:
    """Average the values that are not None; None if there are none."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


class Resampled:
    """Rank correlations of scores in bootstrap resamples of the models."""

    def __init__(self, tests: Sequence[UnseenDomain], resamples: int, seed: int) -> None:
        self._tests = tests
        self._models = tuple(tests[0].accuracy)
        self._counts = draw_counts(self._models, resamples, seed)
        self._known: dict[tuple[Kind, str, tuple[str, ...]], NDArray[np.float64]] = {}

    def models_with(self, *scores: str) -> tuple[str, ...]:
        """Return the models that have all of some scores."""
        some = self._tests[0].values
        return tuple(m for m in self._models if all(some[s].get(m) is not None for s in scores))

    def correlation(self, score: str, models: Sequence[str]) -> float | None:
        """Compute the weighted tau of a score on some models, averaged over held-out domains."""
        return mean_of(
            [
                _correlation("weighted_tau", test.accuracy, test.values[score], models)
                for test in self._tests
            ]
        )

    def draws(self, kind: Kind, score: str, models: Sequence[str]) -> NDArray[np.float64]:
        """Compute the mean correlation of a score on some models, in each resample."""
        key = (kind, score, tuple(models))
        if key not in self._known:
            counts = self._counts[:, [self._models.index(model) for model in models]]
            self._known[key] = mean_of_draws(
                [
                    resampled(kind, *_arrays(test.accuracy, test.values[score], models), counts)
                    for test in self._tests
                ]
            )
        return self._known[key]

    def difference(self, one: str, two: str) -> Difference | None:
        """Compare two scores on the models that have both; None if either has no order there."""
        models = self.models_with(one, two)
        first, second = self.correlation(one, models), self.correlation(two, models)
        if first is None or second is None:
            return None
        draws = self.draws("weighted_tau", one, models) - self.draws("weighted_tau", two, models)
        return Difference(first - second, draws) if np.isfinite(draws).any() else None


def _correlation(
    kind: Kind, accuracy: Mapping[str, float], values: Values, models: Sequence[str]
) -> float | None:
    return correlation(kind, *_arrays(accuracy, values, models))


def _arrays(
    accuracy: Mapping[str, float], values: Values, models: Sequence[str]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Score and accuracy of some models."""
    score = np.array([values[model] for model in models], np.float64)
    return score, np.array([accuracy[model] for model in models], np.float64)


def _regret(accuracy: Mapping[str, float], values: Values) -> float | None:
    known = {model: value for model, value in values.items() if value is not None}
    if not known:
        return None
    first = max(known.values())
    chosen = [accuracy[model] for model, value in known.items() if value == first]
    return float(max(accuracy.values()) - np.mean(chosen))
