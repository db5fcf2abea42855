"""Constraints on models: number of parameters, licence, and what else a caller adds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from numbers import Real
from typing import Any

from oodzoo.core.errors import InputError

_UNITS = {"k": 1e3, "m": 1e6, "b": 1e9}


@dataclass(frozen=True)
class Rule:
    """One constraint on a model, given what is known about it."""

    option: str
    """Option of the command line that sets it, with its value."""
    quantity: str
    value: Callable[[Any], Any]
    """The value of a model, from its facts; None if it is unknown."""
    accepts: Callable[[Any], bool]
    violated: str
    """Why a model that does not meet it is left out."""
    nearest: Callable[[dict[str, Any]], str]
    """Describes the known values of models of which none meets it."""

    def objection(self, facts: Any) -> str | None:
        """Return why a model is left out; None if it meets the constraint."""
        value = self.value(facts)
        if value is None:
            return self.unknown
        return None if self.accepts(value) else self.violated

    @property
    def unknown(self) -> str:
        """Why a model of unknown value is left out."""
        return f"{self.quantity} unknown"


def parameter_rule(largest: float | str) -> Rule:
    """Accept models of at most this many parameters, 25e6 or "25M"; facts have `parameters`."""
    number = _in_units(largest) if isinstance(largest, str) else largest
    expected = "max_parameters must be a positive number such as 25e6 or 25M"
    most = positive(number, expected, largest)
    return Rule(
        option=f"--max-parameters {largest}",
        quantity="number of parameters",
        value=lambda facts: facts.parameters,
        accepts=lambda value: bool(value <= most),
        violated=f"more than {largest} parameters",
        nearest=lambda known: "the smallest, {!r}, has {:,}".format(*lowest(known)),
    )


def licence_rule(licence: str | Sequence[str]) -> Rule:
    """Accept models with one of these licences, names or wildcards; facts have `licence`."""
    names = _names(licence)
    return Rule(
        option=f"--licence {','.join(names)}",
        quantity="licence",
        value=lambda facts: facts.licence,
        accepts=lambda value: any(fnmatchcase(value.casefold(), name.casefold()) for name in names),
        violated=f"licence other than {' or '.join(names)}",
        nearest=lambda known: f"licences are {', '.join(sorted(set(known.values())))}",
    )


def apply_rules(
    facts: Mapping[str, Any], rules: Sequence[Rule]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the models that meet all rules, and why the others do not.

    A model is left out, too, if it is unknown whether it meets a rule. Values that a rule does
    not need are not asked for: what an earlier rule leaves out is not shown to later ones.
    """
    dropped: dict[str, str] = {}
    for rule in rules:
        for model, fact in facts.items():
            if model not in dropped and (reason := rule.objection(fact)):
                dropped[model] = reason
    kept = tuple(model for model in facts if model not in dropped)
    if facts and not kept:
        raise InputError(_none_left(rules, facts))
    return kept, dropped


def _none_left(rules: Sequence[Rule], facts: Mapping[str, Any]) -> str:
    each = []
    for rule in rules:
        met = sum(rule.objection(fact) is None for fact in facts.values())
        if met == 0:
            values = {model: rule.value(fact) for model, fact in facts.items()}
            known = {model: value for model, value in values.items() if value is not None}
            why = rule.nearest(known) if known else rule.unknown
            return f"no model meets {rule.option}: {why}"
        each.append(f"{met} of {len(facts)} meet {rule.option}")
    return f"no model meets all constraints: {', '.join(each)}"


def lowest(values: dict[str, float]) -> tuple[str, float]:
    """The model with the lowest value; the first by name, if there are several."""
    return min(values.items(), key=lambda item: (item[1], item[0]))


def positive(value: object, expected: str, received: object) -> float:
    """Return a positive finite number; anything else is an error that says what was expected."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value <= 0:  # type: ignore[arg-type, operator]
        raise InputError(f"{expected}, got {received!r}")
    return float(value)  # type: ignore[arg-type]


def _in_units(text: str) -> float:
    """Read a number with a unit, such as 25M; nan if it is not one."""
    unit = _UNITS.get(text.strip()[-1:].lower())
    try:
        return float(text) if unit is None else float(text.strip()[:-1]) * unit
    except ValueError:
        return math.nan


def _names(licence: str | Sequence[str]) -> list[str]:
    parts = licence.split(",") if isinstance(licence, str) else list(licence)
    names = [part.strip() if isinstance(part, str) else "" for part in parts]
    if not names or not all(names):
        raise InputError(
            "licence must be names or wildcards such as 'mit' or 'cc-by-*', separated by commas, "
            f"got {licence!r}"
        )
    return names
