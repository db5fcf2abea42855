"""DomainBed's protocol and rules against values of the reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.heads.partition import require_whole

from oodzoo.linear.heads.domainbed.protocol import (
    Hyperparameters,
    folds,
    hyperparameters,
    seed_hash,
    split,
)
from oodzoo.linear.heads.domainbed.rules import Record, cell, chosen


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


@pytest.mark.parametrize("groups", [[None] * 50, list(range(50)), [*range(25), *[None] * 25]])
def test_groups_of_one_sample_change_nothing(groups: list[int | None]) -> None:
    for trial in range(3):
        for part, other in zip(split(50, trial, 2), split(50, trial, 2, groups), strict=True):
            np.testing.assert_array_equal(part, other)


def test_large_groups_are_not_held_out_more_often() -> None:
    groups = [*["large"] * 20, *np.repeat(np.arange(40), 2).tolist()]
    held_out = [0 in split(100, trial, 0, groups).outside for trial in range(400)]
    assert 0.01 < np.mean(held_out) < 0.2


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


def record(
    test_domains: tuple[int, ...],
    inside: list[float],
    outside: list[float],
    draw: int = 0,
    step: int = 0,
) -> Record:
    return Record(
        test_domains,
        0,
        draw,
        step,
        Hyperparameters(),
        dict(enumerate(inside)),
        dict(enumerate(outside)),
    )


def test_training_domain_validation_looks_at_the_others_out_splits() -> None:
    records = [
        record((0,), [0.9, 0, 0], [0.9, 0.5, 0.5], draw=0),  # best on the test domain
        record((0,), [0.1, 0, 0], [0.0, 0.4, 0.8], draw=1),  # best on the average of the others
        record((0,), [0.2, 1, 1], [1.0, 0.3, 0.3], draw=2),
    ]
    found = chosen("training-domain", 0, 0, records)
    assert found is records[1]
    assert found.accuracy == 0.1


def test_leave_one_domain_out_looks_at_the_runs_without_two_domains() -> None:
    records = []
    for draw, (one, two) in enumerate([(0.2, 0.9), (0.6, 0.6), (0.5, 0.5)]):
        records += [
            record((0,), [0.3, 1, 1], [1, 1, 1], draw),
            record((0, 1), [0, one, 1], [0, 0, 0], draw),
            record((0, 2), [0, 1, two], [0, 0, 0], draw),
            record((1, 2), [0, 1, 1], [1, 1, 1], draw),
        ]
    found = chosen("leave-one-domain-out", 0, 0, records)
    assert found is not None
    assert (found.draw, found.test_domains) == (1, (0,))


def test_leave_one_domain_out_needs_all_pairs() -> None:
    records = [record((0,), [1, 1, 1], [1, 1, 1]), record((0, 1), [1, 1, 1], [1, 1, 1])]
    assert chosen("leave-one-domain-out", 0, 0, records) is None


def test_oracle_looks_at_the_last_step_only() -> None:
    records = [
        record((0,), [0.1, 1, 1], [0.9, 1, 1], draw=0, step=0),
        record((0,), [0.2, 1, 1], [0.3, 1, 1], draw=0, step=300),
        record((0,), [0.3, 1, 1], [0.2, 1, 1], draw=1, step=0),
        record((0,), [0.4, 1, 1], [0.4, 1, 1], draw=1, step=300),
    ]
    assert chosen("oracle", 0, 0, records) is records[3]


def test_equals_first_step_and_last_draw() -> None:
    records = [
        record((0,), [0, 0, 0], [0, 0.5, 0.5], draw, step) for draw in (0, 1) for step in (0, 300)
    ]
    assert chosen("training-domain", 0, 0, records) is records[2]


def test_only_the_trial_that_is_asked_for() -> None:
    assert chosen("oracle", 0, 1, [record((0,), [1, 1], [1, 1])]) is None


@pytest.mark.parametrize(
    ("accuracies", "text"), [([0.5], "50.0 +/- 0.0"), ([0.8, 0.82, 0.84], "82.0 +/- 0.9")]
)
def test_cell(accuracies: list[float], text: str) -> None:
    assert cell(accuracies) == text
