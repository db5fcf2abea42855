"""What was measured on left-out domains when a predictor was fitted: prediction sets, confidence.

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

from oodzoo.combination.decision import (
    left_out_columns,
    left_out_columns_without,
    selections_without,
)
from oodzoo.combination.heads import Heads, choose_pool, left_out_pools
from oodzoo.combination.predictions import Outputs
from oodzoo.features.columns import Columns
from oodzoo.features.source import FeatureSource
from oodzoo.heads.outputs import outputs_of
from oodzoo.predictor.abstention import ConfidencePoint, at_confidence, confidence_curve
from oodzoo.predictor.prediction_sets import (
    SetLevel,
    find_level,
    measure_class_sets,
    measure_intervals,
)
from oodzoo.ranking.constraints import Limits


@dataclass(frozen=True)
class LeftOut:
    """What was measured on left-out domains, for each of them without it.

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
    """Measure prediction sets and confidence on left-out domains; None for several labels.

    Parameters
    ----------
    source : FeatureSource
    choice : {"single", "pool", "ensemble", "selection", "named"}
    columns : Columns
        Those of the fitted head.
    heads : dict of str or None to Heads, optional
        Predictions of the heads of all models for each test domain, and for none; needed for a
        pool.
    limits : Limits, optional
        Of a pool.
    reselect : bool
        Whether to select the columns of a selection again without each domain. Otherwise, as for
        the models of other choices, the labels of the domain helped to choose them.
    device : str, optional
    """
    kind = source.task.kind
    if kind == "multilabel":
        return None

    def by_domain(outputs: Sequence[Outputs]) -> dict[str, NDArray[np.float64]]:
        pairs = zip(source.domains, outputs, strict=True)
        return {domain: outputs_of(kind).values(np.asarray(each)) for domain, each in pairs}

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
    if kind == "regression":
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
        raise ValueError("the heads have no predictions for a test domain")
    return outputs
