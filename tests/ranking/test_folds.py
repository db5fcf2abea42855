"""Leave-one-domain-out and leave-two-domains-out folds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.ranking.data import CASES, folds_of, lacking, moments_of, simulate_domains

from oodzoo import moments as moments_module
from oodzoo.backend import Backend
from oodzoo.errors import InputError
from oodzoo.evidence import decompose
from oodzoo.moments import Moments
from oodzoo.ranking.folds import Fold, leave_one_domain_out, leave_two_domains_out, pack, unpack


def test_a_class_of_one_domain_alone_is_skipped_there() -> None:
    folds = {fold.domain: fold for fold in folds_of(lacking())}
    assert folds["a"].skipped == folds["b"].skipped == ()
    fold = folds["c"]
    assert fold.skipped == (2,)
    assert np.isnan(fold.alpha[2])
    assert not fold.correct[fold.labels == 2].any()


@pytest.mark.parametrize("shards", [1, 3])
def test_does_not_depend_on_shards_and_blocks(shards: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = simulate_domains([60, 50, 40], 8)
    expected = folds_of(data)
    monkeypatch.setattr(moments_module, "_MIN_ROWS", 7)
    monkeypatch.setattr(Backend, "block_bytes", 0)

    def pieces(name: str) -> Any:
        Phi, y = data[name]
        return zip(np.array_split(Phi, shards), np.array_split(y, shards), strict=True)

    domains = {name: Moments.stream(pieces(name), 3) for name in data}
    for fold, same in zip(leave_one_domain_out(domains, pieces), expected, strict=True):
        assert fold.discriminability == pytest.approx(same.discriminability, rel=1e-11)
        np.testing.assert_allclose(fold.label_log_density, same.label_log_density, rtol=1e-9)
        np.testing.assert_allclose(fold.feature_log_density, same.feature_log_density, rtol=1e-9)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_storage_type_changes_nothing_but_the_values_stored(dtype: str) -> None:
    stored = {
        k: (Phi.astype(dtype), y) for k, (Phi, y) in simulate_domains([60, 50, 40], 8).items()
    }
    exact = {k: (Phi.astype(float), y) for k, (Phi, y) in stored.items()}
    for fold, same in zip(folds_of(stored), folds_of(exact), strict=True):
        assert fold.discriminability == pytest.approx(same.discriminability, rel=1e-12)


def assert_same(one: Fold, other: Fold) -> None:
    for name, value in vars(one).items():
        if name in ("alpha", "beta"):  # free along a flat maximum
            continue
        same = getattr(other, name)
        if isinstance(value, float | np.ndarray):
            np.testing.assert_allclose(value, same, rtol=1e-9, atol=1e-11, err_msg=name)
        else:
            assert value == same


@pytest.mark.parametrize("case", CASES)
def test_pytorch_agrees(case: str) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    data = CASES[case]()
    for fold, same in zip(folds_of(data, device="cpu"), folds_of(data), strict=True):
        assert_same(fold, same)


def test_setting_a_test_domain_aside_equals_never_having_seen_it() -> None:
    data = simulate_domains([30, 20, 40, 10], 5)
    found = leave_two_domains_out(moments_of(data, 3), lambda name: [data[name]])
    assert list(found) == list(data)
    for test, folds in found.items():
        rest = {name: data[name] for name in data if name != test}
        for fold, same in zip(folds, folds_of(rest), strict=True):
            assert fold.domain == same.domain
            assert_same(fold, same)


def test_test_and_left_out_domain_share_a_decomposition(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(*args: Any) -> Any:
        calls.append(args)
        return decompose(*args)

    monkeypatch.setattr("oodzoo.ranking.folds.decompose", counted)
    data = simulate_domains([30, 20, 40, 10], 5)
    leave_one_domain_out(moments_of(data, 3), lambda name: [data[name]])
    assert len(calls) == 4 + 1
    calls.clear()
    leave_two_domains_out(moments_of(data, 3), lambda name: [data[name]])
    assert len(calls) == 6 + 4


def test_too_few_domains() -> None:
    data = simulate_domains([30, 20], 5)
    with pytest.raises(InputError, match=r"at least 3 domains are needed .* got 2: 'a', 'b'"):
        leave_two_domains_out(moments_of(data, 3), lambda name: [data[name]])
    with pytest.raises(InputError, match=r"at least 2 domains .* got 0: none"):
        leave_one_domain_out({}, lambda name: [data[name]])


def test_a_second_pass_that_differs_from_the_first() -> None:
    data = simulate_domains([30, 20], 5)
    with pytest.raises(InputError, match="moments are of 30 samples, but the shards have 0"):
        leave_one_domain_out(moments_of(data, 3), lambda name: [])
    with pytest.raises(InputError, match="moments have 5 features, but the shards have 4"):
        leave_one_domain_out(
            moments_of(data, 3), lambda name: [(data[name][0][:, 1:], data[name][1])]
        )


def test_domains_that_do_not_fit_together() -> None:
    domains = moments_of(simulate_domains([30, 20], 5), 3) | {
        "d": moments_of(simulate_domains([9], 4), 3)["a"],
    }
    said = "domain 'a' has 5 features and 3 classes, but domain 'd' has 4 and 3"
    with pytest.raises(InputError, match=said):
        leave_one_domain_out(domains, lambda name: [])


@pytest.mark.parametrize("stability", ["robust", "paper"])
def test_packed_folds_are_restored(stability: Any) -> None:
    data = lacking()
    folds = leave_one_domain_out(moments_of(data, 3), lambda d: [data[d]], stability=stability)
    for fold, same in zip(unpack(pack(folds)), folds, strict=True):
        assert (fold.skipped, fold.unconverged) == (same.skipped, same.unconverged)
        assert fold.shrinkage == same.shrinkage
        assert_same(fold, same)


@pytest.mark.parametrize("stability", ["robust", "paper"])
@pytest.mark.parametrize("d", [6, 90])
def test_a_large_offset_costs_nothing(d: int, stability: Any) -> None:
    """From some size on, an offset is an intercept without a penalty, however large it is."""
    rng = np.random.default_rng(5)
    labels, direction = np.arange(60) % 3, rng.normal(size=d)
    data = {
        name: (
            rng.normal(size=(60, d)) + 3 * np.eye(3, d)[labels] + 0.2 * rng.normal(size=d),
            labels,
        )
        for name in "abc"
    }

    def moved(size: float) -> list[Fold]:
        there = {name: (X + size * direction, y) for name, (X, y) in data.items()}
        moments = moments_of(there, 3)
        return leave_one_domain_out(moments, lambda name: [there[name]], stability=stability)

    for one, two in zip(moved(1e5), moved(1e8), strict=True):
        assert one.accuracy == two.accuracy > 0.8
        for name in ("discriminability", "stability", "label_spread", "density_spread"):
            assert getattr(one, name) == pytest.approx(getattr(two, name), rel=1e-4, abs=1e-5), name
        np.testing.assert_allclose(
            one.feature_log_density, two.feature_log_density, rtol=1e-4, atol=1e-4
        )
    for one, two in zip(moved(0.999e3), moved(1.001e3), strict=True):  # at the limit
        assert one.discriminability == pytest.approx(two.discriminability, rel=1e-5)
        assert one.stability == pytest.approx(two.stability, rel=1e-5, abs=1e-5)
