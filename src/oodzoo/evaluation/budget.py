"""What would be recommended with less time per image, and how accurate it is.

For each test domain, it is decided again within the limit, on the training domains only, from the
predictions that are there: a single model or a pool, or the ensemble and the selection of the
evaluation if they are within the limit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from oodzoo.combination.decision import Decision, Way, decide_within
from oodzoo.combination.heads import Heads
from oodzoo.evaluation.folds import Fold
from oodzoo.evaluation.learning_curve import metric_of_all, percent
from oodzoo.features.source import FeatureSource, total_cost
from oodzoo.ranking.constraints import Limits

SHARES = (1 / 2, 1 / 10)
"""Of the time per image of what is recommended."""


class Limited(NamedTuple):
    """What is recommended within a limit.

    Attributes
    ----------
    choice : str
    models : tuple of str
    metric : float or None
        Main metric in percent on the test domain, if there is one.
    """

    choice: str
    models: tuple[str, ...]
    metric: float | None = None


def milliseconds_of(source: FeatureSource, models: Sequence[str]) -> float | None:
    """Time per image of some models together; None if it is unknown."""
    return total_cost({model: source.facts(model).milliseconds for model in models})


def budgets_of(source: FeatureSource, models: Sequence[str]) -> list[float]:
    """Shares of the time per image of some models in which at least one model of all can run.

    Two digits are enough for an option; none if the time of a model is unknown.
    """
    time = milliseconds_of(source, models)
    each = [source.facts(model).milliseconds for model in source.models]
    known = [ms for ms in each if ms is not None]
    if not time or len(known) < len(each):
        return []
    limits = [float(f"{share * time:.2g}") for share in SHARES]
    return [limit for limit in limits if min(known) <= limit < time]


def class_texts(source: FeatureSource) -> dict[str, str]:
    """Digests of the class embeddings of the models that have some: heads depend on them, too."""
    found = {model: source.class_embeddings(model) for model in source.models}
    return {model: each.digest for model, each in found.items() if each is not None}


def limited_final(
    source: FeatureSource,
    order: Sequence[str],
    heads: Heads,
    limits: Limits,
    final: Decision,
) -> Limited:
    """Decide within limits on all domains; `final` is what was decided without them."""
    ways: dict[str, Way] = {
        name: Way(
            final.models(name), final.estimates[name].contributions, final.estimates[name].within
        )
        for name in ("ensemble", "selection")
        if name in final.estimates
    }
    found = decide_within(source, order, heads, limits, ways)
    models = {"single": (found.best,), "pool": found.pool.models}
    return Limited(
        found.recommended, models.get(found.recommended) or final.models(found.recommended)
    )


def limited_fold(
    source: FeatureSource,
    test: str,
    order: Sequence[str],
    heads: Heads,
    limits: Limits,
    fold: Fold,
) -> Limited:
    """Decide within limits without a test domain, and measure on it; kept in a store.

    Parameters
    ----------
    source : FeatureSource
    test : str
    order : sequence of str
        The models, the best without the test domain first.
    heads : Heads
        For the test domain.
    limits : Limits
    fold : Fold
        What was found without the limits.
    """
    cells = {"selection": fold.cells["selection"], "ensemble": fold.cells[f"ensemble {fold.top_k}"]}
    ways = {
        name: Way(cells[name].models, left_out, within or None)
        for name, (left_out, within) in fold.estimates.items()
    }

    def compute() -> dict[str, np.ndarray]:
        found = decide_within(source, order, heads, limits, ways)
        if found.recommended == "single":
            limited = Limited(
                "single", (found.best,), metric_of_all(source, heads, test, found.best)
            )
        elif found.recommended == "pool":
            if found.pool.test is None:
                raise ValueError("the pool has no predictions for the test domain")
            metric = percent(source, found.pool.test, source.labels(test))
            limited = Limited("pool", found.pool.models, metric)
        else:
            cell = cells[found.recommended]
            limited = Limited(found.recommended, cell.models, cell.accuracy)
        return {"limited": np.array(json.dumps(limited))}

    costs = [source.facts(model).milliseconds for model in source.models]
    known = {name: [list(way.models), cells[name].accuracy] for name, way in ways.items()}
    key: list[Any] = [test, list(order), limits.max_models, limits.max_ms, costs, known]
    if texts := class_texts(source):
        key.append(texts)
    arrays = source.cached("budgets", source.models, compute, settings=json.dumps(key))
    choice, models, metric = json.loads(str(arrays["limited"]))
    return Limited(choice, tuple(models), metric)
