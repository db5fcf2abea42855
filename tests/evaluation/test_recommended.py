"""What is recommended, in words."""

from __future__ import annotations

from typing import Any

import pytest

from oodzoo.combining.evaluation.recommended import (
    Recommended,
    chosen_otherwise,
    compared,
    described,
    limits_as_options,
)


def recommended(**changes: Any) -> Recommended:
    fixed: dict[str, Any] = {
        "choice": "pool",
        "models": ("a", "b"),
        "average": 88.0,
        "interval": None,
        "domains": {"photo": 88.0},
        "choices": {"photo": "pool"},
        "estimates": {},
    }
    return Recommended(**fixed | changes)


@pytest.mark.parametrize(
    ("value", "other", "words"),
    [
        (80.0, 78.5, "1.5 points above"),
        (78.5, 80.0, "1.5 points below"),
        (80.04, 79.96, "equal to"),  # both are shown as 80.0
    ],
)
def test_differences_are_those_of_the_numbers_shown(value: float, other: float, words: str) -> None:
    assert compared(value, other) == words


def test_limits_are_options_of_the_command_line() -> None:
    assert limits_as_options(recommended()) == ""
    assert (
        limits_as_options(recommended(max_models=3, max_ms=12.5)) == "--max-models 3, --max-ms 12.5"
    )


def test_a_pool_of_one_model_is_that_model() -> None:
    assert described("pool", ("a",)) == "a"
    assert described("pool", ("a", "b")) == "a pool of heads of 2 models"
    assert recommended(choice="pool", models=("a",)).brief.startswith("single a, ")


def test_unknown_choices_are_rejected() -> None:
    with pytest.raises(ValueError, match="a choice must be one of single, pool"):
        recommended(choice="best")
    with pytest.raises(ValueError, match="of the same domains"):
        recommended(choices={"sketch": "pool"})


def test_many_domains_with_another_choice_are_counted() -> None:
    names = [f"d{at}" for at in range(9)]
    choices = dict.fromkeys(names, "single") | {"d0": "pool"}
    best = recommended(domains=dict.fromkeys(names, 88.0), choices=choices)
    assert chosen_otherwise(best, 90.0).startswith("For 8 of 9 domains, another way was chosen")
    assert chosen_otherwise(best, 88.04) == ""  # shown as the same number
