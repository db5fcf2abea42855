"""Constraints: who is kept, why others are not, and bad values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oodzoo.errors import InputError
from oodzoo.features.source import ArraySource, Facts
from oodzoo.ranking.constraints import Constraints, apply


class Described(ArraySource):
    """Arrays of models with these facts."""

    def __init__(self, facts: dict[str, Facts]) -> None:
        super().__init__(dict.fromkeys(facts, np.zeros((2, 1))), [0, 1], ["a", "b"])
        self._facts = facts

    def facts(self, model: str) -> Facts:
        return self._facts[model]


ZOO = Described(
    {
        "small": Facts(8, 5_000_000, 12.345, "mit"),
        "large": Facts(8, 90_000_000, 80.0, "Apache-2.0"),
        "quick": Facts(8, 20_000_000, 14.0, "CC-BY-NC-4.0"),
        "unmeasured": Facts(8, 6_000_000, None, "mit"),
        "unknown": Facts(8),
    }
)


def message(**values: Any) -> str:
    with pytest.raises(InputError) as caught:
        apply(ZOO, Constraints(**values))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_no_constraint_keeps_all() -> None:
    assert apply(ZOO, Constraints()) == (ZOO.models, {})


def test_time() -> None:
    kept, dropped = apply(ZOO, Constraints(max_ms=14))
    assert kept == ("small", "quick")
    assert dropped == {
        "large": "more than 14 ms per image",
        "unmeasured": "time per image unknown",
        "unknown": "time per image unknown",
    }


@pytest.mark.parametrize("limit", [20e6, 20_000_000, "20M", " 20m ", "20000K", "0.02B", "2e7"])
def test_parameters(limit: float | str) -> None:
    kept, dropped = apply(ZOO, Constraints(max_parameters=limit))
    assert kept == ("small", "quick", "unmeasured")
    assert dropped == {
        "large": f"more than {limit} parameters",
        "unknown": "number of parameters unknown",
    }


@pytest.mark.parametrize(
    ("licence", "models"),
    [
        ("mit", {"small", "unmeasured"}),
        ("MIT, apache-2.0", {"small", "unmeasured", "large"}),
        (["apache-*", "cc-by-*"], {"large", "quick"}),
        ("*", {"small", "large", "quick", "unmeasured"}),
    ],
)
def test_licence(licence: str | list[str], models: set[str]) -> None:
    kept, dropped = apply(ZOO, Constraints(licence=licence))
    assert set(kept) == models
    assert dropped["unknown"] == "licence unknown"
    assert set(dropped) == set(ZOO.models) - models


def test_the_first_violated_constraint_is_the_reason() -> None:
    kept, dropped = apply(ZOO, Constraints(max_ms=20, licence="mit"))
    assert kept == ("small",)
    assert dropped["large"] == "more than 20 ms per image"
    assert dropped["quick"] == "licence other than mit"


def test_none_left_names_the_constraint() -> None:
    assert message(max_ms=10) == (
        "no model meets --max-ms 10: the fastest, 'small', takes 12.35 ms"
    )
    assert message(max_parameters=25, licence="mit") == (
        "no model meets --max-parameters 25: the smallest, 'small', has 5,000,000"
    )
    assert message(licence="gpl*,bsd") == (
        "no model meets --licence gpl*,bsd: licences are Apache-2.0, CC-BY-NC-4.0, mit"
    )


def test_none_left_by_constraints_together() -> None:
    assert message(max_ms=13, max_parameters="30M", licence="apache-2.0") == (
        "no model meets all constraints: 1 of 5 meet --max-ms 13, 3 of 5 meet "
        "--max-parameters 30M, 1 of 5 meet --licence apache-2.0"
    )


def test_arrays_have_no_known_costs() -> None:
    arrays = ArraySource({"a": np.zeros((2, 1))}, [0, 1], ["a", "b"])
    with pytest.raises(InputError, match="no model meets --max-ms 5: time per image unknown"):
        apply(arrays, Constraints(max_ms=5))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("max_ms", value) for value in (0, -1, math.nan, math.inf, True, "10", [1])],
        *[("max_parameters", v) for v in (0, -5e6, math.nan, True, "", "M", "25Q", "-3M", "nanM")],
        *[("licence", value) for value in ("", " ", "mit,,bsd", [], ["mit", ""], [None])],
    ],
)
def test_bad_values_are_one_line(name: str, value: Any) -> None:
    with pytest.raises(InputError) as caught:
        Constraints(**{name: value})
    text = str(caught.value)
    assert text.startswith(f"{name} must be")
    assert text.endswith(f"got {value!r}")
    assert "\n" not in text


FACTS = st.builds(
    Facts,
    st.just(8),
    st.none() | st.integers(1, 9),
    st.none() | st.integers(1, 9),
    st.none() | st.sampled_from(["mit", "bsd"]),
)


@given(
    facts=st.dictionaries(st.sampled_from("abcdef"), FACTS, min_size=1),
    max_ms=st.none() | st.integers(1, 9),
    max_parameters=st.none() | st.integers(1, 9),
    licence=st.none() | st.sampled_from(["mit", "bsd", "*"]),
)
def test_kept_are_those_that_meet_all(
    facts: dict[str, Facts],
    max_ms: float | None,
    max_parameters: float | None,
    licence: str | None,
) -> None:
    expected = [
        model
        for model, f in facts.items()
        if (max_ms is None or (f.milliseconds is not None and f.milliseconds <= max_ms))
        and (max_parameters is None or (f.parameters or 99) <= max_parameters)
        and (licence is None or (f.licence is not None and licence in ("*", f.licence)))
    ]
    constraints = Constraints(max_ms, max_parameters, licence)
    if expected:
        kept, dropped = apply(Described(facts), constraints)
        assert list(kept) == expected
        assert set(dropped) == set(facts) - set(expected)
    else:
        with pytest.raises(InputError, match="no model meets"):
            apply(Described(facts), constraints)
