"""Constraints on models: time per image, number of parameters, licence; and on combinations.

`max_ms` is what a prediction may cost, of one model or of several together: a model that takes
longer alone is left out at once, and a combination may take no longer as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from oodzoo.core.constraints import (
    Rule,
    apply_rules,
    licence_rule,
    lowest,
    parameter_rule,
    positive,
)
from oodzoo.core.errors import InputError
from oodzoo.extraction.source import FeatureSource, total_cost, with_models


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
