"""Limits on models: number, time, parameters, licence; what models cost together.

The fields are keywords of functions and options of commands (:mod:`oodzoo.core.options`). The
TypedDicts name them for functions that take them as further keywords.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from numbers import Real
from typing import Annotated, Any, NamedTuple, TypedDict, TypeVar

from oodzoo.core.errors import InputError
from oodzoo.core.options import Option

Number = TypeVar("Number", int, float)


class ModelLimitOptions(TypedDict, total=False):
    max_ms: float | None
    max_parameters: float | str | None
    licence: str | Sequence[str] | None


class LimitOptions(ModelLimitOptions, total=False):
    max_models: int | None


@dataclass(frozen=True)
class ZooLimits:
    """Limits of models before any of them is run; None means no limit.

    Attributes
    ----------
    max_parameters : float or str, optional
        Largest number of parameters of a model: 25e6 or "25M" (K, M, B: thousand, million,
        billion).
    licence : str or sequence of str, optional
        Names of accepted licences, or wildcards ("cc-by-*"), ignoring case. A string may contain
        several, separated by commas.

    Examples
    --------
    >>> ZooLimits(max_parameters="25M", licence="mit,apache-*").licence
    'mit,apache-*'
    """

    licence: Annotated[
        str | Sequence[str] | None,
        Option(
            "Only models with one of these licences: 'apache-2.0,mit', 'cc-by-*'.",
            metavar="NAME,…",
            type=str | None,
        ),
    ] = None

    def __post_init__(self) -> None:
        _ = self.rules  # rejects bad values

    max_parameters: Annotated[
        float | str | None,
        Option(
            "Only models of at most this many parameters: 25M or 25e6.",
            metavar="N",
            type=str | None,
        ),
    ] = None

    @property
    def rules(self) -> list[Rule]:
        """The limits of single models that are set."""
        rules = []
        if self.max_parameters is not None:
            rules.append(parameter_rule(self.max_parameters))
        if self.licence is not None:
            rules.append(licence_rule(self.licence))
        return rules


@dataclass(frozen=True)
class ModelLimits(ZooLimits):
    """Limits of models; None means no limit.

    Attributes
    ----------
    max_ms : float, optional
        Largest time per image in milliseconds, on the machine of the extraction.
    """

    max_ms: Annotated[
        float | None,
        Option(
            "Milliseconds that a prediction may take, on one CPU thread or the GPU: leaves out "
            "models that take longer, and limits the sum over combined models.",
            metavar="MS",
        ),
    ] = None

    @property
    def rules(self) -> list[Rule]:
        others = super().rules
        return others if self.max_ms is None else [_time_rule(self.max_ms), *others]


@dataclass(frozen=True)
class Limits(ModelLimits):
    """Limits of models and of their combinations; None means no limit.

    `max_ms` is what a prediction may take, of one model or of several together: a model that takes
    longer alone is left out at once, and a combination may take no longer as a whole; layers of
    one network count once, with the slowest of them.

    Attributes
    ----------
    max_models : int, optional
        Largest number of models of a combination.
    """

    max_models: Annotated[int | None, Option("Combine at most this many models.")] = None

    def __post_init__(self) -> None:
        if self.max_models is not None and self.max_models < 1:
            raise InputError(f"max_models must be 1 or more, got {self.max_models}")
        super().__post_init__()

    @property
    def of_combinations(self) -> bool:
        """Whether the number of models, or their time together, is limited."""
        return self.max_models is not None or self.max_ms is not None

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


def total(values: Iterable[Number | None]) -> Number | None:
    """Sum a fact over several models; None if it is unknown for one of them.

    Examples
    --------
    >>> total([1, 2]), total([1, None])
    (3, None)
    """
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if len(known) == len(found) else None


def total_cost(costs: Mapping[str, Number | None]) -> Number | None:
    """Sum the costs of models by name; None if one is unknown.

    Layers of one network, `network@layer`, are computed together: they cost as much as the most
    expensive of them.

    Examples
    --------
    >>> total_cost({"vit@blocks.3": 2.0, "vit@blocks.8": 5.0, "resnet": 1.0})
    6.0
    """
    networks: dict[str, list[Number]] = {}
    for model, cost in costs.items():
        if cost is None:
            return None
        networks.setdefault(model.partition("@")[0], []).append(cost)
    return sum(max(each) for each in networks.values())


class Cost(NamedTuple):
    """Milliseconds per image and number of parameters; None if not known for all models."""

    milliseconds: float | None
    parameters: int | None


def cost_of(models: Mapping[str, Any]) -> Cost:
    """What models cost together; each has `milliseconds` and `parameters`, and is given by name."""
    return Cost(
        total_cost({model: each.milliseconds for model, each in models.items()}),
        total_cost({model: each.parameters for model, each in models.items()}),
    )


@dataclass(frozen=True)
class Rule:
    """One limit of single models, given what is known about them."""

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
        """Return why a model is left out; None if it meets the limit."""
        value = self.value(facts)
        if value is None:
            return self.unknown
        return None if self.accepts(value) else self.violated

    @property
    def unknown(self) -> str:
        """Why a model of unknown value is left out."""
        return f"{self.quantity} unknown"


def _time_rule(ms: float) -> Rule:
    slowest = _positive(ms, "max_ms must be a positive number of milliseconds", ms)
    return Rule(
        option=f"--max-ms {slowest:g}",
        quantity="time per image",
        value=lambda facts: facts.milliseconds,
        accepts=lambda value: bool(value <= slowest),
        violated=f"more than {slowest:g} ms per image",
        nearest=lambda known: "the fastest, {!r}, takes {:.4g} ms".format(*_lowest(known)),
    )


_UNITS = {"k": 1e3, "m": 1e6, "b": 1e9}


def parameter_rule(largest: float | str) -> Rule:
    """Accept models of at most this many parameters, 25e6 or "25M"; facts have `parameters`."""
    number: float = math.nan
    if isinstance(largest, str):
        text = largest.strip()
        unit = _UNITS.get(text[-1:].lower())
        with suppress(ValueError):
            number = float(text) if unit is None else float(text[:-1]) * unit
    else:
        number = largest
    most = _positive(
        number, "max_parameters must be a positive number such as 25e6 or 25M", largest
    )
    return Rule(
        option=f"--max-parameters {largest}",
        quantity="number of parameters",
        value=lambda facts: facts.parameters,
        accepts=lambda value: bool(value <= most),
        violated=f"more than {largest} parameters",
        nearest=lambda known: "the smallest, {!r}, has {:,}".format(*_lowest(known)),
    )


def licence_rule(licence: str | Sequence[str]) -> Rule:
    """Accept models with one of these licences, names or wildcards; facts have `licence`."""
    parts = licence.split(",") if isinstance(licence, str) else list(licence)
    names = [part.strip() if isinstance(part, str) else "" for part in parts]
    if not names or not all(names):
        raise InputError(
            "licence must be names or wildcards such as 'mit' or 'cc-by-*', separated by commas, "
            f"got {licence!r}"
        )
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


def _lowest(values: dict[str, float]) -> tuple[str, float]:
    """The model with the lowest value; the first by name, if there are several."""
    return min(values.items(), key=lambda item: (item[1], item[0]))


def _positive(value: object, expected: str, received: object) -> float:
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value <= 0:  # type: ignore[arg-type, operator]
        raise InputError(f"{expected}, got {received!r}")
    return float(value)  # type: ignore[arg-type]
