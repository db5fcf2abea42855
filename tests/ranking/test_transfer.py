"""Transfer between domains against its literal formula, and its invariances."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles import unseen as oracle
from tests.ranking.data import CASES, Data, lacking, moments_of, simulate_domains
from tests.ranking.odd_domains import ODD_CASES, moved

from oodzoo.moments import Moments
from oodzoo.ranking.ridge import Transfer, into, mean_into

quick = settings(max_examples=15, deadline=None)
seeds = st.integers(0, 10_000)


def transfer_of(data: Data, n_classes: int = 3, device: str | None = None) -> Transfer:
    return Transfer.of(moments_of(data, n_classes, device))


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("case", ODD_CASES)
def test_equals_its_formula(case: str, device: str | None) -> None:
    if device is not None:
        pytest.importorskip("torch", reason="PyTorch is not installed")
    data = ODD_CASES[case]()
    transfer = transfer_of(data, device=device)
    assert transfer.domains == tuple(data)
    assert np.isnan(transfer.skills[range(len(data)), range(len(data))]).all()
    expected = oracle.pairs(data, 3)
    found = transfer.pairs()
    for row, source in enumerate(data):
        for column, target in enumerate(data):
            value = expected.get((source, target), np.nan)
            assert found[row, column] == pytest.approx(value, abs=1e-9, nan_ok=True)
    assert into(found) == pytest.approx(
        list(oracle.into(expected, data).values()), abs=1e-9, nan_ok=True
    )
    assert transfer.skill() == pytest.approx(oracle.transfer(data, 3), abs=1e-9)


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("case", ["n > d", "n < d"])
@pytest.mark.parametrize(("size", "tolerance"), [(999.0, 1e-8), (1e5, 1e-8), (1e8, 1e-6)])
def test_a_large_offset_costs_nothing(
    case: str, size: float, tolerance: float, device: str | None
) -> None:
    if device is not None:
        pytest.importorskip("torch", reason="PyTorch is not installed")
    data = CASES[case]()
    there = transfer_of(moved(data, size), device=device)
    np.testing.assert_allclose(there.skills, transfer_of(data).skills, atol=tolerance)


def test_several_classes_and_domains_of_very_different_sizes() -> None:
    data = simulate_domains([200, 60, 9], 8, n_classes=5)
    found = transfer_of(data, n_classes=5)
    assert found.skill() == pytest.approx(oracle.transfer(data, 5), abs=1e-10)
    assert found.skill() > 0


def test_an_offset_of_one_domain_alone() -> None:
    """Nothing is predicted into or from it, and nothing changes between the others."""
    data = simulate_domains([60, 50, 40], 8)
    data["a"] = (data["a"][0] + 1e5, data["a"][1])
    found = transfer_of(data)
    assert found.skill() == pytest.approx(oracle.transfer(data, 3), abs=1e-9)
    assert found.pairs()[0, 1:] == pytest.approx([0, 0])
    assert found.pairs()[1:, 0] == pytest.approx([0, 0])
    without = transfer_of({name: data[name] for name in "bc"})
    np.testing.assert_array_equal(found.skills[1:, 1:], without.skills)


# --- properties ---------------------------------------------------------------------------------


@given(
    seed=seeds,
    d=st.integers(1, 40),
    sizes=st.lists(st.integers(1, 40), min_size=2, max_size=4),
    exponent=st.integers(-6, 6),
)
@quick
def test_skills_are_shares(seed: int, d: int, sizes: list[int], exponent: int) -> None:
    data = simulate_domains(sizes, d, seed=seed)
    data["a"] = (data["a"][0] * 10.0**exponent, data["a"][1])
    transfer = transfer_of(data)
    varying = [len(np.unique(y)) > 1 for _, y in data.values()]
    for row in range(len(sizes)):
        for column in range(len(sizes)):
            skills = transfer.skills[row, column]
            if row == column or not varying[column]:
                assert np.isnan(skills).all()
            else:
                assert ((skills >= 0) & (skills <= 1)).all()
    assert 0 <= transfer.skill() <= 1


@given(seed=seeds)
@quick
def test_invariant_to_the_order_of_samples_classes_and_domains(seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = simulate_domains([30, 20, 25], 6, seed=seed)
    expected = dict(zip(data, into(transfer_of(data).pairs()), strict=True))
    samples = {name: rng.permutation(len(y)) for name, (_, y) in data.items()}
    names = rng.permutation(3)
    changed = {
        name: (data[name][0][samples[name]], names[data[name][1]][samples[name]])
        for name in rng.permutation(list(data)).tolist()
    }
    found = dict(zip(changed, into(transfer_of(changed).pairs()), strict=True))
    assert found == pytest.approx(expected, abs=1e-10, nan_ok=True)


@given(seed=seeds, d=st.sampled_from([5, 80]))
@quick
def test_invariant_to_rotation_scale_and_translation(seed: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    data = simulate_domains([30, 20, 25], d, seed=seed)
    rotation = np.linalg.qr(rng.normal(size=(d, d)))[0] * 10 ** rng.uniform(-3, 3)
    offset = 10 * rng.normal(size=d)
    changed = {name: ((Phi + offset) @ rotation, y) for name, (Phi, y) in data.items()}
    np.testing.assert_allclose(transfer_of(changed).skills, transfer_of(data).skills, atol=1e-9)


def test_repeated_samples_change_nothing() -> None:
    """Skills depend on shares and means, not on the number of samples."""
    data = simulate_domains([30, 20, 25], 6)
    twice = {name: (np.tile(Phi, (2, 1)), np.tile(y, 2)) for name, (Phi, y) in data.items()}
    np.testing.assert_allclose(transfer_of(twice).skills, transfer_of(data).skills, atol=1e-10)


def test_perfect_features_have_full_skill() -> None:
    y = np.arange(30) % 3
    data: Data = {name: (np.eye(3)[y], y) for name in "abc"}
    assert transfer_of(data).skill() == pytest.approx(1, abs=1e-3)


def test_a_flipped_domain_has_no_skill() -> None:
    """Predictions for it are worse than those of a constant, which count as none."""
    y = np.arange(30) % 2
    data: Data = {name: (np.eye(2)[y], y) for name in "ab"}
    data["c"] = (np.eye(2)[1 - y], y)
    transfer = transfer_of(data, 2)
    means = into(transfer.pairs())
    assert means[:2] == pytest.approx([0.5, 0.5], abs=1e-3)
    assert means[2] == 0


# --- parts of the domains -----------------------------------------------------------------------


@given(seed=seeds, chosen=st.permutations("abcd"), count=st.integers(1, 4))
@quick
def test_some_domains_equal_those_alone(seed: int, chosen: list[str], count: int) -> None:
    data = simulate_domains([30, 20, 25, 15], 5, seed=seed)
    some = chosen[:count]
    alone = transfer_of({name: data[name] for name in some})
    whole = transfer_of(data)
    assert whole.skill(some) == alone.skill()
    np.testing.assert_array_equal(whole.pairs(some), alone.pairs())


def test_a_class_of_another_domain_has_no_effect() -> None:
    data = lacking()  # class 2 is in c alone
    with_class = transfer_of(data).skill(["a", "b"])
    without = transfer_of({name: data[name] for name in "ab"}, n_classes=2).skill()
    assert with_class == pytest.approx(without, abs=1e-12)


def test_a_domain_with_one_class_predicts_nothing_and_is_not_predicted() -> None:
    data = simulate_domains([60, 50, 40], 8)
    data["b"] = (data["b"][0], np.full(50, 2))
    transfer = transfer_of(data)
    assert np.isnan(transfer.skills[:, 1]).all()
    np.testing.assert_array_equal(transfer.skills[1, [0, 2]], 0)
    np.testing.assert_array_equal(np.isnan(into(transfer.pairs())), [False, True, False])
    # b trains nothing, so it halves the mean over the training domains of a and c.
    assert transfer.skill() == pytest.approx(transfer.skill(["a", "c"]) / 2)


def test_nothing_to_average() -> None:
    data = simulate_domains([60, 50], 8)
    transfer = transfer_of(data)
    assert np.isnan(into(transfer.pairs(["a"]))).all()
    assert transfer.skill(["a"]) == 0
    one_class = {name: (Phi, np.zeros(len(y), int)) for name, (Phi, y) in data.items()}
    assert transfer_of(one_class).skill() == 0


# --- weights ------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [(0.5, 0.3, 0.2), (0.0, 0.5, 0.5), (0.0, 1.0, 0.0)])
def test_weights_equal_their_formula(weights: tuple[float, ...]) -> None:
    data = simulate_domains([60, 50, 40], 8, seed=3)
    transfer = transfer_of(data)
    named = dict(zip(data, weights, strict=True))
    assert transfer.skill(weights=weights) == pytest.approx(oracle.transfer(data, 3, named))
    expected = oracle.pairs(data, 3, named)
    means = into(transfer.pairs(weights=weights))
    assert means == pytest.approx(list(oracle.into(expected, data).values()), abs=1e-10)


def test_only_ratios_of_weights_matter() -> None:
    transfer = transfer_of(simulate_domains([60, 50, 40], 8, seed=3))
    assert transfer.skill(weights=[2, 3, 5]) == pytest.approx(
        transfer.skill(weights=[0.2, 0.3, 0.5])
    )
    assert transfer.skill(weights=[7, 7, 7]) == pytest.approx(transfer.skill())


@pytest.mark.parametrize("at", range(3))
def test_all_the_weight_on_one_domain(at: int) -> None:
    """The ridge is the best one for that domain; the others are trained on as before."""
    transfer = transfer_of(simulate_domains([60, 50, 40], 8, seed=3))
    others = [row for row in range(3) if row != at]
    expected = transfer.skills[others, at].mean(axis=0).max()
    assert transfer.skill(weights=np.eye(3)[at]) == pytest.approx(expected)


def test_weight_on_unknown_domains_alone_is_ignored() -> None:
    data = simulate_domains([60, 50, 40], 8)
    data["b"] = (data["b"][0], np.full(50, 2))
    transfer = transfer_of(data)
    assert transfer.skill(weights=[0, 1, 0]) == transfer.skill()


def test_pairs_that_are_not_known_are_left_out_of_means() -> None:
    pairs = np.array([[np.nan, 0.2, np.nan], [0.4, np.nan, np.nan], [0.6, np.nan, np.nan]])
    np.testing.assert_allclose(into(pairs), [0.5, 0.2, np.nan])
    assert mean_into(pairs) == pytest.approx(0.35)
    assert mean_into(pairs, [1, 3, 5]) == pytest.approx((0.5 + 3 * 0.2) / 4)
    assert mean_into(pairs, [0, 0, 1]) == pytest.approx(0.35)
    assert mean_into(np.full((2, 2), np.nan)) == 0


# --- bounded influence --------------------------------------------------------------------------


@given(
    seed=seeds, at=st.integers(0, 3), weights=st.lists(st.integers(0, 5), min_size=4, max_size=4)
)
@quick
def test_one_domain_has_bounded_influence(seed: int, at: int, weights: list[int]) -> None:
    """Whatever its features are.

    A domain of weight w is predicted with a skill in [0, 1], and is one of m - 1 domains that each
    of the others is predicted from. The best of several ridges moves no further than each of them.
    """
    rng = np.random.default_rng(seed)
    data = simulate_domains([30, 20, 25, 15], 5, seed=seed)
    known = [len(np.unique(y)) > 1 for _, y in data.values()]
    shares = np.where(known, np.array(weights) + 0.1, 0)
    shares = shares / shares.sum()
    before = transfer_of(data).skill(weights=shares)
    name = "abcd"[at]
    garbage = 10 ** rng.uniform(-5, 5) * rng.standard_cauchy(size=data[name][0].shape)
    data[name] = (garbage, data[name][1])
    after = transfer_of(data).skill(weights=shares)
    bound = shares[at] + (1 - shares[at]) / 3
    assert abs(after - before) <= bound + 1e-12


def test_shards_and_blocks_do_not_matter() -> None:
    data = simulate_domains([60, 50, 40], 8)
    pieces = {
        name: Moments.stream(
            list(zip(np.array_split(Phi, 3), np.array_split(y, 3), strict=True)), n_classes=3
        )
        for name, (Phi, y) in data.items()
    }
    np.testing.assert_allclose(Transfer.of(pieces).skills, transfer_of(data).skills, atol=1e-12)
