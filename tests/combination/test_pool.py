"""Which heads are pooled: the weights of a concave problem, what must not matter, and limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import log_softmax
from tests.combination.data import predicted
from tests.oracles import combination as oracle
from tests.oracles import outputs as outputs_oracle

from oodzoo.combining import pool
from oodzoo.combining.pool import (
    LEAST_WEIGHT,
    Limits,
    PoolChooser,
    Weights,
    likelihood_of_labels,
    qualities,
)
from oodzoo.combining.predictions import SHARES, TRAINED, Head, HeadPredictions
from oodzoo.core.errors import InputError
from oodzoo.linear.heads.outputs import outputs_of
from oodzoo.tasks import KINDS, Kind

seeds = st.integers(0, 10_000)
several = settings(max_examples=10, deadline=None, derandomize=True)

MODELS = "abcd"
TIMES: dict[str, float | None] = {"a": 1.0, "b": 2.5, "c": None, "d": 1.5}

Tables = list[NDArray[Any]]
"""Outputs (heads, n, C) for each domain."""


def made(kind: Kind, seed: int) -> tuple[Tables, Tables, Tables]:
    """Outputs of four heads for three domains, left out and within, and the labels."""
    if kind == "classification":
        left_out, labels = predicted(seed)
        rng = np.random.default_rng(seed)
        within = [each + rng.normal(size=each.shape) for each in left_out]
        return left_out, within, [y.astype(np.int64) for y in labels]
    rng = np.random.default_rng(seed)
    numbers = [rng.normal(size=(n, 2)) * [1, 30] + 5 for n in (8, 12, 9)]
    noises = [rng.uniform(0.5, 1.5, (4, 1, 1)) * [1, 30] for _ in range(2)]
    left_out, within = (
        [y + noise * rng.normal(size=(4, *y.shape)) for y in numbers] for noise in noises
    )
    if kind == "multilabel":
        left_out, within = (
            [(each - 5) / [1, 30] for each in tables] for tables in (left_out, within)
        )
        numbers = [(y > 5).astype(np.float64) for y in numbers]
    return left_out, within, numbers


def candidates(
    left_out: Tables,
    within: Tables | None,
    models: Sequence[str] = MODELS,
    shares: Sequence[float] = SHARES,
) -> dict[Head, HeadPredictions]:
    """A head of each model for each share; the same, but for the order of the models."""
    return {
        Head(model, TRAINED, share): HeadPredictions(
            0, [each[at] for each in left_out], within and [each[at] for each in within]
        )
        for share in shares
        for at, model in enumerate(models)
    }


def chosen(
    left_out: Tables,
    labels: Tables,
    within: Tables | None = None,
    kind: Kind = "classification",
    **options: Any,
) -> dict[str, float]:
    """The weight of each model."""
    models = options.pop("models", MODELS)
    heads = candidates(left_out, within, models)
    times = options.pop("times", dict.fromkeys(models, 1.0))
    found = PoolChooser(heads, labels, times, kind=kind, **options).choose()
    totals = dict.fromkeys(models, 0.0)
    for head, weight in found.items():
        totals[head.model] += weight
    return totals


# --- formulas -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("folds", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_weights_maximise_what_is_written(kind: Kind, folds: bool, seed: int) -> None:
    """The mean over the shares of an independent solution, without models of little weight."""
    left_out, within, labels = made(kind, seed)
    inside = within if folds else None
    parts = [list(each) for each in left_out], [list(each) for each in within]
    shares = oracle.carried_over(kind, *parts, labels, SHARES) if folds else [1.0]
    heads = candidates(left_out, inside)
    found = PoolChooser(heads, labels, dict.fromkeys(MODELS), kind=kind).choose()
    assert sum(found.values()) == pytest.approx(1)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    expected: dict[Head, float] = {}
    for share in shares:
        weights = oracle.pool_weights(kind, parts[0], parts[1] if folds else None, labels, share)
        expected |= {Head(m, TRAINED, share): w for m, w in zip(MODELS, weights, strict=True)}
    of_model = {m: sum(expected[Head(m, TRAINED, s)] for s in shares) for m in MODELS}
    total = sum(of_model.values())
    kept = {m for m, weight in of_model.items() if weight / total >= LEAST_WEIGHT}
    assert {head.model for head in found} == kept
    total = sum(weight for head, weight in expected.items() if head.model in kept)
    for head, weight in expected.items():
        if head.model in kept:
            assert found[head] == pytest.approx(weight / total, abs=5e-4)


def test_large_tables_are_summed_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in KINDS:
        left_out, within, labels = made(kind, 0)
        whole = chosen(left_out, labels, within, kind)
        with monkeypatch.context() as patch:
            patch.setattr(pool, "_BLOCK", 30)
            assert chosen(left_out, labels, within, kind) == pytest.approx(whole)


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
    weights = np.random.default_rng(seed).dirichlet(np.ones(n_heads)).tolist()
    found = outputs_of("classification").pooled(table.astype(np.float32), weights)
    np.testing.assert_allclose(found, oracle.pool(list(table), weights), atol=1e-5)
    np.testing.assert_allclose(np.exp(found).sum(axis=1), 1)
    assert found.dtype == np.float64


@pytest.mark.parametrize("kind", KINDS)
def test_quality_of_single_heads(kind: Kind) -> None:
    tables, _, labels = made(kind, 0)
    every = np.concatenate(labels)
    for found, table, y in zip(qualities(tables, labels, kind), tables, labels, strict=True):
        for value, head in zip(found, table, strict=True):
            assert value == pytest.approx(outputs_oracle.quality(kind, head, y, every))


# --- properties ---------------------------------------------------------------------------------


def sure(n: int) -> tuple[Tables, Tables]:
    """Four heads; the third is mostly right, the others are right half the time."""
    rng = np.random.default_rng(0)
    labels = [rng.integers(0, 2, n) for _ in range(3)]
    tables = []
    for y in labels:
        right = rng.random((4, n)) < np.array([[0.5], [0.5], [0.95], [0.5]])
        predictions = np.where(right, y, 1 - y)
        tables.append(np.log(np.where(predictions[:, :, None] == np.arange(2), 0.8, 0.2)))
    return tables, [y.astype(np.int64) for y in labels]


def test_many_samples_tell_heads_apart_and_few_do_not() -> None:
    few, some, many = (chosen(*sure(n)) for n in (1, 30, 5000))
    assert min(few.values()) > 0.1
    assert few["c"] < some["c"] - 0.1 < many["c"] - 0.2
    assert many["c"] > 0.95


@given(seed=seeds, kind=st.sampled_from(KINDS))
@several
def test_order_does_not_matter(seed: int, kind: Kind) -> None:
    """Of heads, domains and samples."""
    left_out, within, labels = made(kind, seed)
    rng = np.random.default_rng(seed)
    heads, domains = rng.permutation(4), rng.permutation(3)
    rows = [rng.permutation(len(y)) for y in labels]
    found = chosen(
        [left_out[at][heads][:, rows[at]] for at in domains],
        [labels[at][rows[at]] for at in domains],
        [within[at][heads][:, rows[at]] for at in domains],
        kind,
        models=[MODELS[at] for at in heads],
    )
    assert found == pytest.approx(chosen(left_out, labels, within, kind), abs=1e-4)


@given(seed=seeds, kind=st.sampled_from(KINDS))
@several
def test_equal_heads_have_equal_weights(seed: int, kind: Kind) -> None:
    left_out, within, labels = made(kind, seed)
    for each in (*left_out, *within):
        each[3] = each[1]
    found = chosen(left_out, labels, within, kind)
    assert found["b"] == pytest.approx(found["d"], abs=1e-4)
    same = [np.repeat(each[:1], 4, axis=0) for each in left_out]
    assert list(chosen(same, labels, None, kind).values()) == pytest.approx([0.25] * 4)


@given(seed=seeds)
@several
def test_normalising_constants_do_not_matter(seed: int) -> None:
    left_out, within, labels = made("classification", seed)
    rng = np.random.default_rng(seed)
    moved = [
        [each + rng.normal(size=(*each.shape[:2], 1)) for each in tables]
        for tables in (left_out, within)
    ]
    found = chosen(moved[0], labels, moved[1])
    assert found == pytest.approx(chosen(left_out, labels, within), abs=1e-4)


@given(seed=seeds, scale=st.floats(0.01, 100), shift=st.floats(-100, 100))
@several
def test_units_of_numbers_do_not_matter(seed: int, scale: float, shift: float) -> None:
    parts = made("regression", seed)
    unit = np.array([scale, 1.0])
    left_out, within, labels = ([unit * each + shift for each in part] for part in parts)
    found = chosen(left_out, labels, within, "regression")
    expected = chosen(parts[0], parts[2], parts[1], "regression")
    assert found == pytest.approx(expected, abs=1e-4)


# --- classes that heads do not know ---------------------------------------------------------------


def test_samples_of_a_class_that_no_head_knows_do_not_count() -> None:
    tables, labels = predicted(0, sizes=(6, 5))
    labels[0] = np.full(6, 2)
    tables[0][:, :, 2] = -np.inf
    every = [list(each) for each in tables]
    expected = oracle.pool_weights("classification", every, None, labels, 1.0)
    found = chosen(tables, [*labels])
    assert list(found.values()) == pytest.approx(expected, abs=5e-4)
    assert list(chosen(tables[:1], [*labels[:1]]).values()) == [0.25] * 4


def test_a_class_that_one_head_does_not_know_costs_it_its_weight() -> None:
    tables, labels = predicted(0, n_heads=2, sizes=(8, 8))
    tables[0][1] = tables[0][0] = np.log(np.full((8, 3), 1 / 3))
    labels[0][0] = 2
    tables[0][1, :, 2] = -np.inf
    tables[1][1] = tables[1][0]
    assert chosen(tables, [*labels], models="ab") == {"a": 1.0, "b": 0.0}


# --- members ------------------------------------------------------------------------------------


def test_without_folds_only_heads_that_left_out_domains_regularise_are_pooled() -> None:
    """Also if a single head has no predictions within the domains."""
    left_out, within, labels = made("classification", 0)
    heads = candidates(left_out, within)
    heads[Head("e", "tuned", 1.0)] = HeadPredictions(0, [each[0] for each in left_out])
    found = PoolChooser(heads, labels, dict.fromkeys("abcde")).choose()
    assert {head.share for head in found} == {1.0}
    assert found[Head("e", "tuned", 1.0)] == pytest.approx(found[Head("a", TRAINED, 1.0)])


@pytest.mark.parametrize("domains", [[0, 2], [1], None])
def test_a_pool_of_some_domains_depends_on_these_only(domains: list[int] | None) -> None:
    left_out, within, labels = made("classification", 1)
    heads = candidates(left_out, within)
    found = PoolChooser(heads, labels, dict.fromkeys(MODELS)).choose(domains)
    rest = [0, 1, 2] if domains is None else domains
    part = candidates([left_out[at] for at in rest], [within[at] for at in rest])
    again = PoolChooser(part, [labels[at] for at in rest], dict.fromkeys(MODELS))
    assert found == again.choose()


def test_weights_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With other limits, too: those of the same heads on the same domains are known."""
    left_out, within, labels = made("classification", 1)
    heads = candidates(left_out, within)
    known: Weights = {}
    solved: list[int] = []
    solve = pool.best_weights

    def counted(tables: Any, n_heads: int, n_samples: int) -> Any:
        solved.append(n_heads)
        return solve(tables, n_heads, n_samples)

    monkeypatch.setattr(pool, "best_weights", counted)
    free = PoolChooser(heads, labels, TIMES, known=known).choose()
    assert solved == [4] * 12  # for each share, and without each of three domains
    again = PoolChooser(heads, labels, TIMES, Limits(max_models=4), known=known)
    assert again.choose() == free
    assert solved == [4] * 12
    again.choose([0, 1])
    assert solved == [4] * 18
    PoolChooser(heads, labels, TIMES, Limits(max_models=1), known=known).choose()
    assert solved == [4] * 18 + [1] * 12


def test_what_does_not_carry_over_has_no_weight() -> None:
    """A model that is perfect within the domains and useless elsewhere, and a fair one."""
    rng = np.random.default_rng(0)
    labels = [rng.integers(0, 3, 60) for _ in range(3)]
    truth = [np.eye(3)[y] for y in labels]
    wrong = [np.eye(3)[rng.permutation(y)] for y in labels]
    fair = [t + 0.3 * rng.normal(size=t.shape) for t in truth]
    within, left_out = (
        [log_softmax(np.stack([a, 2 * b]), axis=2) for a, b in zip(other, fair, strict=True)]
        for other in ([20 * t for t in truth], [3 * w for w in wrong])
    )
    known = candidates(left_out, within, "ab")
    chosen = PoolChooser(known, labels, {"a": None, "b": None}).choose()
    assert 0.0 not in {head.share for head in chosen}
    assert sum(weight for head, weight in chosen.items() if head.model == "b") > 0.8
    same = PoolChooser(candidates(within, within, "ab"), labels, {"a": None, "b": None}).choose()
    assert {head.share for head in same} == set(SHARES)


# --- limits -------------------------------------------------------------------------------------


@given(seed=seeds, number=st.integers(1, 3))
@several
def test_the_models_with_the_largest_weights_are_kept_and_weighted_again(
    seed: int, number: int
) -> None:
    left_out, within, labels = made("classification", seed)
    free = chosen(left_out, labels, within)
    limited = chosen(left_out, labels, within, limits=Limits(max_models=number))
    n_used = sum(weight > 0 for weight in free.values())
    kept = sorted(free, key=lambda model: -free[model])[: min(number, n_used)]
    assert {model for model, weight in limited.items() if weight} == set(kept)
    if number < n_used:
        at = [MODELS.index(model) for model in sorted(kept)]
        part = [each[at] for each in left_out], labels, [each[at] for each in within]
        alone = candidates(part[0], part[2], sorted(kept))
        of_heads = PoolChooser(alone, labels, dict.fromkeys(kept)).choose()
        expected = {m: sum(w for h, w in of_heads.items() if h.model == m) for m in kept}
        assert {model: limited[model] for model in kept} == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("max_ms", [1.0, 2.4, 2.5, 4.0, 5.0])
def test_the_time_of_a_pool_is_the_sum_over_its_models(seed: int, max_ms: float) -> None:
    """Models are taken in the order of their weights; an unknown time is not within any limit."""
    left_out, within, labels = made("classification", seed)
    usable = [at for at, model in enumerate(MODELS) if (TIMES[model] or 99) <= max_ms]
    parts = [[each[usable] for each in tables] for tables in (left_out, within)]
    free = chosen(parts[0], labels, parts[1], models=[MODELS[at] for at in usable])
    expected: set[str] = set()
    time = 0.0
    for model in sorted(free, key=lambda model: -free[model]):
        if free[model] and time + (TIMES[model] or 99) <= max_ms:
            expected.add(model)
            time += TIMES[model] or 99
    found = chosen(left_out, labels, within, limits=Limits(max_ms=max_ms), times=TIMES)
    assert {model for model, weight in found.items() if weight} == expected


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
    [(TIMES, "the fastest takes 1 ms"), (dict.fromkeys(MODELS), "no time is known")],
)
def test_no_model_within_the_limits(times: dict[str, float | None], fastest: str) -> None:
    left_out, _, labels = made("classification", 0)
    heads = candidates(left_out, None)
    with pytest.raises(InputError) as raised:
        PoolChooser(heads, labels, times, Limits(max_ms=0.5))
    message = str(raised.value)
    assert message.startswith("none of the 4 models takes at most 0.5 ms per image")
    assert fastest in message
    assert "\n" not in message
