"""The Pareto front of accuracy and cost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.oracles.intervals import pareto_optimal

from oodzoo.features.source import Facts
from oodzoo.ranking.rows import costs, pareto_front

VALUES = st.dictionaries(
    st.text("abcdefgh", min_size=1, max_size=2),
    st.tuples(st.integers(0, 6), st.none() | st.integers(0, 6)),
)


@given(VALUES)
def test_front_is_the_definition(values: dict[str, tuple[int, int | None]]) -> None:
    accuracy = {model: float(a) for model, (a, _) in values.items()}
    cost = {model: None if c is None else float(c) for model, (_, c) in values.items()}
    front = pareto_front(accuracy, cost)
    assert len(front) == len(set(front))
    assert set(front) == pareto_optimal(accuracy, cost)
    prices = [cost[model] for model in front]
    assert prices == sorted(prices, key=lambda price: price or 0.0)


@given(VALUES)
def test_models_of_unknown_cost_do_not_affect_the_others(
    values: dict[str, tuple[int, int | None]],
) -> None:
    accuracy = {model: float(a) for model, (a, _) in values.items()}
    cost = {model: c for model, (_, c) in values.items()}
    known = {model: c for model, c in cost.items() if c is not None}
    assert pareto_front(accuracy, cost) == pareto_front(accuracy, dict(known))


def test_equal_models_are_both_on_the_front() -> None:
    assert pareto_front({"b": 1.0, "a": 1.0, "c": 0.5}, {"b": 2, "a": 2, "c": 2}) == ("a", "b")


def test_cost_is_what_is_known_for_most_models() -> None:
    both = {"a": Facts(8, 100, 1.5), "b": Facts(8, 200, 2.5)}
    assert costs(both) == {"a": 1.5, "b": 2.5}
    some = {**both, "c": Facts(8, 300, None)}
    assert costs(some) == {"a": 100, "b": 200, "c": 300}
    few = {"a": Facts(8, None, 1.5), "b": Facts(8)}
    assert costs(few) == {"a": 1.5, "b": None}
    assert pareto_front({"a": 1.0, "b": 2.0}, costs(few)) == ("a",)
    assert pareto_front({"b": 2.0}, costs({"b": Facts(8)})) == ()
