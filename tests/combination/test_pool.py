"""Which heads are pooled: the greedy selection, what must not matter, and limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.combination.data import predicted
from tests.oracles import combination as oracle
from tests.oracles import outputs as outputs_oracle

from oodzoo.combination.pool import (
    GreedyShares,
    Limits,
    PoolChooser,
    likelihood_of_labels,
    qualities,
)
from oodzoo.errors import InputError
from oodzoo.heads.outputs import outputs_of
from oodzoo.task import Kind

seeds = st.integers(0, 10_000)
always = settings(max_examples=20, deadline=None, derandomize=True)
"""The same examples each time, because rounding decides between pools that are equally good."""

ABOUT = 0.05
"""Shares of equally good pools differ by less."""

MODELS = ["a", "a", "b", "b", "c", "c"]
TIMES: dict[str, float | None] = {"a": 1.0, "b": 2.5, "c": None}


def greedy_shares(tables: Any, labels: Any) -> NDArray[np.float64]:
    return GreedyShares(tables, labels).of()


def choose_members(
    tables: Any,
    labels: Any,
    models: list[str],
    times: dict[str, float | None],
    limits: Limits | None = None,
) -> list[int]:
    return list(PoolChooser(tables, labels, models, times, limits).choose())


def literal(tables: Any, labels: Any) -> list[float]:
    return oracle.greedy_shares([(list(t), y) for t, y in zip(tables, labels, strict=True)])


# --- formulas -----------------------------------------------------------------------------------


@given(seed=seeds, n_heads=st.integers(1, 4), n_domains=st.integers(1, 3))
@always
def test_shares_equal_the_greedy_selection_written_out(
    seed: int, n_heads: int, n_domains: int
) -> None:
    tables, labels = predicted(seed, n_heads=n_heads, sizes=(4, 7, 3)[:n_domains])
    found = greedy_shares(tables, labels)
    np.testing.assert_allclose(found, literal(tables, labels), atol=ABOUT)
    assert found.sum() == pytest.approx(1)


@given(seed=seeds)
@always
def test_shares_if_heads_do_not_know_a_class(seed: int) -> None:
    """The first domain has samples of a class that no head of it has seen."""
    tables, labels = predicted(seed, n_heads=3, sizes=(6, 5))
    labels[0][:2] = 2
    tables[0][:, :, 2] = -np.inf
    found = greedy_shares(tables, labels)
    np.testing.assert_allclose(found, literal(tables, labels), atol=ABOUT)
    labels[0] = np.full(6, 2)  # only the second domain is left
    np.testing.assert_allclose(
        greedy_shares(tables, labels), greedy_shares(tables[1:], labels[1:]), atol=ABOUT
    )
    assert greedy_shares(tables[:1], labels[:1]).tolist() == [1 / 3] * 3


def test_a_class_that_one_head_does_not_know_costs_it_its_share() -> None:
    tables, labels = predicted(0, n_heads=2, sizes=(8, 8))
    tables[0][1] = tables[0][0] = np.log(np.full((8, 3), 1 / 3))
    labels[0][0] = 2
    tables[0][1, :, 2] = -np.inf
    tables[1][1] = tables[1][0]
    assert greedy_shares(tables, labels).tolist() == [1, 0]


@given(seed=seeds)
@settings(deadline=None)
def test_likelihood_equals_its_definition(seed: int) -> None:
    (table,), (labels,) = predicted(seed, n_heads=1, sizes=(9,))
    table = table[0] - np.random.default_rng(seed).exponential(60, table[0].shape)
    table[0, 0] = -np.inf
    expected = oracle.likelihood(table, labels)
    assert likelihood_of_labels(table, labels) == pytest.approx(expected)
    assert likelihood_of_labels(table.astype(np.float32), labels) == pytest.approx(expected)


@given(seed=seeds, n_heads=st.integers(1, 5))
@settings(deadline=None)
def test_a_pool_is_the_normalised_geometric_mean(seed: int, n_heads: int) -> None:
    (table,), _ = predicted(seed, n_heads=n_heads, sizes=(6,))
    table[:, :, 1] = -np.inf
    found = outputs_of("classification").pooled(table.astype(np.float32), [1 / n_heads] * n_heads)
    np.testing.assert_allclose(found, oracle.pool(list(table)), atol=1e-5)
    np.testing.assert_allclose(np.exp(found).sum(axis=1), 1)
    assert found.dtype == np.float64


@given(seed=seeds)
@settings(max_examples=10, deadline=None, derandomize=True)
@pytest.mark.parametrize("kind", ["regression", "multilabel"])
def test_shares_of_heads_of_numbers_and_labels(kind: Kind, seed: int) -> None:
    tables, labels = scattered(kind, seed)
    domains = [(list(table), y) for table, y in zip(tables, labels, strict=True)]
    expected = outputs_oracle.greedy_shares(kind, domains)
    np.testing.assert_allclose(GreedyShares(tables, labels, kind).of(), expected, atol=ABOUT)


@pytest.mark.parametrize("kind", ["regression", "multilabel"])
def test_weights_are_shares_for_numbers_and_equal_for_labels(kind: Kind) -> None:
    tables, labels = scattered(kind, 3)
    models = ["a", "b", "c", "d"]
    times: dict[str, float | None] = dict.fromkeys(models, 1.0)
    chosen = PoolChooser(tables, labels, models, times, kind=kind).choose()
    shares = GreedyShares(tables, labels, kind).of()
    assert len(chosen) > 1
    assert sum(chosen.values()) == pytest.approx(1)
    for at, weight in chosen.items():
        expected = shares[at] if kind == "regression" else 1 / len(chosen)
        assert weight == pytest.approx(expected)
    limited = PoolChooser(tables, labels, models, times, Limits(max_models=1), kind).choose()
    assert limited == {next(iter(chosen)): 1.0}  # a pool of one head is that head


@given(seed=seeds, scale=st.floats(0.01, 100), shift=st.floats(-100, 100))
@always
def test_units_of_numbers_do_not_matter(seed: int, scale: float, shift: float) -> None:
    tables, labels = scattered("regression", seed)
    unit = np.array([scale, 1.0])
    moved = GreedyShares(
        [unit * table + shift for table in tables], [unit * y + shift for y in labels], "regression"
    )
    found = GreedyShares(tables, labels, "regression").of()
    np.testing.assert_allclose(moved.of(), found, atol=ABOUT)


@pytest.mark.parametrize("kind", ["regression", "multilabel"])
def test_quality_of_single_heads(kind: Kind) -> None:
    tables, labels = scattered(kind, 0)
    every = np.concatenate(labels)
    for found, table, y in zip(qualities(tables, labels, kind), tables, labels, strict=True):
        for value, head in zip(found, table, strict=True):
            expected = (
                outputs_oracle.squared_error(head, y, every)
                if kind == "regression"
                else outputs_oracle.likelihood(head, y)
            )
            assert value == pytest.approx(expected)


def scattered(kind: Kind, seed: int) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
    """Outputs (4, n, 2) of heads with different errors for three domains."""
    rng = np.random.default_rng(seed)
    tables, labels = [], []
    for n in (8, 12, 9):
        y = rng.normal(size=(n, 2)) * [1, 30] + 5
        noise = rng.normal(size=(4, n, 2)) * rng.uniform(0.5, 1.5, (4, 1, 1)) * [1, 30]
        tables.append(y + noise)
        labels.append(y)
    if kind == "multilabel":
        tables = [(table - 5) / [1, 30] for table in tables]
        labels = [(y > 5).astype(np.float64) for y in labels]
    return tables, labels


# --- properties ---------------------------------------------------------------------------------


@given(seed=seeds)
@always
def test_order_of_heads_domains_and_samples_does_not_matter(seed: int) -> None:
    tables, labels = predicted(seed)
    rng = np.random.default_rng(seed)
    heads, domains = rng.permutation(4), rng.permutation(3)
    rows = [rng.permutation(len(y)) for y in labels]
    found = greedy_shares(
        [tables[at][heads][:, rows[at]] for at in domains], [labels[at][rows[at]] for at in domains]
    )
    np.testing.assert_allclose(found, greedy_shares(tables, labels)[heads], atol=ABOUT)


@given(seed=seeds, domain=st.integers(0, 2), times=st.integers(2, 9))
@always
def test_domains_weigh_alike(seed: int, domain: int, times: int) -> None:
    tables, labels = predicted(seed)
    expected = greedy_shares(tables, labels)
    tables[domain] = np.tile(tables[domain], (1, times, 1))
    labels[domain] = np.tile(labels[domain], times)
    np.testing.assert_allclose(greedy_shares(tables, labels), expected, atol=ABOUT)


@given(seed=seeds, head=st.integers(0, 3))
@always
def test_a_copy_of_a_head_has_no_share(seed: int, head: int) -> None:
    tables, labels = predicted(seed)
    expected = greedy_shares(tables, labels)
    more = [np.concatenate([table, table[head : head + 1]]) for table in tables]
    np.testing.assert_array_equal(greedy_shares(more, labels), [*expected, 0])


@given(seed=seeds)
@always
def test_normalising_constants_do_not_matter(seed: int) -> None:
    tables, labels = predicted(seed)
    rng = np.random.default_rng(seed)
    moved = [table + rng.normal(size=(*table.shape[:2], 1)) for table in tables]
    np.testing.assert_allclose(
        greedy_shares(moved, labels), greedy_shares(tables, labels), atol=ABOUT
    )


def test_heads_that_know_different_samples_have_equal_shares() -> None:
    """The best pools have 4, 8, … heads, not the last of the 30."""
    y = np.tile([0, 1], 20)
    right, unsure = np.eye(2)[y] * 0.9 + 0.05, np.full((40, 2), 0.5)
    parts = np.arange(40)[:, None] // 10
    heads = [np.where(parts == at, right, unsure) for at in range(4)]
    shares = greedy_shares([np.log([*heads, 1 - right])] * 3, [y] * 3)
    assert shares.tolist() == pytest.approx([0.25, 0.25, 0.25, 0.25, 0])


# --- members ------------------------------------------------------------------------------------


@given(seed=seeds)
@always
def test_members_are_the_heads_with_a_share_in_its_order(seed: int) -> None:
    tables, labels = predicted(seed, n_heads=6)
    shares = greedy_shares(tables, labels)
    members = choose_members(tables, labels, MODELS, TIMES)
    assert set(members) == set(np.flatnonzero(shares).tolist())
    assert all(np.diff(shares[members]) <= 0)


@given(seed=seeds, number=st.integers(1, 3))
@always
def test_the_heads_with_the_largest_shares_are_kept_within_a_number_of_models(
    seed: int, number: int
) -> None:
    """A second head of a model that is in the pool is no further model."""
    tables, labels = predicted(seed, n_heads=6)
    every = choose_members(tables, labels, MODELS, TIMES)
    order = list(dict.fromkeys(MODELS[at] for at in every))
    found = choose_members(tables, labels, MODELS, TIMES, Limits(max_models=number))
    assert found == [at for at in every if MODELS[at] in order[:number]]


def test_the_time_of_a_pool_is_the_sum_over_its_models() -> None:
    """The third model has an unknown time, which is not within any limit."""
    several = 0
    for seed in range(6):
        tables, labels = predicted(seed, n_heads=6)
        shares = greedy_shares([table[:4] for table in tables], labels)
        for max_ms in (1, 3.4, 3.5):
            found = choose_members(tables, labels, MODELS, TIMES, Limits(max_ms=max_ms))
            models = {MODELS[at] for at in found}
            assert models <= {"a", "b"}
            assert sum(TIMES[model] or 0 for model in models) <= max_ms
            if max_ms == 3.5:  # both models are allowed, and heads of the third no candidates
                assert set(found) == set(np.flatnonzero(shares).tolist())
                several += len(models) > 1
    assert several > 0


def test_limits_allow() -> None:
    assert Limits().allow(["a", "b", "c"], TIMES)
    assert Limits(max_models=3).allow(["a", "b", "c"], TIMES)
    assert not Limits(max_models=2).allow(["a", "b", "c"], TIMES)
    assert Limits(max_ms=3.5).allow(["a", "b"], TIMES)
    assert not Limits(max_ms=3.4).allow(["a", "b"], TIMES)
    assert not Limits(max_ms=1e9).allow(["c"], TIMES)
    assert not Limits(max_models=1, max_ms=100).allow(["a", "b"], TIMES)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_models": 0}, "max_models must be 1 or more, got 0"),
        ({"max_models": -3}, "max_models must be 1 or more, got -3"),
        ({"max_ms": -1}, "max_ms must be a positive number of milliseconds, got -1"),
        ({"max_ms": 0.0}, "max_ms must be a positive number of milliseconds, got 0.0"),
        ({"max_ms": float("nan")}, "max_ms must be a positive number of milliseconds, got nan"),
    ],
)
def test_limits_that_nothing_meets(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as raised:
        Limits(**options)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("times", "fastest"),
    [(TIMES, "the fastest takes 1 ms"), (dict.fromkeys("abc"), "no time is known")],
)
def test_no_model_within_the_limits(times: dict[str, float | None], fastest: str) -> None:
    tables, labels = predicted(0, n_heads=6)
    with pytest.raises(InputError) as raised:
        choose_members(tables, labels, MODELS, times, Limits(max_ms=0.5))
    message = str(raised.value)
    assert message.startswith("none of the 3 models takes at most 0.5 ms per image")
    assert fastest in message
    assert "\n" not in message
