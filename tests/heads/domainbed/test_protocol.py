"""Seeds, splits and draws against values of the reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.heads.partition import require_whole

from oodzoo.errors import InputError
from oodzoo.heads.domainbed.protocol import (
    Hyperparameters,
    folds,
    hyperparameters,
    require_search_space,
    seed_hash,
    split,
)


def test_seed_of_the_reference() -> None:
    assert seed_hash(0, 0) == 894182419


def test_split_of_the_reference() -> None:
    inside, outside = split(10, trial=0, domain=0)
    assert outside.tolist() == [2, 3]
    assert sorted([*inside, *outside]) == list(range(10))


def test_splits_differ_between_trials_and_domains() -> None:
    parts = {tuple(split(50, trial, domain).outside) for trial in range(3) for domain in range(3)}
    assert len(parts) == 9


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(10, 200), st.integers(2, 60), st.integers(0, 9))
def test_a_split_keeps_groups_whole(seed: int, n: int, n_groups: int, trial: int) -> None:
    rng = np.random.default_rng(seed)
    groups = [f"g{number}" for number in rng.integers(0, n_groups, n)]
    groups[:2] = ["g0", "g1"]
    inside, outside = split(n, trial, 1, groups)
    require_whole(groups, inside, outside)
    sizes = np.unique(groups, return_counts=True)[1]
    target = int(0.2 * n)
    if sizes.min() < 2 * target:
        assert abs(len(outside) - target) <= sizes.max() / 2
    else:
        assert len(outside) == sizes.min()


def test_proportions_of_grouped_splits() -> None:
    groups = np.repeat(np.arange(100), 7).tolist()
    shares = [len(split(700, trial, 0, groups).outside) / 700 for trial in range(20)]
    assert np.allclose(shares, 0.2)


@pytest.mark.parametrize("groups", [[None] * 50, list(range(50)), [*range(25), *[None] * 25]])
def test_groups_of_one_sample_change_nothing(groups: list[int | None]) -> None:
    for trial in range(3):
        for part, other in zip(split(50, trial, 2), split(50, trial, 2, groups), strict=True):
            np.testing.assert_array_equal(part, other)


def test_large_groups_are_not_held_out_more_often() -> None:
    groups = [*["large"] * 20, *np.repeat(np.arange(40), 2).tolist()]
    held_out = [0 in split(100, trial, 0, groups).outside for trial in range(400)]
    assert 0.01 < np.mean(held_out) < 0.2


def test_one_group_cannot_be_split() -> None:
    with pytest.raises(InputError, match="at least two groups"):
        split(10, 0, 0, ["a"] * 10)


def test_draw_zero_is_the_default() -> None:
    assert hyperparameters(0, trial=1) == Hyperparameters(5e-5, 0.0, 32, 0.0)


def test_a_draw_is_made_as_in_the_reference() -> None:
    """Each value from a generator of its own, seeded by the draw's seed and the value's name."""
    seed = seed_hash(3, 1)
    drawn = hyperparameters(3, trial=1)
    state = {n: np.random.RandomState(seed_hash(seed, n)) for n in ("lr", "batch_size")}
    assert drawn.lr == 10 ** state["lr"].uniform(-5, -3.5)
    assert drawn.batch_size == int(2 ** state["batch_size"].uniform(3, 5.5))


def test_batch_sizes_of_domainnet() -> None:
    """Only the batch size differs: 2^U(3, 5) instead of 2^U(3, 5.5), from the same seed."""
    for draw in range(1, 20):
        other, found = (hyperparameters(draw, 2, space) for space in ("default", "DomainNet"))
        state = np.random.RandomState(seed_hash(seed_hash(draw, 2), "batch_size"))
        assert found.batch_size == int(2 ** state.uniform(3, 5)) < 32
        assert (found.lr, found.weight_decay) == (other.lr, other.weight_decay)
        assert found.dropout == other.dropout
    assert hyperparameters(0, 2, "DomainNet") == hyperparameters(0, 2)


def test_unknown_search_space() -> None:
    with pytest.raises(InputError, match="'PACS'; expected one of default, DomainNet"):
        require_search_space("PACS")


def test_draws_stay_in_their_ranges_and_differ() -> None:
    drawn = [hyperparameters(draw, trial) for draw in range(1, 40) for trial in range(3)]
    assert all(1e-5 <= h.lr <= 10**-3.5 for h in drawn)
    assert all(1e-6 <= h.weight_decay <= 1e-2 for h in drawn)
    assert {h.batch_size for h in drawn} <= set(range(8, 46))
    assert {h.dropout for h in drawn} == {0.0, 0.1, 0.5}
    assert len(set(drawn)) == len(drawn)


def test_folds_of_four_domains() -> None:
    """Each domain, and each pair: what the reference calls all combinations of test domains."""
    found = folds(range(4), range(4))
    assert set(found) == {(0,), (1,), (2,), (3,), (0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)}
    assert len(found) == 10


def test_two_domains_have_no_pairs() -> None:
    assert folds([0, 1], [1]) == ((1,),)
