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
    for one in found.values():
        assert one.accuracy == pytest.approx(100 * np.mean([np.mean(p) for p in one.contributions]))
        inside = one.within and 100 * np.mean([np.mean(p) for p in one.within])
        assert one.accuracy_within == pytest.approx(inside)


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


# --- 2. a single model, if what was chosen fails somewhere ---------------------------------------


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


# --- what must not matter -----------------------------------------------------------------------


def test_differences_up_to_rounding_do_not_matter() -> None:
    values = np.random.default_rng(0).normal(size=50)
    single = Estimate([values - 1e-15] * 3, 1.0, [values - 1e-15] * 3)
    pool = Estimate([values] * 3, 2.0, [values] * 3)
    ensemble = Estimate([values + 1e-15] * 3, 3.0, [values] * 3)
    assert recommend({"single": single, "ensemble": ensemble, "pool": pool}) == "single"
    assert recommend(dict.fromkeys(CHOICES, way(50, within=(60,)))) == "pool"
