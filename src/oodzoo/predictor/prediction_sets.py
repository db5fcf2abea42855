r"""What was measured on held-out domains when a predictor was fitted: prediction sets, confidence.

The samples of each domain are predicted by heads trained without it, in the way of the fitted
predictor: the pool that the other domains choose; the top model; or one head on columns, those of a
selection selected without the domain. What is measured on a domain are predictions for which the
other domains also chose the regularisation of the heads: of a pool, those that the evaluation
measures. The thresholds of the other domains come from heads that were trained on this one, too,
as the threshold of the predictor comes from heads trained on all domains but one. The evaluation
has computed most of these predictions, and the store keeps them.

The prediction set of a sample has the classes whose probability is at least a threshold, and
always the most probable one (*least ambiguous* sets [1]_). An interval is the predicted number plus
and minus a half-width. Both are conformal: the threshold is a quantile of scores, minus the
probability of the true class or the absolute error, of samples that the head was not trained on
[2]_.

Here these are the samples of held-out domains, each predicted by a head that was trained without
its domain. All domains weigh alike: of D domains, a sample of one with :math:`n_d` samples has the
weight :math:`1 / (D n_d)`. As in [2]_, one more sample, with a score of infinity and the largest
of the weights, stands for the new one.

That quantile of several domains together covers too few samples of another domain, because domains
differ. So the level of the quantile is raised, until on average over the domains the threshold of
the other domains covers the wanted share of each of them. What this yields is measured again
without the domain: the threshold, raised level included, is that of the other domains.

References
----------
.. [1] Sadinle, Lei, Wasserman: Least ambiguous set-valued classifiers with bounded error levels,
   Journal of the American Statistical Association 114 (2019).
.. [2] Vovk, Gammerman, Shafer: Algorithmic learning in a random world, Springer 2005.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.combining.combination import Chosen, Combination, Training
from oodzoo.combining.predictions import Outputs
from oodzoo.combining.ways import COMBINATIONS
from oodzoo.core.errors import InputError

Floats = NDArray[np.float64]

LEVELS = (0.8, 0.9, 0.95)
"""The coverages that are recorded when a predictor is fitted."""

_STEPS = 30
"""Bisections of the level: it is exact to a billionth."""

CONFIDENCES = (*(round(0.05 * step, 2) for step in range(20)), 0.99)
"""Where the curve is recorded; 0 keeps all predictions."""


@dataclass(frozen=True)
class SetLevel:
    """Prediction sets of one coverage, and what was measured on held-out domains.

    Attributes
    ----------
    level : float
        The wanted coverage, such as 0.9.
    thresholds : tuple of float
        Of classes, the smallest probability of a class in a set. Of numbers, the half-width of the
        interval of each of them.
    coverage : dict of str to float
        Share of the samples of each held-out domain whose set contains the truth, in percent, with
        the threshold of the other domains. Of several numbers, the mean of their shares.
    size : float or None
        Mean number of classes in these sets; domains weigh alike. None for numbers.
    """

    level: float
    thresholds: tuple[float, ...]
    coverage: dict[str, float]
    size: float | None = None

    @property
    def average(self) -> float:
        """Mean coverage of the held-out domains, in percent."""
        return float(np.mean(list(self.coverage.values())))

    @property
    def worst(self) -> tuple[str, float]:
        """The held-out domain with the lowest coverage, and this coverage in percent."""
        return min(self.coverage.items(), key=lambda item: item[1])


@dataclass(frozen=True)
class ConfidencePoint:
    """Held-out domains, if predictions below a confidence are left out.

    Attributes
    ----------
    confidence : float
        Smallest probability of the most probable class, from 0 to 1.
    kept : float
        Share of the samples that are kept, in percent; domains weigh alike.
    accuracy : float or None
        Accuracy of those, in percent: the mean over the domains that have any. None if there are
        none.
    worst : float or None
        The lowest accuracy of one of these domains.
    """

    confidence: float
    kept: float
    accuracy: float | None
    worst: float | None


@dataclass(frozen=True)
class LeftOut:
    """What was measured on held-out domains, for each of them without it.

    Attributes
    ----------
    sets : tuple of SetLevel
        Prediction sets of several coverages; intervals, if numbers are predicted.
    confidence : tuple of ConfidencePoint
        Accuracy of the predictions of at least some confidence; empty for numbers.
    """

    sets: tuple[SetLevel, ...] = ()
    confidence: tuple[ConfidencePoint, ...] = ()

    def at_coverage(self, coverage: float) -> SetLevel:
        """The sets of a coverage; an InputError if it was not recorded."""
        for each in self.sets:
            if abs(each.level - coverage) < 1e-9:
                return each
        known = ", ".join(f"{each.level:g}" for each in self.sets)
        raise InputError(f"the coverage must be one of {known}, got {coverage!r}")

    def at_confidence(self, confidence: float) -> ConfidencePoint:
        """What was measured at a confidence, or at the nearest recorded one below it."""
        return max(
            (point for point in self.confidence if point.confidence <= confidence + 1e-9),
            key=lambda point: point.confidence,
        )


def sets_text(chosen: SetLevel, classes: Sequence[str]) -> str:
    """What prediction sets cover on held-out domains, in words.

    Examples
    --------
    >>> sets_text(SetLevel(0.9, (1.5,), {"photo": 97.0}), ["age"])
    'intervals (age ± 1.5) cover 97.0 % on held-out domains on average (worst domain 97.0 %, photo)'
    """
    domain, worst = chosen.worst
    covered = (
        f"cover {chosen.average:.1f} % on held-out domains on average (worst domain {worst:.1f} %, "
        f"{domain})"
    )
    if chosen.size is not None:
        return f"sets {covered}, {chosen.size:.1f} classes on average"
    pairs = zip(classes, chosen.thresholds, strict=True)
    return f"intervals ({', '.join(f'{name} ± {half:.4g}' for name, half in pairs)}) {covered}"


def caveat(choice: str, *, adapted: bool = False) -> str:
    """What was different from use when it was measured, as the end of a sentence; or nothing.

    Examples
    --------
    >>> caveat("single")
    ', with the model that all domains chose, which is optimistic'
    >>> caveat("pool"), caveat("pool", adapted=True)
    ('', ', measured without adapting')
    """
    known = COMBINATIONS[choice].known_to_all if choice in COMBINATIONS else ""
    chosen = f", with {known} that all domains chose, which is optimistic" if known else ""
    return chosen + (", measured without adapting" if adapted else "")


# --- a fitted predictor --------------------------------------------------------------------------


def measure_left_out(way: Combination, training: Training, chosen: Chosen) -> LeftOut | None:
    """Measure prediction sets and confidence on held-out domains; None for several labels.

    Parameters
    ----------
    way : Combination
    training : Training
    chosen : Chosen
        What the fitted head uses.
    """
    source, task = training.source, training.source.task
    if not task.has_sets:
        return None

    def by_domain(outputs: Sequence[Outputs]) -> dict[str, Floats]:
        pairs = zip(source.domains, outputs, strict=True)
        return {domain: task.values(np.asarray(each)) for domain, each in pairs}

    found = way.for_sets(training, chosen)
    values, without = by_domain(found.values), None
    if found.without is not None:
        without = {domain: by_domain(outputs) for domain, outputs in found.without.items()}
    labels: dict[str, NDArray[Any]] = {domain: source.labels(domain) for domain in source.domains}
    if not task.has_probabilities:
        return LeftOut(measure_intervals(values, labels, without=without))
    sets = measure_class_sets(values, labels, without=without)
    confident = values if without is None else {name: without[name][name] for name in without}
    return LeftOut(sets, confidence_curve(confident, labels))


# --- thresholds ---------------------------------------------------------------------------------


class PooledScores:
    """Scores of several domains, which weigh alike.

    Examples
    --------
    >>> scores = PooledScores([np.array([0.1, 0.2, 0.3]), np.array([0.4])])
    >>> scores.quantile(0.5), scores.quantile(0.9)
    (0.4, inf)
    """

    def __init__(self, scores: Sequence[Floats]) -> None:
        values = np.concatenate(scores)
        each = [np.full(len(some), 1 / (len(scores) * len(some))) for some in scores]
        weights = np.concatenate(each)
        order = np.argsort(values, kind="stable")
        self._values = values[order]
        self._shares = np.cumsum(weights[order]) / (1 + weights.max())

    def quantile(self, level: float) -> float:
        """The smallest score with at least this share of all weights at or below it."""
        at = int(np.searchsorted(self._shares, level - 1e-12))  # sums are rounded
        return float(self._values[at]) if at < len(self._values) else np.inf


def threshold(scores: Sequence[Floats], level: float) -> float:
    """The score up to which samples of another domain are covered, at this level on average.

    Parameters
    ----------
    scores : sequence of arrays (n,)
        Of each domain; smaller is better.
    level : float

    Returns
    -------
    float
        Infinity if there are too few samples for this level.
    """
    pooled = PooledScores(scores)
    if len(scores) == 1:
        return pooled.quantile(level)
    others = [PooledScores([*scores[:at], *scores[at + 1 :]]) for at in range(len(scores))]

    def coverage(raised: float) -> float:
        pairs = zip(scores, others, strict=True)
        return float(np.mean([np.mean(here <= rest.quantile(raised)) for here, rest in pairs]))

    low, high = level, 1.0  # at 1, everything is covered
    if coverage(level) >= level:
        return pooled.quantile(level)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if coverage(middle) >= level else (middle, high)
    return pooled.quantile(high)


# --- sets and intervals --------------------------------------------------------------------------


def class_scores(probabilities: Floats, labels: NDArray[np.int64]) -> Floats:
    """Scores (n,) of the true classes: minus their probabilities."""
    scores: Floats = -probabilities[np.arange(len(labels)), labels]
    return scores


def class_sets(probabilities: Floats, least: float) -> NDArray[np.bool_]:
    """Which classes (n, C) are in the sets: those of this probability, and the most probable one.

    Examples
    --------
    >>> class_sets(np.array([[0.6, 0.3, 0.1], [0.2, 0.4, 0.4]]), 0.3).tolist()
    [[True, True, False], [False, True, True]]
    >>> class_sets(np.array([[0.6, 0.3, 0.1]]), 0.9).tolist()
    [[True, False, False]]
    """
    sets: NDArray[np.bool_] = probabilities >= least
    sets[np.arange(len(sets)), probabilities.argmax(axis=1)] = True
    return sets


def set_coverage(sets: NDArray[np.bool_], labels: NDArray[np.int64]) -> float:
    """Share of the samples whose set contains their class, in percent."""
    return 100 * float(sets[np.arange(len(labels)), labels].mean())


def measure_class_sets(
    probabilities: Mapping[str, Floats],
    labels: Mapping[str, NDArray[np.int64]],
    levels: Sequence[float] = LEVELS,
    without: Mapping[str, Mapping[str, Floats]] | None = None,
) -> tuple[SetLevel, ...]:
    """Find the thresholds of sets of classes, and measure them on held-out domains.

    Parameters
    ----------
    probabilities : dict of str to array (n, C)
        Of the samples of each domain, by a head that was trained without it.
    labels : dict of str to array (n,)
        Their classes, numbered from 0.
    levels : sequence of float
    without : dict of str to dict, optional
        For each domain, the same probabilities by heads whose settings were chosen without it.
    """
    scores = [class_scores(each, labels[name]) for name, each in probabilities.items()]
    result = []
    for level in levels:
        coverage, sizes = {}, []
        for name in probabilities:
            found = probabilities if without is None else without[name]
            rest = [class_scores(p, labels[other]) for other, p in found.items() if other != name]
            sets = class_sets(found[name], _least(threshold(rest, level)))
            coverage[name] = set_coverage(sets, labels[name])
            sizes.append(sets.sum(axis=1).mean())
        least = _least(threshold(scores, level))
        result.append(SetLevel(level, (least,), coverage, float(np.mean(sizes))))
    return tuple(result)


def measure_intervals(
    predicted: Mapping[str, Floats],
    numbers: Mapping[str, Floats],
    levels: Sequence[float] = LEVELS,
    without: Mapping[str, Mapping[str, Floats]] | None = None,
) -> tuple[SetLevel, ...]:
    """Find the half-widths of intervals of numbers, and measure them on held-out domains.

    `predicted` and `numbers` are (n, C), by domain; `without` is as in :func:`measure_class_sets`.
    Each number has an interval of its own. A level that there are too few samples for is left out.
    """
    errors = [np.abs(each - numbers[name]) for name, each in predicted.items()]
    result = []
    for level in levels:
        widths = _half_widths(errors, level)
        if not np.isfinite(widths).all():
            continue
        coverage = {}
        for name in predicted:
            found = predicted if without is None else without[name]
            rest = [np.abs(x - numbers[other]) for other, x in found.items() if other != name]
            here = np.abs(found[name] - numbers[name])
            coverage[name] = 100 * float(np.mean(here <= _half_widths(rest, level)))
        result.append(SetLevel(level, tuple(widths.tolist()), coverage))
    return tuple(result)


def _least(score: float) -> float:
    """The smallest probability of a class in a set; 0 for all classes."""
    return 0.0 if score == np.inf else -score


def _half_widths(errors: Sequence[Floats], level: float) -> Floats:
    columns = range(errors[0].shape[1])
    return np.array([threshold([each[:, at] for each in errors], level) for at in columns])


def set_of(values: Floats, classes: NDArray[Any], chosen: SetLevel) -> tuple[Any, ...]:
    """The set of one sample from its probabilities (C,), the most probable class first.

    Examples
    --------
    >>> chosen = SetLevel(0.9, (0.2,), {"photo": 91.0})
    >>> set_of(np.array([0.3, 0.1, 0.6]), np.array(["cat", "dog", "fox"]), chosen)
    ('fox', 'cat')
    """
    (members,) = class_sets(values[None], *chosen.thresholds)
    order = np.argsort(-values, kind="stable")
    return tuple(classes[order[members[order]]].tolist())


def intervals_of(values: Floats, chosen: SetLevel) -> tuple[tuple[float, float], ...]:
    """The interval of each number (C,) of one sample.

    Examples
    --------
    >>> intervals_of(np.array([10.0]), SetLevel(0.9, (1.5,), {"photo": 91.0}))
    ((8.5, 11.5),)
    """
    pairs = zip(values.tolist(), chosen.thresholds, strict=True)
    return tuple((value - half, value + half) for value, half in pairs)


# --- confidence ---------------------------------------------------------------------------------


def confidence_curve(
    probabilities: Mapping[str, NDArray[np.float64]],
    labels: Mapping[str, NDArray[np.int64]],
    confidences: Sequence[float] = CONFIDENCES,
) -> tuple[ConfidencePoint, ...]:
    """Measure accuracy and share of the samples of held-out domains that are kept.

    Parameters
    ----------
    probabilities : dict of str to array (n, C)
        Of the samples of each domain, by a head that was trained without it.
    labels : dict of str to array (n,)
        Their classes, numbered from 0.
    confidences : sequence of float

    Examples
    --------
    >>> probabilities = {"photo": np.array([[0.9, 0.1], [0.4, 0.6]])}
    >>> confidence_curve(probabilities, {"photo": np.array([0, 0])}, [0.65])
    (ConfidencePoint(confidence=0.65, kept=50.0, accuracy=100.0, worst=100.0),)
    """
    confident = {name: each.max(axis=1) for name, each in probabilities.items()}
    correct = {name: each.argmax(axis=1) == labels[name] for name, each in probabilities.items()}
    points = []
    for confidence in confidences:
        kept = {name: each >= confidence for name, each in confident.items()}
        found = [100 * correct[name][each].mean() for name, each in kept.items() if each.any()]
        points.append(
            ConfidencePoint(
                confidence,
                100 * float(np.mean([each.mean() for each in kept.values()])),
                float(np.mean(found)) if found else None,
                float(min(found)) if found else None,
            )
        )
    return tuple(points)
