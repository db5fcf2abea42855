"""Which way of combining models is recommended."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles import combination as oracle

from oodzoo.combination.verdict import CHOICES, Estimate, is_better, is_close, recommend

seeds = st.integers(0, 10_000)


def right(number: int, of: int = 100) -> Any:
    return np.arange(of) < number


def estimates(seed: int) -> dict[str, Estimate]:
    """Four ways with the same hits but for a few, on three domains of different size."""
    rng = np.random.default_rng(seed)
    truth = [rng.random(n) < 0.7 for n in (8, 30, 17)]
    found = {}
    for name in CHOICES:
        flips = [rng.random(len(each)) < rng.choice([0.02, 0.2]) for each in truth]
        correct = [each ^ flip for each, flip in zip(truth, flips, strict=True)]
        found[name] = Estimate(correct, float(rng.integers(1, 4)))
    return found


@given(seed=seeds)
def test_the_recommendation_equals_its_definition(seed: int) -> None:
    found = estimates(seed)
    expected = oracle.recommended(
        {name: [each.tolist() for each in one.contributions] for name, one in found.items()},
        {name: one.cost for name, one in found.items()},
    )
    assert recommend(found) == expected


@given(seed=seeds)
def test_the_pool_is_left_for_a_clear_gain_or_a_lower_cost(seed: int) -> None:
    found = estimates(seed)
    chosen, pool = found[recommend(found)], found["pool"]
    assert (
        chosen is pool
        or is_better(chosen, pool)
        or chosen.cost <= pool.cost
        or any(is_better(each, pool) and is_close(chosen, each) for each in found.values())
    )


@given(seed=seeds, domain=st.integers(0, 2), times=st.integers(2, 5))
def test_domains_weigh_alike(seed: int, domain: int, times: int) -> None:
    found = estimates(seed)
    for each in found.values():
        parts = list(each.contributions)
        parts[domain] = np.tile(parts[domain], times)
        assert Estimate(parts, each.cost).accuracy == pytest.approx(each.accuracy)


def test_a_cheaper_way_within_a_standard_error_wins() -> None:
    """A difference of one image of 100 has the standard error 0.995 %, of two 1.4 %, …"""
    best = Estimate([right(80)], 3.0)
    assert recommend({"single": Estimate([right(80)], 1.0), "pool": best}) == "single"
    assert recommend({"single": Estimate([right(75)], 1.0), "pool": best}) == "pool"
    other = right(80)[::-1]  # as accurate, right about other images
    assert recommend({"single": Estimate([other], 1.0), "pool": best}) == "single"
    mixed = other.copy()
    mixed[-4:] = False  # 4 % less accurate, with the standard error 6 %
    assert recommend({"single": Estimate([mixed], 1.0), "pool": best}) == "single"
    assert recommend({"single": Estimate([mixed], 4.0), "pool": best}) == "pool"


def test_another_way_must_be_better_by_more_than_the_spread_between_domains() -> None:
    pool = Estimate([right(80), right(60), right(70)], 1.0)
    steady = Estimate([right(84), right(63), right(75)], 2.0)
    erratic = Estimate([right(99), right(57), right(66)], 2.0)
    assert recommend({"pool": pool, "ensemble": steady}) == "ensemble"
    assert recommend({"pool": pool, "ensemble": erratic}) == "pool"
    assert not is_better(Estimate([right(99)], 1.0), Estimate([right(1)], 1.0))


@given(gain=st.integers(1, 40), n_domains=st.integers(2, 6), seed=seeds)
def test_a_gain_in_one_domain_only_is_not_enough(gain: int, n_domains: int, seed: int) -> None:
    """It equals its standard error, whatever the number of domains."""
    hits = np.random.default_rng(seed).integers(0, 60, n_domains)
    more = hits + gain * (np.arange(n_domains) == seed % n_domains)
    one, other = (Estimate([right(n) for n in each], 1.0) for each in (more, hits))
    assert not is_better(one, other)


def test_a_cheaper_way_must_be_close_in_every_domain() -> None:
    pool = Estimate([right(80), right(60)], 3.0)
    found = {"pool": pool, "single": Estimate([right(100), right(50)], 1.0)}
    assert recommend(found) == "pool"
    assert recommend(found | {"single": Estimate([right(80), right(60)[::-1]], 1.0)}) == "single"


def test_the_pool_is_taken_of_equal_ways() -> None:
    same = Estimate([right(50)], 1.0)
    assert recommend(dict.fromkeys(CHOICES, same)) == "pool"


def test_accuracy_is_the_mean_over_domains_in_percent() -> None:
    assert Estimate([right(80), right(5, 10)], 1.0).accuracy == pytest.approx(65)


def test_equal_predictions_up_to_rounding_are_close() -> None:
    values = np.random.default_rng(0).normal(size=50)
    single = Estimate([values] * 3, cost=1.0)
    ensemble = Estimate([values + 1e-15] * 3, cost=2.0)
    pool = Estimate([values - 0.5] * 3, cost=2.0)
    assert recommend({"single": single, "ensemble": ensemble, "pool": pool}) == "single"
