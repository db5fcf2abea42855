"""Constraints on models and combinations: time, parameters, licence, number of models.

`max_ms` is what a prediction may cost, of one model or of several together: a model that takes
longer alone is left out at once, and a combination may take no longer as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from oodzoo.core.constraints import (
    Rule,
    apply_rules,
    licence_rule,
    lowest,
    parameter_rule,
    positive,
)
from oodzoo.core.errors import InputError
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.source import FeatureSource, groups_of, total_cost, with_models
from oodzoo.linear.heads.kinds import left_out_metrics


@dataclass(frozen=True)
class Constraints:
    """What a model must meet to be used; None means no constraint.

    Attributes
    ----------
    max_ms : float, optional
        Largest time per image in milliseconds, on the machine of the extraction.
    max_parameters : float or str, optional
        Largest number of parameters: 25e6 or "25M" (K, M, B: thousand, million, billion).
    licence : str or sequence of str, optional
        Names of accepted licences, or wildcards ("cc-by-*"), ignoring case. A string may contain
        several, separated by commas.

    Examples
    --------
    >>> Constraints(max_parameters="25M", licence="mit,apache-*").licence
    'mit,apache-*'
    """

    max_ms: float | None = None
    max_parameters: float | str | None = None
    licence: str | Sequence[str] | None = None

    def __post_init__(self) -> None:
        _rules(self)  # rejects bad values


def apply(
    source: FeatureSource, constraints: Constraints
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the models that meet the constraints, and why the others do not.

    A model is left out, too, if it is unknown whether it meets a constraint.
    """
    return apply_rules({model: source.facts(model) for model in source.models}, _rules(constraints))


def restricted(source: FeatureSource, constraints: Constraints) -> FeatureSource:
    """Return a view of the models that meet the constraints; an InputError if none does."""
    models, left_out = apply(source, constraints)
    return with_models(source, models) if left_out else source


def _rules(constraints: Constraints) -> list[Rule]:
    """Return the constraints that are set."""
    rules = []
    if constraints.max_ms is not None:
        rules.append(_time_rule(constraints.max_ms))
    if constraints.max_parameters is not None:
        rules.append(parameter_rule(constraints.max_parameters))
    if constraints.licence is not None:
        rules.append(licence_rule(constraints.licence))
    return rules


def _time_rule(ms: float) -> Rule:
    slowest = positive(ms, "max_ms must be a positive number of milliseconds", ms)
    return Rule(
        option=f"--max-ms {slowest:g}",
        quantity="time per image",
        value=lambda facts: facts.milliseconds,
        accepts=lambda value: bool(value <= slowest),
        violated=f"more than {slowest:g} ms per image",
        nearest=lambda known: "the fastest, {!r}, takes {:.4g} ms".format(*lowest(known)),
    )


@dataclass(frozen=True)
class Limits:
    """Limits of a combination; None means no limit.

    Attributes
    ----------
    max_models : int, optional
        Largest number of models.
    max_ms : float, optional
        Largest time per image in milliseconds, the sum over the models; layers of one network
        count once, with the slowest of them.
    """

    max_models: int | None = None
    max_ms: float | None = None

    def __post_init__(self) -> None:
        if self.max_models is not None and self.max_models < 1:
            raise InputError(f"max_models must be 1 or more, got {self.max_models}")
        if self.max_ms is not None and not self.max_ms > 0:
            raise InputError(
                f"max_ms must be a positive number of milliseconds, got {self.max_ms!r}"
            )

    def allow(self, models: Sequence[str], milliseconds: Mapping[str, float | None]) -> bool:
        """Whether these models together are within the limits; an unknown time is not."""
        if self.max_models is not None and len(models) > self.max_models:
            return False
        if self.max_ms is None:
            return True
        time = total_cost({model: milliseconds[model] for model in models})
        return time is not None and time <= self.max_ms

    def best(self, order: Sequence[str], milliseconds: Mapping[str, float | None]) -> list[str]:
        """Models that together are within the limits: taken in this order, if they still fit.

        Examples
        --------
        >>> Limits(max_ms=5).best(["a", "b", "c"], {"a": 3.0, "b": 4.0, "c": 2.0})
        ['a', 'c']
        """
        chosen: list[str] = []
        for model in order:
            if self.allow([*chosen, model], milliseconds):
                chosen.append(model)
        return chosen


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
            found = left_out_metrics(training.task.kind, samples, n_outputs, groups)
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
