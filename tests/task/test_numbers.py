"""Whether numbers are classes or numbers to predict."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oodzoo.errors import InputError
from oodzoo.task.texts import FEW_PER_VALUE, MANY_VALUES, kind_of_numbers


def literal(values: list[float]) -> str:
    """The rule of the documentation, word for word."""
    different = sorted(set(values))
    many = len(different) > 20
    few = len(values) / len(different) < 10
    if all(float(value).is_integer() for value in different):
        return "either" if many and few else "classification"
    return "either" if not many and not few else "regression"


@given(
    st.integers(1, 40),
    st.integers(1, 15),
    st.sampled_from([1.0, 0.5, -3.0, 0.25]),
)
def test_the_rule(n_values: int, per_value: int, step: float) -> None:
    values = [step * at for at in range(n_values)] * per_value
    expected = literal(values)
    if expected == "either":
        with pytest.raises(InputError, match=r"could be classes or numbers to predict; .*--task"):
            kind_of_numbers(np.array(values), "y")
    else:
        assert kind_of_numbers(np.array(values), "y") == expected


def test_the_limits() -> None:
    assert (MANY_VALUES, FEW_PER_VALUE) == (20, 10)
    twenty_one = np.arange(21.0)
    assert kind_of_numbers(np.repeat(twenty_one, 10), "y") == "classification"
    assert kind_of_numbers(np.arange(20.0), "y") == "classification"
    with pytest.raises(InputError, match=r"^y has 21 different integers in 209 samples \(0, 1, 2"):
        kind_of_numbers(np.repeat(twenty_one, 10)[:-1], "y")
    halves = twenty_one / 2
    assert kind_of_numbers(np.repeat(halves, 10), "y") == "regression"
    assert kind_of_numbers(np.repeat(halves[:20], 10)[:-1], "y") == "regression"
    with pytest.raises(InputError, match="20 different numbers in 200 samples"):
        kind_of_numbers(np.repeat(halves[:20], 10), "y")
