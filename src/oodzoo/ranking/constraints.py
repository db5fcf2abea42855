"""Constraints on the models to rank: time per image, number of parameters, licence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oodzoo._constraints import Rule, apply_rules, licence_rule, lowest, parameter_rule, positive
from oodzoo.features.source import FeatureSource


@dataclass(frozen=True)
class Constraints:
    """What a model must meet to be ranked; None means no constraint.

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
