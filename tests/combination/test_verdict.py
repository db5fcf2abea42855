"""Which way of combining models is recommended."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles import combination as oracle

from oodzoo.combining.verdict import (
    CHOICES,
    Estimate,
    is_as_accurate,
    is_better,
    is_much_worse,
    recommend,
)

seeds = st.integers(0, 10_000)


def right(number: int, of: int = 100) -> Any:
    """Whether each of some images is classified correctly."""
    return np.arange(of) < number


def way(*numbers: int, within: tuple[int, ...] | None = None, cost: float = 1.0) -> Estimate:
    """Right about so many of 100 images of each domain."""
    inside = None if within is None else [right(n) for n in within]
    return Estimate([right(n) for n in numbers], cost, inside)


# --- the whole rule -----------------------------------------------------------------------------


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
    assert recommend(found) == oracle.recommended(ways)


def test_each_way_is_recommended_for_some() -> None:
    """So that the test above compares all of them."""
    assert {recommend(estimates(seed)) for seed in range(200)} == set(CHOICES)


# --- 1. a pool, unless another way is clearly better ----------------------------------------------


@pytest.mark.parametrize(
    ("gains", "better"),
    [
        ((5, 5, 5), True),
        ((2, 3, 4), True),  # 3, with a standard error of 0.58 and a quantile of 1.89
        ((0, 3, 6), False),  # 3, with a standard error of 1.73: 1.89 times this is more
        ((0, 0, 9), False),
        ((5,), False),
        ((0, 0, 0), False),
        ((-1, -1, -1), False),
        ((8, 2), False),  # of two domains the quantile is 3.08
        ((6, 4), True),
    ],
)
def test_another_way_must_be_better_by_more_than_domains_differ(
    gains: tuple[int, ...], better: bool
) -> None:
    pool, other = way(*(70 for _ in gains)), way(*(70 + gain for gain in gains), cost=2.0)
    assert is_better(other, pool) == better
    assert recommend({"pool": pool, "ensemble": other}) == ("ensemble" if better else "pool")


def test_another_way_must_be_better_by_more_than_chance() -> None:
    """By 1 of 10 images in both domains, which may be alike by chance; by 10 of 100, it is not."""
    for n, expected in ((10, "pool"), (100, "ensemble")):
        pool = Estimate([right(n // 2, n)] * 2, 1.0)
        other = Estimate([right(6 * n // 10, n)] * 2, 2.0)
        assert is_better(other, pool)
        assert recommend({"pool": pool, "ensemble": other}) == expected


def test_a_cheaper_way_needs_images_that_exclude_a_loss() -> None:
    """As many are right, but others: of 20 images that may hide a loss of 5 points."""
    for n, expected in ((20, "pool"), (2000, "ensemble")):
        pool, other = right(n // 2, n), np.roll(right(n // 2, n), n // 10)
        ways = {"pool": Estimate([pool] * 2, 2.0), "ensemble": Estimate([other] * 2, 1.0)}
        assert recommend(ways) == expected


def test_a_better_way_must_not_be_worse_within_the_domains() -> None:
    pool = way(70, 70, 70, within=(90, 90, 90))
    for within, expected in (
        ((90, 90, 90), "ensemble"),
        ((92, 90, 87), "pool"),
        (None, "ensemble"),
    ):
        other = way(75, 75, 75, within=within, cost=2.0)
        assert recommend({"pool": pool, "ensemble": other}) == expected


def test_of_better_ways_the_most_accurate_on_left_out_domains_wins() -> None:
    ways = {
        "pool": way(70, 70, within=(70, 70)),
        "ensemble": way(75, 75, within=(99, 99)),
        "selection": way(80, 80, within=(70, 70)),
    }
    assert recommend(ways) == "selection"


# --- 2. a single model, if what was chosen fails somewhere ---------------------------------------


@pytest.mark.parametrize("somewhere", ["left out", "within"])
def test_a_single_model_replaces_what_fails_in_some_domain(somewhere: str) -> None:
    """It is less accurate on average, and as cheap, but fails nowhere itself."""
    fine, failing, worse = (80, 80, 80), (86, 86, 76), (79, 79, 80)
    if somewhere == "left out":
        pool, single = way(*failing, within=fine), way(*worse, within=fine)
    else:
        pool, single = way(*fine, within=failing), way(*fine, within=worse)
    assert is_much_worse(pool, single)
    assert recommend({"pool": pool, "single": single}) == "pool"  # the single model fails, too
    others = way(83, 83, 80)
    single = (
        Estimate(others.contributions, 1.0, pool.within)
        if somewhere == "left out"
        else Estimate(pool.contributions, 1.0, others.contributions)
    )
    assert not is_much_worse(single, pool)
    assert recommend({"pool": pool, "single": single}) == "single"
    assert recommend({"pool": pool, "selection": single}) == "pool"  # only a single model does so


def test_much_worse_is_two_standard_errors_of_the_same_images() -> None:
    """4 of 100 images: a loss of 4 %, and 2 standard errors of 2 sqrt(.04 · .96 / 100) = 3.9 %."""
    best = way(80)
    assert is_much_worse(way(76), best)
    assert not is_much_worse(way(77), best)
    assert not is_much_worse(way(81), best)
    assert not is_much_worse(Estimate([right(76)[::-1]], 1.0), best)  # about other images
    assert is_much_worse(way(80, within=(76,)), way(80, within=(80,)))
    assert not is_much_worse(way(80, within=(76,)), best)  # unknown


# --- 3. a cheaper way that is not less accurate -------------------------------------------------


@pytest.mark.parametrize(
    ("single", "expected"),
    [
        (way(80, 80, within=(90, 90)), "single"),
        (way(81, 80, within=(91, 90)), "single"),
        (way(82, 79, within=(91, 90)), "pool"),
        (way(80, 79, within=(90, 90)), "pool"),
        (way(80, 80, within=(90, 89)), "pool"),
        (way(80, 80), "pool"),
        (way(80, 80, within=(90, 90), cost=3.0), "pool"),
        (way(80, 80, within=(90, 90), cost=4.0), "pool"),
    ],
)
def test_a_cheaper_way_must_not_be_less_accurate(single: Estimate, expected: str) -> None:
    pool = way(80, 80, within=(90, 90), cost=3.0)
    assert recommend({"single": single, "pool": pool}) == expected
    other = "selection" if expected == "single" else "pool"
    assert recommend({"selection": single, "pool": pool}) == other


def test_a_cheaper_way_must_not_fail_anywhere() -> None:
    pool = way(80, 60, 70, cost=3.0)
    ensemble = way(90, 50, 70)
    assert is_much_worse(ensemble, pool)
    assert not is_as_accurate(ensemble, pool)
    assert recommend({"pool": pool, "ensemble": ensemble}) == "pool"


# --- what must not matter -----------------------------------------------------------------------


@given(seed=seeds, domain=st.integers(0, 3), times=st.integers(2, 5))
def test_domains_weigh_alike(seed: int, domain: int, times: int) -> None:
    for each in estimates(seed).values():
        left_out, within = list(each.contributions), list(each.within or each.contributions)
        for parts in (left_out, within):
            parts[domain % len(parts)] = np.tile(parts[domain % len(parts)], times)
        tiled = Estimate(left_out, each.cost, None if each.within is None else within)
        assert tiled.accuracy == pytest.approx(each.accuracy)
        assert tiled.accuracy_within == pytest.approx(each.accuracy_within)


def test_accuracies_are_the_mean_over_domains_in_percent() -> None:
    each = Estimate([right(80), right(5, 10)], 1.0, [right(40), right(6, 10)])
    assert each.accuracy == pytest.approx(65)
    assert each.accuracy_within == pytest.approx(50)
    assert way(80).accuracy_within is None


def test_the_pool_is_taken_of_equal_ways() -> None:
    assert recommend(dict.fromkeys(CHOICES, way(50, within=(60,)))) == "pool"


def test_differences_up_to_rounding_do_not_matter() -> None:
    values = np.random.default_rng(0).normal(size=50)
    single = Estimate([values - 1e-15] * 3, 1.0, [values - 1e-15] * 3)
    pool = Estimate([values] * 3, 2.0, [values] * 3)
    ensemble = Estimate([values + 1e-15] * 3, 3.0, [values] * 3)
    assert recommend({"single": single, "ensemble": ensemble, "pool": pool}) == "single"
