"""The combinations of models, and the decision which of them to recommend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oodzoo.combining.combination import Chosen, Combination, Training
from oodzoo.combining.one_head import ENSEMBLE, SINGLE
from oodzoo.combining.pool import POOL
from oodzoo.combining.predictions import Outputs
from oodzoo.combining.selection import SELECTION
from oodzoo.combining.verdict import Estimate, recommend
from oodzoo.core.errors import InputError
from oodzoo.core.events import part, tracked
from oodzoo.core.limits import total_cost
from oodzoo.extraction.features import FeatureSource

_COMBINATIONS = (
    SINGLE,
    POOL,
    ENSEMBLE,
    SELECTION,
)

COMBINATIONS: dict[str, Combination] = {each.name: each for each in _COMBINATIONS}
"""All combinations, by name; the order is that of tables."""


def require_choice(choice: str) -> None:
    """Raise an InputError unless a choice is known."""
    if choice not in ("auto", *COMBINATIONS):
        names = ", ".join(["auto", *COMBINATIONS])
        raise InputError(f"the choice must be one of {names}, got {choice!r}")


@dataclass(frozen=True)
class Decision:
    """What was decided on some training domains.

    Attributes
    ----------
    chosen : dict of str to Chosen
        What each combination uses.
    estimates : dict of str to Estimate
        Of each combination that is within the limits.
    recommended : str
        One of them.
    """

    chosen: dict[str, Chosen]
    estimates: dict[str, Estimate]
    recommended: str


def decide(training: Training) -> Decision:
    """Decide how to combine the models."""
    with part(0.0, 0.5):
        chosen = {
            name: way.choose(training)
            for name, way in tracked(list(COMBINATIONS.items()), weights=_costs(COMBINATIONS))
        }
    with part(0.5, 1.0):
        return _decision(training, chosen, {})


def _costs(names: Iterable[str]) -> list[float]:
    """Expected costs of combinations: most of those that need heads of their own."""
    return [0.1 if COMBINATIONS[name].from_heads else 1.0 for name in names]


def decide_again(training: Training, before: Mapping[str, Estimate]) -> Decision:
    """Decide within narrower limits, without training a head.

    Parameters
    ----------
    training : Training
    before : dict of str to Estimate
        Of combinations that need heads of their own, as they were estimated within wider limits, if
        they are within the narrower ones, too.
    """
    ways = {name: way for name, way in COMBINATIONS.items() if way.from_heads}
    return _decision(training, {n: way.choose(training) for n, way in ways.items()}, before)


def _decision(
    training: Training, chosen: Mapping[str, Chosen], before: Mapping[str, Estimate]
) -> Decision:
    estimates = {
        name: _estimate(COMBINATIONS[name], training, each)
        for name, each in tracked(list(chosen.items()), weights=_costs(chosen))
        if training.allows(each.models)
    }
    estimates |= before
    recommended = recommend(estimates, usual=POOL.name, simple=SINGLE.name)
    return Decision(dict(chosen), estimates, recommended)


def _estimate(way: Combination, training: Training, chosen: Chosen) -> Estimate:
    """What each sample contributes to the metric, by predictions of both kinds."""
    source, found = training.source, way.left_out(training, chosen)
    labels = training.heads.labels  # of all classes; a head on columns has those of its domains
    if not way.from_heads:
        labels = [source.labels(domain) for domain in source.domains]

    def contributions(outputs: Sequence[Outputs]) -> list[NDArray[np.float64]]:
        return [source.task.contributions(each, y) for each, y in zip(outputs, labels, strict=True)]

    within = None if found.within is None else contributions(found.within)
    cost = relative_cost(source, chosen.models)
    return Estimate(contributions(found.out_of_fold), cost, within)


def relative_cost(source: FeatureSource, models: Sequence[str]) -> float:
    """Cost of some models: time per image if known for all of a source, else parameters, else 1."""
    facts = {model: source.facts(model) for model in source.models}
    costs = dict.fromkeys(facts, 1.0)
    for name in ("parameters", "milliseconds"):
        values = {model: getattr(each, name) for model, each in facts.items()}
        if all(value is not None for value in values.values()):
            costs = values
    return float(total_cost({model: costs[model] for model in models}) or 0)
