"""The weights of a pool, and which way of combining models is recommended: by their definitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.maths.combinations import predicted
from tests.oracles import combination as oracle
from tests.oracles import outputs as outputs_oracle

from oodzoo.combining.pool_weights import LEAST_WEIGHT, PoolChooser, likelihood_of_labels, qualities
from oodzoo.combining.predictions import SHARES, TRAINED, Head, HeadPredictions
from oodzoo.combining.verdict import Estimate, recommend
from oodzoo.combining.ways import COMBINATIONS
from oodzoo.core.errors import InputError
from oodzoo.core.limits import Limits
from oodzoo.tasks import CLASSIFICATION, KINDS, Kind, task_of

seeds = st.integers(0, 10_000)

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
    found = PoolChooser(heads, labels, times, task=task_of(kind), **options).choose()
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
    found = PoolChooser(heads, labels, dict.fromkeys(MODELS), task=task_of(kind)).choose()
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


@given(seed=seeds, n_heads=st.integers(1, 5))
@settings(deadline=None)
def test_a_pool_is_the_normalised_geometric_mean(seed: int, n_heads: int) -> None:
    (table,), _ = predicted(seed, n_heads=n_heads, sizes=(6,))
    table[:, :, 1] = -np.inf
    weights = np.random.default_rng(seed).dirichlet(np.ones(n_heads)).tolist()
    found = CLASSIFICATION.pooled(table.astype(np.float32), weights)
    np.testing.assert_allclose(found, oracle.pool(list(table), weights), atol=1e-5)
    np.testing.assert_allclose(np.exp(found).sum(axis=1), 1)
    assert found.dtype == np.float64


@given(seed=seeds)
@settings(deadline=None)
def test_quality_of_single_heads(seed: int) -> None:
    (table,), (labels,) = predicted(seed, n_heads=1, sizes=(9,))
    table = table[0] - np.random.default_rng(seed).exponential(60, table[0].shape)
    table[0, 0] = -np.inf
    expected = oracle.likelihood(table, labels)
    assert likelihood_of_labels(table, labels) == pytest.approx(expected)
    assert likelihood_of_labels(table.astype(np.float32), labels) == pytest.approx(expected)
    for kind in KINDS:
        tables, _, truths = made(kind, seed)
        every = np.concatenate(truths)
        for found, outputs, y in zip(
            qualities(tables, truths, task_of(kind)), tables, truths, strict=True
        ):
            quality = [outputs_oracle.quality(kind, head, y, every) for head in outputs]
            assert list(found) == pytest.approx(quality)


# --- limits -------------------------------------------------------------------------------------


def test_limits_that_nothing_meets() -> None:
    for options in ({"max_models": 0}, {"max_ms": 0.0}, {"max_ms": float("nan")}):
        with pytest.raises(InputError):
            Limits(**options)
    left_out, _, labels = made("classification", 0)
    heads = candidates(left_out, None)
    for times, fastest in ((TIMES, "the fastest takes 1 ms"), ({}, "no time is known")):
        with pytest.raises(InputError, match=f"none of the 4 models .* 0.5 ms .*{fastest}"):
            PoolChooser(heads, labels, dict.fromkeys(MODELS) | times, Limits(max_ms=0.5))


def test_classes_that_heads_do_not_know() -> None:
    """Samples of a class that no head knows do not count; one head that does not know it does."""
    tables, labels = predicted(0, sizes=(6, 5))
    labels[0] = np.full(6, 2)
    tables[0][:, :, 2] = -np.inf
    every = [list(each) for each in tables]
    expected = oracle.pool_weights("classification", every, None, labels, 1.0)
    found = chosen(tables, [*labels])
    assert list(found.values()) == pytest.approx(expected, abs=5e-4)
    assert list(chosen(tables[:1], [*labels[:1]]).values()) == [0.25] * 4
    tables, labels = predicted(0, n_heads=2, sizes=(8, 8))
    tables[0][1] = tables[0][0] = np.log(np.full((8, 3), 1 / 3))
    labels[0][0] = 2
    tables[0][1, :, 2] = -np.inf
    tables[1][1] = tables[1][0]
    assert chosen(tables, [*labels], models="ab") == {"a": 1.0, "b": 0.0}


seeds = st.integers(0, 10_000)


# --- the whole rule -----------------------------------------------------------------------------


CHOICES = tuple(COMBINATIONS)


def recommended(found: dict[str, Estimate]) -> str:
    return recommend(found, usual="pool", simple="single")


def estimates(seed: int) -> dict[str, Estimate]:
    """Four ways with the same hits but for some, on domains of different size."""
    rng = np.random.default_rng(seed)
    sizes = (8, 60, 17, 40)[: rng.integers(1, 5)]
    truth = [rng.random(n) < 0.7 for n in sizes]
    shift = dict.fromkeys(CHOICES, 0.0) | {str(rng.choice(CHOICES)): rng.choice([-0.3, 0.2])}
    known, found = rng.random() < 0.8, {}
    for name in CHOICES:
        parts = []
        for _ in range(2):
            hits = [each.copy() for each in truth]
            for each in hits:
                flipped = rng.random(len(each)) < rng.choice([0.02, 0.2])
                each[flipped] = ~each[flipped]
                each[rng.random(len(each)) < abs(shift[name])] = shift[name] > 0
            parts.append(hits)
        found[name] = Estimate(parts[0], float(rng.integers(1, 4)), parts[1] if known else None)
    return found


@given(seed=seeds)
@settings(max_examples=300, deadline=None)
def test_the_recommendation_equals_its_definition(seed: int) -> None:
    found = estimates(seed)
    ways = {
        name: oracle.Known(
            [each.tolist() for each in one.contributions],
            None if one.within is None else [each.tolist() for each in one.within],
            one.cost,
        )
        for name, one in found.items()
    }
    assert recommended(found) == oracle.recommended(ways)
    for one in found.values():
        assert one.accuracy == pytest.approx(100 * np.mean([np.mean(p) for p in one.contributions]))
        inside = one.within and 100 * np.mean([np.mean(p) for p in one.within])
        assert one.accuracy_within == pytest.approx(inside)


def test_each_way_is_recommended_for_some() -> None:
    """So that the test above compares all of them."""
    assert {recommended(estimates(seed)) for seed in range(200)} == set(CHOICES)


@pytest.mark.parametrize("max_ms", [1.0, 2.4, 2.5, 4.0, 5.0])
def test_the_time_of_a_pool_is_the_sum_over_its_models(max_ms: float) -> None:
    """Models are taken in the order of their weights; an unknown time is not within any limit."""
    left_out, within, labels = made("classification", 0)
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
