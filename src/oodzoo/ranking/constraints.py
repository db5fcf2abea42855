"""Models within limits, and the number of models to concatenate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

from oodzoo.core.errors import InputError
from oodzoo.core.limits import ModelLimits, apply_rules
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.features import FeatureSource, groups_of, with_models
from oodzoo.linear.heads.kinds import left_out_metrics


def apply(source: FeatureSource, limits: ModelLimits) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the models that are within the limits, and why the others do not.

    A model is left out, too, if it is unknown whether it is within a limit.
    """
    return apply_rules({model: source.facts(model) for model in source.models}, limits.rules)


def restricted(source: FeatureSource, limits: ModelLimits) -> FeatureSource:
    """Return a view of the models within the limits; an InputError if none does."""
    models, left_out = apply(source, limits)
    return with_models(source, models) if left_out else source


TOP_K = 3
"""Number of concatenated models in the paper."""

AUTO_TOP_K = (1, 3, 5, 7)
"""Numbers of models that "auto" chooses from."""

TopK = int | Sequence[int] | Literal["auto"]
"""A number of models, several, or "auto"."""


def parse_top_k(top_k: TopK | str) -> list[int] | None:
    """Validate numbers of models to concatenate and sort them; None for "auto"."""
    if isinstance(top_k, str) and top_k == "auto":
        return None
    numbers: list[Any] = list(top_k) if isinstance(top_k, Iterable) else [top_k]
    valid = all(isinstance(k, int | np.integer) and k >= 1 for k in numbers)
    if not numbers or not valid or any(isinstance(k, bool) for k in numbers):
        raise InputError(
            "top_k must be a positive integer, several such as (1, 3, 5, 7), or 'auto', "
            f"got {top_k!r}"
        )
    return sorted({int(k) for k in numbers})


def choose_top_k(
    training: FeatureSource, order: Sequence[str], numbers: Sequence[int] = AUTO_TOP_K
) -> int:
    """Return the number of best models with the highest accuracy on held-out training domains.

    Or the highest metric of another task. The smallest one of several that are equally accurate.
    The order of the models and the regularisation of the head are those of all training domains.
    """
    accuracy, n_outputs = {}, len(training.classes)
    for k in numbers:
        if k <= len(order):
            samples = Columns.all_of(training, order[:k]).samples(training, training.domains)
            groups = groups_of(training, training.domains)
            found = left_out_metrics(training.task, samples, n_outputs, groups)
            accuracy[k] = float(np.mean(found))
    return max(accuracy, key=lambda k: (accuracy[k], -k))


def one_top_k(top_k: TopK, source: FeatureSource, order: Sequence[str]) -> int:
    """Return the one number of models to use.

    Of several, and for "auto", it is chosen by :func:`choose_top_k`. Larger numbers than that of
    the models mean all of them.
    """
    numbers = parse_top_k(top_k) or AUTO_TOP_K
    possible = sorted({min(k, len(order)) for k in numbers})
    return possible[0] if len(possible) == 1 else choose_top_k(source, order, possible)
