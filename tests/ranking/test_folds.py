"""Leave-one-domain-out and leave-two-domains-out folds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles import folds as oracle
from tests.ranking.data import CASES, Data, folds_of, lacking, moments_of, simulate_domains
from tests.ranking.odd_domains import ODD_CASES, moved

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
    assert not (fold.predicted == fold.labels)[fold.labels == 2].any()


# --- ridge regression -------------------------------------------------------------------------


def assert_ridge(folds: list[Fold], data: Data) -> None:
    """Compare with a regression of the other domains at the ridge that is best for all of them."""
    expected = oracle.leave_one_out(data, 3)
    assert [fold.domain for fold in folds] == list(expected)
    for fold in folds:
        result = expected[fold.domain]
        assert fold.ridge == result.ridge
        assert fold.labels.tolist() == data[fold.domain][1].tolist()
        assert fold.predicted.tolist() == result.predicted
        assert fold.metric == pytest.approx(result.accuracy, rel=1e-12)
        assert fold.second_metric == pytest.approx(result.balanced_accuracy, rel=1e-12)
        assert fold.contributions.mean() == fold.metric


@pytest.mark.parametrize("size", [30.0, 300.0, 999.0, 1e4])
@pytest.mark.parametrize("case", ["n > d", "n < d"])
def test_an_offset_changes_no_prediction(case: str, size: float) -> None:
    data = CASES[case]()
    there = moved(data, size)
    for fold, other in zip(folds_of(data), folds_of(there), strict=True):
        assert fold.ridge == other.ridge
        assert fold.predicted.tolist() == other.predicted.tolist()


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("case", ODD_CASES)
def test_predictions_are_those_of_the_best_ridge(case: str, device: str | None) -> None:
    if device is not None:
        pytest.importorskip("torch", reason="PyTorch is not installed")
    data = ODD_CASES[case]()
    assert_ridge(folds_of(data, device=device), data)


@pytest.mark.parametrize(
    "case",
    ["n > d", "n < d", "a class absent from some domains", "four domains", "constant features"],
)
def test_the_ridge_is_chosen_without_the_test_domain(case: str) -> None:
    data = ODD_CASES[case]()
    found = leave_two_domains_out(moments_of(data, 3), lambda name: [data[name]])
    for test, folds in found.items():
        assert_ridge(folds, {name: data[name] for name in data if name != test})


def test_the_ridge_is_the_best_on_average() -> None:
    """Not the best for any single domain."""
    data = simulate_domains([25, 30, 20, 15], 10, seed=3)
    alone = {
        oracle.best_ridge([(oracle.pooled(data, [e for e in data if e != k]), data[k])], 3)
        for k in data
    }
    assert folds_of(data)[0].ridge not in alone
    assert_ridge(folds_of(data), data)


def test_a_domain_with_one_class_has_no_say_in_the_ridge() -> None:
    data = simulate_domains([60, 50, 40], 8)
    data["c"] = (data["c"][0], np.ones(40, int))
    assert_ridge(folds_of(data), data)


@given(
    value=st.sampled_from([0.1, 1 / 3, 7.7, 1e5 / 3]),
    sizes=st.lists(st.integers(1, 30), min_size=2, max_size=3),
    d=st.integers(1, 30),
)
@settings(deadline=None)
def test_constant_features_predict_the_most_frequent_class(
    value: float, sizes: list[int], d: int
) -> None:
    data = {k: (np.full_like(X, value), y) for k, (X, y) in simulate_domains(sizes, d).items()}
    for fold in folds_of(data):
        labels = np.concatenate([y for k, (_, y) in data.items() if k != fold.domain])
        counts = np.bincount(labels, minlength=3)
        assert (counts[fold.predicted] == counts.max()).all()


def test_balanced_accuracy_counts_classes_alike() -> None:
    data = simulate_domains([60, 50, 40], 8)
    rare = np.flatnonzero(data["c"][1] == 0)[1:]
    data["c"] = tuple(np.delete(part, rare, axis=0) for part in data["c"])  # type: ignore[assignment]
    (fold,) = (fold for fold in folds_of(data) if fold.domain == "c")
    recalls = [(fold.predicted == fold.labels)[fold.labels == label].mean() for label in range(3)]
    assert fold.second_metric == pytest.approx(np.mean(recalls))
    assert fold.second_metric != pytest.approx(fold.metric, abs=0.01)


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
        assert one.metric == two.metric > 0.8
        for name in ("discriminability", "stability", "label_spread", "density_spread"):
            assert getattr(one, name) == pytest.approx(getattr(two, name), rel=1e-4, abs=1e-5), name
        np.testing.assert_allclose(
            one.feature_log_density, two.feature_log_density, rtol=1e-4, atol=1e-4
        )
    for one, two in zip(moved(0.999e3), moved(1.001e3), strict=True):  # at the limit
        assert one.discriminability == pytest.approx(two.discriminability, rel=1e-5)
        assert one.stability == pytest.approx(two.stability, rel=1e-5, abs=1e-5)
