"""Everything that is decided about the combination of models on some training domains.

The accuracy of each combination, or another metric (:mod:`oodzoo.tasks`), is
estimated on each training domain, by heads that were trained without it, and by cross-validation
within the domains:

- single: the model with the highest likelihood in the other domains;
- pool: the pool chosen in the other domains;
- ensemble: the best models of the ranking;
- selection: as many features as are selected, ordered without the held-out domain; on held-out
  domains only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.combining.one_head import left_out_columns, left_out_singles, selections_without
from oodzoo.combining.pool_weights import Pool, choose_pool, left_out_pools
from oodzoo.combining.predictions import Heads, Outputs, Pooled
from oodzoo.combining.selection import select_features
from oodzoo.combining.verdict import Contributions, Estimate, recommend
from oodzoo.core.options import Limits, total_cost
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.features import FeatureSource
from oodzoo.tasks import Task


@dataclass(frozen=True)
class Decision:
    """What was decided on some training domains.

    Attributes
    ----------
    best : str
        The first model of the ranking that is within the limits.
    pool : Pool
    ensemble, selection : Columns
        All features of the best models, and the features selected from all models.
    estimates : dict of str to Estimate
        Of each combination that is within the limits.
    recommended : str
        One of them.
    """

    best: str
    pool: Pool
    ensemble: Columns
    selection: Columns
    estimates: dict[str, Estimate]
    recommended: str

    def models(self, choice: str) -> tuple[str, ...]:
        """The models that a combination uses."""
        return {
            "single": (self.best,),
            "pool": self.pool.models,
            "ensemble": self.ensemble.models,
            "selection": self.selection.models,
        }[choice]


def decide(
    training: FeatureSource,
    order: Sequence[str],
    heads: Heads,
    *,
    top_k: int,
    limits: Limits | None = None,
    device: str | None = None,
) -> Decision:
    """Decide how to combine the models.

    Parameters
    ----------
    training : FeatureSource
        The training domains only.
    order : sequence of str
        The models, the best of the ranking first.
    heads : Heads
        Predictions for the training domains.
    top_k : int
        Number of models of the ensemble.
    limits : Limits, optional
    device : str, optional
        PyTorch device; NumPy if None.
    """
    limits = limits or Limits()
    pool = choose_pool(heads, limits)  # an error if no model is within the limits
    best = first_within(order, heads, limits)
    ensemble = Columns.all_of(training, order[:top_k])
    selection = select_features(training, device=device).columns
    estimates = _of_heads(training, best, pool, heads, limits)
    estimates |= _of_columns(training, ensemble, selection, heads, limits, device)
    return Decision(
        best,
        pool,
        ensemble,
        selection,
        estimates,
        recommend(estimates, usual="pool", simple="single"),
    )


class Way(NamedTuple):
    """A combination that was estimated before."""

    models: tuple[str, ...]
    contributions: Contributions
    within: Contributions | None
    """As in :class:`~oodzoo.combining.verdict.Estimate`."""


class LimitedDecision(NamedTuple):
    """What is decided within other limits."""

    best: str
    pool: Pool
    recommended: str


def decide_within(
    source: FeatureSource,
    order: Sequence[str],
    heads: Heads,
    limits: Limits,
    others: Mapping[str, Way],
) -> LimitedDecision:
    """Decide again within other limits, without training a head.

    Parameters
    ----------
    source, order, heads, limits
        As for :func:`decide`; of `source`, only the cost of the models is used.
    others : dict of str to Way
        What was estimated for "ensemble" and "selection"; they are candidates if they are within
        the limits.
    """
    pool, best = choose_pool(heads, limits), first_within(order, heads, limits)
    cost = _Cost(source)
    estimates = _of_heads(source, best, pool, heads, limits) | {
        name: Estimate(way.contributions, cost(way.models), way.within)
        for name, way in others.items()
        if limits.allow(way.models, heads.milliseconds)
    }
    return LimitedDecision(best, pool, recommend(estimates, usual="pool", simple="single"))


def first_within(order: Sequence[str], heads: Heads, limits: Limits) -> str:
    """Return the first model that is within the limits."""
    return next(model for model in order if limits.allow([model], heads.milliseconds))


def _of_heads(
    source: FeatureSource, best: str, pool: Pool, heads: Heads, limits: Limits
) -> dict[str, Estimate]:
    """Estimate the accuracy of a single model and of a pool."""
    cost, estimate = _Cost(source), partial(_estimate, heads.task, heads.labels)
    return {
        "single": estimate(left_out_singles(heads, limits), cost([best])),
        "pool": estimate(left_out_pools(heads, limits), cost(pool.models)),
    }


def _of_columns(
    training: FeatureSource,
    ensemble: Columns,
    selection: Columns,
    heads: Heads,
    limits: Limits,
    device: str | None,
) -> dict[str, Estimate]:
    """Estimate the accuracy of concatenated features that are within the limits."""
    labels = [training.labels(domain) for domain in training.domains]  # of its own classes
    cost, estimate = _Cost(training), partial(_estimate, training.task, labels)
    estimates = {}
    if limits.allow(ensemble.models, heads.milliseconds):
        found = left_out_columns(training, ensemble, device=device)
        estimates["ensemble"] = estimate(found, cost(ensemble.models))
    if limits.allow(selection.models, heads.milliseconds):
        parts = selections_without(training, len(selection), device)
        found = left_out_columns(training, selection, parts, device=device)
        # these features were selected with the labels of all folds: within would be too high
        found = Pooled(found.out_of_fold, None)
        estimates["selection"] = estimate(found, cost(selection.models))
    return estimates


def _estimate(task: Task, labels: Sequence[NDArray[Any]], found: Pooled, cost: float) -> Estimate:
    """What each sample contributes to the metric, by predictions of both kinds."""

    def contributions(outputs: Sequence[Outputs]) -> list[NDArray[np.float64]]:
        return [task.contributions(here, y) for here, y in zip(outputs, labels, strict=True)]

    within = None if found.within is None else contributions(found.within)
    return Estimate(contributions(found.out_of_fold), cost, within)


class _Cost:
    """Cost of some models: time per image if known for all of a source, else parameters, else 1."""

    def __init__(self, source: FeatureSource) -> None:
        facts = {model: source.facts(model) for model in source.models}
        self._costs = dict.fromkeys(facts, 1.0)
        for name in ("parameters", "milliseconds"):
            values = {model: getattr(each, name) for model, each in facts.items()}
            if all(value is not None for value in values.values()):
                self._costs = values

    def __call__(self, models: Sequence[str]) -> float:
        return float(total_cost({model: self._costs[model] for model in models}) or 0)
