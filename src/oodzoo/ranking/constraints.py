"""Constraints on the models to rank: time per image, number of parameters, licence."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from numbers import Real
from typing import Any

from oodzoo.errors import InputError
from oodzoo.features.source import Facts, FeatureSource

_UNITS = {"k": 1e3, "m": 1e6, "b": 1e9}


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
    facts = {model: source.facts(model) for model in source.models}
    rules = _rules(constraints)
    dropped: dict[str, str] = {}
    for rule in rules:
        for model, fact in facts.items():
            if reason := rule.objection(fact):
                dropped.setdefault(model, reason)
    kept = tuple(model for model in facts if model not in dropped)
    if not kept:
        raise InputError(_none_left(rules, facts))
    return kept, dropped


@dataclass(frozen=True)
class _Rule:
    """One constraint."""

    option: str
    """Option of the command line that sets it, with its value."""
    quantity: str
    value: Callable[[Facts], Any]
    accepts: Callable[[Any], bool]
    violated: str
    """Why a model that does not meet it is left out."""
    nearest: Callable[[dict[str, Any]], str]
    """Describes the known values of models of which none meets it."""

    def objection(self, facts: Facts) -> str | None:
        """Return why a model is left out; None if it meets the constraint."""
        value = self.value(facts)
        if value is None:
            return f"{self.quantity} unknown"
        return None if self.accepts(value) else self.violated


def _rules(constraints: Constraints) -> list[_Rule]:
    """Return the constraints that are set."""
    rules = []
    if (ms := constraints.max_ms) is not None:
        slowest = _positive(ms, "max_ms must be a positive number of milliseconds", ms)
        rules.append(
            _Rule(
                option=f"--max-ms {slowest:g}",
                quantity="time per image",
                value=lambda facts: facts.milliseconds,
                accepts=lambda value: bool(value <= slowest),
                violated=f"more than {slowest:g} ms per image",
                nearest=lambda known: "the fastest, {!r}, takes {:.4g} ms".format(*_lowest(known)),
            )
        )
    if (parameters := constraints.max_parameters) is not None:
        number = _in_units(parameters) if isinstance(parameters, str) else parameters
        expected = "max_parameters must be a positive number such as 25e6 or 25M"
        largest = _positive(number, expected, parameters)
        rules.append(
            _Rule(
                option=f"--max-parameters {parameters}",
                quantity="number of parameters",
                value=lambda facts: facts.parameters,
                accepts=lambda value: bool(value <= largest),
                violated=f"more than {parameters} parameters",
                nearest=lambda known: "the smallest, {!r}, has {:,}".format(*_lowest(known)),
            )
        )
    if constraints.licence is not None:
        names = _names(constraints.licence)
        rules.append(
            _Rule(
                option=f"--licence {','.join(names)}",
                quantity="licence",
                value=lambda facts: facts.licence,
                accepts=lambda value: any(
                    fnmatchcase(value.casefold(), name.casefold()) for name in names
                ),
                violated=f"licence other than {' or '.join(names)}",
                nearest=lambda known: f"licences are {', '.join(sorted(set(known.values())))}",
            )
        )
    return rules


def _none_left(rules: Sequence[_Rule], facts: dict[str, Facts]) -> str:
    met = [sum(rule.objection(fact) is None for fact in facts.values()) for rule in rules]
    for rule, number in zip(rules, met, strict=True):
        if number == 0:
            values = {model: rule.value(fact) for model, fact in facts.items()}
            known = {model: value for model, value in values.items() if value is not None}
            why = rule.nearest(known) if known else f"{rule.quantity} unknown"
            return f"no model meets {rule.option}: {why}"
    each = [f"{n} of {len(facts)} meet {rule.option}" for rule, n in zip(rules, met, strict=True)]
    return f"no model meets all constraints: {', '.join(each)}"


def _lowest(values: dict[str, float]) -> tuple[str, float]:
    return min(values.items(), key=lambda item: (item[1], item[0]))


def _in_units(text: str) -> float:
    """Read a number with a unit, such as 25M; nan if it is not one."""
    unit = _UNITS.get(text.strip()[-1:].lower())
    try:
        return float(text) if unit is None else float(text.strip()[:-1]) * unit
    except ValueError:
        return math.nan


def _positive(value: object, expected: str, received: object) -> float:
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value <= 0:  # type: ignore[arg-type, operator]
        raise InputError(f"{expected}, got {received!r}")
    return float(value)  # type: ignore[arg-type]


def _names(licence: str | Sequence[str]) -> list[str]:
    parts = licence.split(",") if isinstance(licence, str) else list(licence)
    names = [part.strip() if isinstance(part, str) else "" for part in parts]
    if not names or not all(names):
        raise InputError(
            "licence must be names or wildcards such as 'mit' or 'cc-by-*', separated by commas, "
            f"got {licence!r}"
        )
    return names
