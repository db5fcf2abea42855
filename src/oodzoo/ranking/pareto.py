"""The Pareto front: models for which no other is at least as accurate and cheaper."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oodzoo.features.source import Facts


def costs(facts: Mapping[str, Facts]) -> dict[str, float | None]:
    """Return the cost of each model: milliseconds per image, or the number of parameters.

    The one that is known for more models is used; milliseconds, if both are known for as many.
    """
    milliseconds: dict[str, float | None] = {m: f.milliseconds for m, f in facts.items()}
    parameters: dict[str, float | None] = {m: f.parameters for m, f in facts.items()}
    return max(milliseconds, parameters, key=lambda cost: sum(c is not None for c in cost.values()))


def pareto_front(
    accuracy: Mapping[str, float], cost: Mapping[str, float | None]
) -> tuple[str, ...]:
    """Return the Pareto-optimal models, cheapest first.

    A model is Pareto-optimal unless another one is at least as accurate and at most as expensive,
    and differs from it in one of the two. A model of unknown cost is not Pareto-optimal, and does
    not affect the others.

    Examples
    --------
    >>> accuracy = {"tiny": 60.0, "small": 70.0, "slow": 70.0, "large": 80.0, "other": 90.0}
    >>> cost = {"tiny": 1.0, "small": 2.0, "slow": 9.0, "large": 20.0, "other": None}
    >>> pareto_front(accuracy, cost)
    ('tiny', 'small', 'large')
    """
    known = [(c, -accuracy[model], model) for model, c in cost.items() if c is not None]
    front: list[str] = []
    best = (math.inf, -math.inf)  # cost and accuracy of the last model of the front
    for price, minus, model in sorted(known):
        if -minus > best[1] or (price, -minus) == best:
            front.append(model)
            best = (price, -minus)
    return tuple(front)
