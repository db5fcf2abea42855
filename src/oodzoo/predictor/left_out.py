"""What was measured on held-out domains when a predictor was fitted: prediction sets, confidence.

The samples of each domain are predicted by heads trained without it, in the way of the fitted
predictor: the pool that the other domains choose; the top model; or one head on columns, those of a
selection selected without the domain. What is measured on a domain are predictions for which the
other domains also chose the regularisation of the heads: of a pool, those that the evaluation
measures. The thresholds of the other domains come from heads that were trained on this one, too,
as the threshold of the predictor comes from heads trained on all domains but one. The evaluation
has computed most of these predictions, and the store keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.combining.one_head import (
    left_out_columns,
    left_out_columns_without,
    selections_without,
)
from oodzoo.combining.pool_weights import choose_pool, left_out_pools
from oodzoo.combining.predictions import Heads, Outputs
from oodzoo.core.errors import InputError
from oodzoo.core.options import Limits
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.features import FeatureSource
from oodzoo.predictor.prediction_sets import (
    SetLevel,
    find_level,
    measure_class_sets,
    measure_intervals,
)

CONFIDENCES = (*(round(0.05 * step, 2) for step in range(20)), 0.99)
"""Where the curve is recorded; 0 keeps all predictions."""


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


def at_confidence(curve: Sequence[ConfidencePoint], confidence: float) -> ConfidencePoint:
    """The recorded point of a confidence, or of the nearest one below it."""
    return max(
        (point for point in curve if point.confidence <= confidence + 1e-9),
        key=lambda point: point.confidence,
    )


def require_confidence(confidence: float) -> None:
    """Raise an InputError unless a confidence is a probability."""
    if not 0 <= confidence <= 1:
        raise InputError(f"the confidence must be from 0 to 1, got {confidence!r}")


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
        return find_level(self.sets, coverage)

    def at_confidence(self, confidence: float) -> ConfidencePoint:
        """What was measured at a confidence, or at the nearest recorded one below it."""
        return at_confidence(self.confidence, confidence)


def measure_left_out(
    source: FeatureSource,
    choice: str,
    columns: Columns,
    *,
    heads: Mapping[str | None, Heads] | None = None,
    limits: Limits | None = None,
    reselect: bool = True,
    device: str | None = None,
) -> LeftOut | None:
    """Measure prediction sets and confidence on held-out domains; None for several labels.

    Parameters
    ----------
    source : FeatureSource
    choice : {"single", "pool", "ensemble", "selection", "named"}
    columns : Columns
        Those of the fitted head.
    heads : dict of str or None to Heads, optional
        Predictions of the heads of all models for each held-out domain, and for none; needed for a
        pool.
    limits : Limits, optional
        Of a pool.
    reselect : bool
        Whether to select the columns of a selection again without each domain. Otherwise, as for
        the models of other choices, the labels of the domain helped to choose them.
    device : str, optional
    """
    task = source.task
    if not task.has_sets:
        return None

    def by_domain(outputs: Sequence[Outputs]) -> dict[str, NDArray[np.float64]]:
        pairs = zip(source.domains, outputs, strict=True)
        return {domain: task.values(np.asarray(each)) for domain, each in pairs}

    labels: dict[str, NDArray[Any]] = {domain: source.labels(domain) for domain in source.domains}
    without: dict[str, dict[str, NDArray[np.float64]]] | None = None
    if choice == "pool":
        if heads is None:
            raise ValueError("a pool needs predictions of heads")
        values = confident = by_domain(left_out_pools(heads[None], limits).out_of_fold)
        if len(heads) > 1:  # with two domains, one cannot choose a pool
            chosen = (choose_pool(heads[domain], limits).test for domain in source.domains)
            confident = by_domain([_known(each) for each in chosen])
            without = {domain: values | {domain: each} for domain, each in confident.items()}
    else:
        parts = None
        if choice == "selection" and reselect:
            parts = selections_without(source, len(columns), device)
        values = by_domain(left_out_columns(source, columns, parts, device=device).out_of_fold)
        each = left_out_columns_without(source, columns, parts, device=device).items()
        without = {domain: by_domain(outputs) for domain, outputs in each}
        confident = {domain: found[domain] for domain, found in without.items()}
    if not task.has_probabilities:
        return LeftOut(measure_intervals(values, labels, without=without))
    sets = measure_class_sets(values, labels, without=without)
    return LeftOut(sets, confidence_curve(confident, labels))


def caveat(choice: str, *, adapted: bool = False) -> str:
    """What was different from use when it was measured, as the end of a sentence; or nothing.

    Examples
    --------
    >>> caveat("single")
    ', with the model that all domains chose, which is optimistic'
    >>> caveat("pool"), caveat("pool", adapted=True)
    ('', ', measured without adapting')
    """
    models = {"single": "the model", "ensemble": "the models"}.get(choice)
    chosen = (
        "" if models is None else f", with {models} that all domains chose, which is optimistic"
    )
    return chosen + (", measured without adapting" if adapted else "")


def _known(outputs: Outputs | None) -> Outputs:
    if outputs is None:
        raise ValueError("the heads have no predictions for a held-out domain")
    return outputs
