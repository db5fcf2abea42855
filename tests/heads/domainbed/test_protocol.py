"""Seeds, splits and draws against values of the reference."""

from __future__ import annotations

import numpy as np

from oodzoo.heads.domainbed.protocol import (
    Hyperparameters,
    folds,
    hyperparameters,
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


def test_draw_zero_is_the_default() -> None:
    assert hyperparameters(0, trial=1) == Hyperparameters(5e-5, 0.0, 32, 0.0)


def test_a_draw_is_made_as_in_the_reference() -> None:
    """Each value from a generator of its own, seeded by the draw's seed and the value's name."""
    seed = seed_hash(3, 1)
    drawn = hyperparameters(3, trial=1)
    state = {n: np.random.RandomState(seed_hash(seed, n)) for n in ("lr", "batch_size")}
    assert drawn.lr == 10 ** state["lr"].uniform(-5, -3.5)
    assert drawn.batch_size == int(2 ** state["batch_size"].uniform(3, 5.5))


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
