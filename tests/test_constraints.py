"""Rules for models; `tests/messages/test_rank.py` has more, for stored models."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from oodzoo.core.constraints import apply_rules, licence_rule, parameter_rule
from oodzoo.core.errors import InputError


@dataclass
class Lazy:
    """Facts whose number of parameters is expensive; it counts how often it is asked for."""

    licence: str | None
    number: int = 5
    asked: list[int] = field(default_factory=list)

    @property
    def parameters(self) -> int:
        self.asked.append(self.number)
        return self.number


def test_values_of_models_that_are_left_out_are_not_asked_for() -> None:
    facts = {"a": Lazy("mit"), "b": Lazy("gpl"), "c": Lazy(None), "d": Lazy("MIT", 50)}
    kept, dropped = apply_rules(facts, [licence_rule("mit"), parameter_rule(10)])
    assert kept == ("a",)
    assert dropped == {
        "b": "licence other than mit",
        "c": "licence unknown",
        "d": "more than 10 parameters",
    }
    assert [bool(each.asked) for each in facts.values()] == [True, False, False, True]


def test_the_rule_that_nothing_meets_is_named_without_the_others() -> None:
    facts = {"a": Lazy("mit"), "b": Lazy("gpl")}
    with pytest.raises(InputError, match="no model meets --licence bsd: licences are gpl, mit"):
        apply_rules(facts, [licence_rule("bsd"), parameter_rule(10)])
    assert not any(each.asked for each in facts.values())


def test_no_models_is_not_an_error() -> None:
    assert apply_rules({}, [licence_rule("mit")]) == ((), {})
