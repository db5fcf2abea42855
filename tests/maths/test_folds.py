"""Folds: discriminability, stability, ridge regressions and transfer, against literal formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.covariance import oas
from sklearn.metrics import average_precision_score, r2_score
from tests.oracles import bayes
from tests.oracles import folds as oracle
from tests.oracles import unseen as skills_oracle
from tests.ranking.data import (
    CASES,
    ODD_CASES,
    Data,
    folds_of,
    lacking,
    moments_of,
    moved,
    simulate_domains,
)

from oodzoo.core.backend import Backend, backend, to_numpy
from oodzoo.core.errors import InputError
from oodzoo.extraction.source import ArraySource
from oodzoo.linear import moments as moments_module
from oodzoo.linear.evidence import Spectrum, decompose, maximise_evidence
from oodzoo.linear.moments import Moments, merge
from oodzoo.ranking.folds import (
    Fold,
    Stability,
    leave_one_domain_out,
    leave_two_domains_out,
    pack,
    unpack,
)
from oodzoo.ranking.inputs import Inputs, read_inputs
from oodzoo.ranking.ridge import RIDGES, RidgePath, Transfer, into, mean_into
from oodzoo.ranking.zood import discriminability
from oodzoo.tasks import Kind

quick = settings(max_examples=12, deadline=None)
seeds = st.integers(0, 10_000)
STABILITIES: tuple[Stability, ...] = ("robust", "paper")


def folds_as(data: Data, stability: Stability, device: str | None = None) -> list[Fold]:
    moments = moments_of(data, 3, device)
    return leave_one_domain_out(
        moments, lambda name: [data[name]], stability=stability, device=device
    )


def two_out(data: Data, n_classes: int = 3) -> dict[str, list[Fold]]:
    return leave_two_domains_out(moments_of(data, n_classes), lambda name: [data[name]])


def others(data: Data, name: str) -> Data:
    return {domain: part for domain, part in data.items() if domain != name}


def assert_same(one: Fold, other: Fold) -> None:
    for name, value in vars(one).items():
        if name in ("alpha", "beta"):  # free along a flat maximum
            continue
        same = getattr(other, name)
        if isinstance(value, float | np.ndarray):
            np.testing.assert_allclose(value, same, rtol=1e-9, atol=1e-11, err_msg=name)
        else:
            assert value == same


# --- all parts of a fold --------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_discriminability_equals_the_evidence_ratio_and_the_remark(case: str) -> None:
    data = CASES[case]()
    for fold in folds_of(data):
        Phi_i, y_i = data[fold.domain]
        Phi = np.vstack([part for part, _ in others(data, fold.domain).values()])
        y = np.concatenate([labels for _, labels in others(data, fold.domain).values()])
        classes = np.unique(y)
        # With more features than samples, of some classes the noise is at its bound.
        for c in fold.unconverged:
            ridge = fold.alpha[c] / fold.beta[c]
            assert ridge == pytest.approx(bayes.least_ridge(Phi), rel=1e-6)
        assert case == "n < d" or not fold.unconverged
        assert fold.skipped == tuple(sorted({0, 1, 2} - set(classes.tolist())))
        assert np.isnan(fold.alpha[list(fold.skipped)]).all()
        Y_i, Y = bayes.one_hot(y_i, 3), bayes.one_hot(y, 3)
        formulas: list[Any] = [bayes.ratio, bayes.remark, bayes.marginals]
        ratio, remark, marginals = (
            np.mean(
                [of(Phi_i, Y_i[:, c], Phi, Y[:, c], fold.alpha[c], fold.beta[c]) for c in classes],
                axis=0,
            )
            for of in formulas
        )
        assert fold.discriminability == pytest.approx(ratio / len(y_i), rel=1e-8)
        assert fold.discriminability == pytest.approx(remark / len(y_i), rel=1e-8)
        np.testing.assert_allclose(fold.label_log_density, marginals, rtol=1e-8, atol=1e-10)
        assert fold.label_spread == pytest.approx(np.std(marginals), rel=1e-7, abs=1e-12)


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


@pytest.mark.parametrize("case", ODD_CASES)
def test_predictions_are_those_of_the_best_ridge(case: str, device: str | None) -> None:
    data = ODD_CASES[case]()
    folds = folds_of(data, device=device)
    assert_ridge(folds, data)
    if device is not None and case in CASES:
        for fold, same in zip(folds, folds_of(data), strict=True):
            assert_same(fold, same)
    if device is None and len(data) > 2:  # chosen without the test domain
        for test, each in two_out(data).items():
            assert_ridge(each, others(data, test))
            alone = folds_of(others(data, test))
            if case in ("n > d", "n < d", "four domains"):  # as if it had never been seen
                for fold, same in zip(each, alone, strict=True):
                    assert_same(fold, same)


def test_the_ridge_is_the_best_on_average() -> None:
    """Not the best for any single domain, and a domain with one class has no say."""
    data = simulate_domains([25, 30, 20, 15], 10, seed=3)
    alone = {
        oracle.best_ridge([(oracle.pooled(data, [e for e in data if e != k]), data[k])], 3)
        for k in data
    }
    assert folds_of(data)[0].ridge not in alone
    assert_ridge(folds_of(data), data)
    data = simulate_domains([60, 50, 40], 8)
    data["c"] = (data["c"][0], np.ones(40, int))
    assert_ridge(folds_of(data), data)


@given(
    value=st.sampled_from([0.1, 1 / 3, 7.7, 1e5 / 3]),
    sizes=st.lists(st.integers(1, 30), min_size=2, max_size=3),
    d=st.integers(1, 30),
)
@settings(max_examples=40, deadline=None)
def test_constant_features_predict_the_most_frequent_class(
    value: float, sizes: list[int], d: int
) -> None:
    data = {k: (np.full_like(X, value), y) for k, (X, y) in simulate_domains(sizes, d).items()}
    for fold in folds_of(data):
        labels = np.concatenate([y for _, y in others(data, fold.domain).values()])
        counts = np.bincount(labels, minlength=3)
        assert (counts[fold.predicted] == counts.max()).all()


@pytest.mark.parametrize("shape", [(50, 6, None), (20, 60, None), (40, 20, 3), (30, 1, None)])
def test_stability_equals_the_dense_gaussian(
    shape: tuple[int, int, int | None], device: str | None
) -> None:
    n, d, rank = shape
    data = simulate_domains([n] * 3, d, rank=rank)
    for fold in folds_as(data, "paper", device) if d > 1 else []:
        training = np.vstack([part for part, _ in others(data, fold.domain).values()])
        densities = bayes.feature_densities(data[fold.domain][0], training)
        np.testing.assert_allclose(fold.feature_log_density, densities, rtol=1e-8)
        assert fold.shrinkage is None
        assert fold.stability == pytest.approx(np.mean(densities), rel=1e-8)
        ratio = np.std(fold.label_log_density) / np.std(densities)
        assert fold.spread_ratio == pytest.approx(ratio, rel=1e-8)
    for fold in folds_as(data, "robust", device):
        training = np.vstack([part for part, _ in others(data, fold.domain).values()])
        assert fold.shrinkage is not None
        if d > 1:  # of a single feature scikit-learn says 0; there is nothing to shrink
            assert fold.shrinkage == pytest.approx(oas(training)[1], rel=1e-9)
        left_out = data[fold.domain][0]
        densities = bayes.relative_densities(left_out, training, fold.shrinkage)
        np.testing.assert_allclose(fold.feature_log_density, densities, rtol=1e-7, atol=1e-10)
        k = bayes.times_as_far_out(left_out, training, fold.shrinkage)
        assert fold.stability == pytest.approx(-np.log(max(k, 1)), rel=1e-7, abs=1e-12)
        assert fold.density_spread == pytest.approx(np.std(densities), rel=1e-8)


# --- what does not matter -------------------------------------------------------------------------


@given(seed=seeds, d=st.sampled_from([5, 80]))
@quick
def test_invariances(seed: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    data = simulate_domains([30, 20, 25], d, seed=seed)
    samples = {name: rng.permutation(len(y)) for name, (_, y) in data.items()}
    names = rng.permutation(3)
    shuffled = {
        name: (data[name][0][samples[name]], names[data[name][1]][samples[name]])
        for name in rng.permutation(list(data)).tolist()
    }
    rotation = np.linalg.qr(rng.normal(size=(d, d)))[0] * 10 ** rng.uniform(-3, 3)
    rotated = {name: (Phi @ rotation, y) for name, (Phi, y) in data.items()}
    for stability in STABILITIES:
        expected = {fold.domain: fold for fold in folds_as(data, stability)}
        for fold in folds_as(shuffled, stability):
            same = expected[fold.domain]
            assert fold.discriminability == pytest.approx(same.discriminability, rel=1e-8)
            assert fold.stability == pytest.approx(same.stability, rel=1e-8, abs=1e-10)
    for fold, same in zip(folds_of(rotated), folds_of(data), strict=True):
        assert fold.discriminability == pytest.approx(same.discriminability, rel=1e-8)
        assert fold.shrinkage == pytest.approx(same.shrinkage, rel=1e-8)
        np.testing.assert_allclose(
            fold.feature_log_density, same.feature_log_density, rtol=1e-7, atol=1e-9
        )
    skills = Transfer.of(moments_of(data, 3)).skills
    np.testing.assert_allclose(Transfer.of(moments_of(rotated, 3)).skills, skills, atol=1e-9)
    pairs = dict(zip(data, into(Transfer.of(moments_of(data, 3)).pairs()), strict=True))
    found = dict(zip(shuffled, into(Transfer.of(moments_of(shuffled, 3)).pairs()), strict=True))
    assert found == pytest.approx(pairs, abs=1e-10, nan_ok=True)
    together = {name: ((Phi + 10.0) @ rotation, y) for name, (Phi, y) in data.items()}
    np.testing.assert_allclose(Transfer.of(moments_of(together, 3)).skills, skills, atol=1e-9)


@pytest.mark.parametrize("stability", STABILITIES)
@pytest.mark.parametrize("d", [6, 90])
def test_a_large_offset_costs_nothing(d: int, stability: Stability, device: str | None) -> None:
    """From some size on, an offset is an intercept without a penalty, however large it is."""
    rng = np.random.default_rng(5)
    labels, direction = np.arange(60) % 3, rng.normal(size=d)
    signal = 3 * np.eye(3, d)[labels]
    data = {
        name: (rng.normal(size=(60, d)) + signal + 0.2 * rng.normal(size=d), labels)
        for name in "abc"
    }

    def at(size: float) -> list[Fold]:
        there = {name: (X + size * direction, y) for name, (X, y) in data.items()}
        return folds_as(there, stability, device)

    for one, two in zip(at(1e5), at(1e8), strict=True):
        assert one.metric == two.metric > 0.8
        for name in ("discriminability", "stability", "label_spread", "density_spread"):
            assert getattr(one, name) == pytest.approx(getattr(two, name), rel=1e-4, abs=1e-5), name
        np.testing.assert_allclose(
            one.feature_log_density, two.feature_log_density, rtol=1e-4, atol=1e-4
        )
    for one, two in zip(at(0.999e3), at(1.001e3), strict=True):  # at the limit
        assert one.discriminability == pytest.approx(two.discriminability, rel=1e-5)
        assert one.stability == pytest.approx(two.stability, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("case", ["n > d", "n < d"])
@pytest.mark.parametrize("size", [30.0, 999.0, 1e5, 1e8])
def test_an_offset_changes_no_prediction(case: str, size: float, device: str | None) -> None:
    data = CASES[case]()
    there = moved(data, size)
    if size < 1e5:
        pairs = zip(folds_of(data), folds_of(there, device=device), strict=True)
        assert all((one.ridge, *one.predicted) == (two.ridge, *two.predicted) for one, two in pairs)
    skills = Transfer.of(moments_of(there, 3, device)).skills
    expected = Transfer.of(moments_of(data, 3)).skills
    np.testing.assert_allclose(skills, expected, atol=1e-6 if size == 1e8 else 1e-8)


def test_shards_blocks_and_storage_types(monkeypatch: pytest.MonkeyPatch) -> None:
    data = simulate_domains([60, 50, 40], 8)
    for dtype in ("float16", "float32"):
        stored = {k: (Phi.astype(dtype), y) for k, (Phi, y) in data.items()}
        exact = {k: (Phi.astype(float), y) for k, (Phi, y) in stored.items()}
        for fold, same in zip(folds_of(stored), folds_of(exact), strict=True):
            assert fold.discriminability == pytest.approx(same.discriminability, rel=1e-12)
    expected, transfer = folds_of(data), Transfer.of(moments_of(data, 3)).skills
    monkeypatch.setattr(moments_module, "_MIN_ROWS", 7)
    monkeypatch.setattr(Backend, "block_bytes", 0)
    for shards in (1, 3):

        def pieces(name: str, shards: int = shards) -> Any:
            return list(zip(*(np.array_split(part, shards) for part in data[name]), strict=True))

        domains = {name: Moments.stream(pieces(name), 3) for name in data}
        for fold, same in zip(leave_one_domain_out(domains, pieces), expected, strict=True):
            assert fold.discriminability == pytest.approx(same.discriminability, rel=1e-11)
            np.testing.assert_allclose(fold.label_log_density, same.label_log_density, rtol=1e-9)
            np.testing.assert_allclose(
                fold.feature_log_density, same.feature_log_density, rtol=1e-9
            )
        np.testing.assert_allclose(Transfer.of(domains).skills, transfer, atol=1e-12)


@pytest.mark.parametrize("stability", STABILITIES)
def test_packed_folds_are_restored(stability: Stability) -> None:
    folds = folds_as(lacking(), stability)
    for fold, same in zip(unpack(pack(folds)), folds, strict=True):
        assert (fold.skipped, fold.unconverged) == (same.skipped, same.unconverged)
        assert fold.shrinkage == same.shrinkage
        assert_same(fold, same)


def test_test_and_left_out_domain_share_a_decomposition(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(*args: Any) -> Any:
        calls.append(args)
        return decompose(*args)

    monkeypatch.setattr("oodzoo.ranking.folds.decompose", counted)
    data = simulate_domains([30, 20, 40, 10], 5)
    folds_of(data)
    assert len(calls) == 4 + 1
    two_out(data)
    assert len(calls) == 4 + 1 + 6 + 4


def test_what_does_not_fit_together() -> None:
    data = simulate_domains([30, 20], 5)
    moments = moments_of(data, 3)
    odd = moments | {"d": moments_of(simulate_domains([9], 4), 3)["a"]}
    shards: Callable[[str], Any]
    for domains, shards, says in [
        ({}, lambda name: [], r"at least 2 domains .* got 0: none"),
        (moments, lambda name: [], "moments are of 30 samples, but the shards have 0"),
        (
            moments,
            lambda name: [(data[name][0][:, 1:], data[name][1])],
            "moments have 5 features, but the shards have 4",
        ),
        (odd, lambda name: [], "domain 'a' has 5 features and 3 classes, but domain 'd' has 4 and"),
    ]:
        with pytest.raises(InputError, match=says):
            leave_one_domain_out(domains, shards)
    with pytest.raises(InputError, match=r"at least 3 domains are needed .* got 2: 'a', 'b'"):
        two_out(data)
    with pytest.raises(InputError, match="unknown stability 'mild'; expected one of robust, paper"):
        folds_as(data, "mild")  # type: ignore[arg-type]


# --- odd features: the decided answer -------------------------------------------------------------


def noise_alone(y_i: NDArray[Any], y: NDArray[Any]) -> float:
    """Mean log-density of the labels under N(0, share of the class)."""
    terms = []
    for c in np.unique(y):
        variance = np.mean(y == c)
        terms.append(-0.5 * (np.log(2 * np.pi * variance) + np.mean(y_i == c) / variance))
    return float(np.mean(terms))


def test_discriminability_of_odd_features() -> None:
    data = simulate_domains([60, 50, 40], 8)
    zeros = {name: (0 * Phi, y) for name, (Phi, y) in data.items()}
    flat = {name: (np.full_like(Phi, 3.0), y) for name, (Phi, y) in data.items()}
    for zero, constant, fold in zip(folds_of(zeros), folds_of(flat), folds_of(data), strict=True):
        y = np.concatenate([labels for _, labels in others(data, fold.domain).values()])
        noise = noise_alone(data[fold.domain][1], y)
        assert zero.discriminability == pytest.approx(noise, rel=1e-9)
        assert np.isinf(zero.alpha).all()
        assert noise < constant.discriminability < fold.discriminability
    fold = folds_of(zeros | {"c": data["c"]})[
        2
    ]  # zero in training alone: those left out are ignored
    assert fold.discriminability == pytest.approx(noise, rel=1e-9)
    labels = {name: (bayes.one_hot(y, 3), y) for name, (_, y) in data.items()}
    for fold in folds_of(labels):  # as good as the noise floor allows
        assert fold.metric == fold.second_metric == 1
        assert 5 < fold.discriminability < np.inf


@pytest.mark.parametrize("stability", STABILITIES)
def test_stability_of_odd_features(stability: Stability) -> None:
    data = simulate_domains([50, 50, 50], 6)
    for value in (0.0, 3.0, 0.1):
        flat = {name: (np.full_like(Phi, value), y) for name, (Phi, y) in data.items()}
        for fold in folds_as(flat, stability):
            np.testing.assert_array_equal(fold.feature_log_density, np.zeros(50))
            assert fold.stability == fold.spread_ratio == 0
    data["a"][0][:, 2], data["b"][0][:, 2], data["c"][0][:, 2] = 5.0, 5.0, 5.0
    data["c"] = tuple(part[:1] for part in data["c"])  # type: ignore[assignment]
    folds = folds_as(data, stability)
    assert all(np.isfinite(fold.feature_log_density).all() for fold in folds)
    assert folds[2].density_spread == folds[2].spread_ratio == 0


def test_the_scale_of_stability() -> None:
    rng = np.random.default_rng(0)
    for shift, expected in ((0.0, 0), (1.0, -0.5 * np.log(2)), (3.0, -0.5 * np.log(10))):
        # five unit variances and a shift s have a mean squared distance of 5 (1 + s²)
        data: Data = {
            name: (rng.normal(size=(400, 5)) + shift * (name == "c"), np.arange(400) % 3)
            for name in "abc"
        }
        assert folds_of(data)[2].stability == pytest.approx(expected, abs=0.1)
    centre = np.mean([data[name][0].mean(axis=0) for name in "ab"], axis=0)
    data["c"] = (centre + 1e-6 * rng.normal(size=(400, 5)), data["c"][1])
    fold = folds_of(data)[2]  # to collapse into the centre is no merit
    assert fold.stability == 0
    assert not fold.stability_of_samples.any()
    small = simulate_domains([50, 50, 50], 6)
    scaled = {name: (10 * Phi, y) for name, (Phi, y) in small.items()}
    for fold, same in zip(folds_as(scaled, "paper"), folds_as(small, "paper"), strict=True):
        assert fold.stability == pytest.approx(same.stability - 6 * np.log(10), rel=1e-9)
    alike: Data = {
        "a": (np.vstack([np.eye(4), -np.eye(4)]), np.tile([0, 1], 4)),
        "b": (rng.normal(size=(6, 4)), np.tile([0, 1], 3)),
    }
    fold = folds_of(alike)[1]  # alike in every direction: shrunk to the identity
    assert fold.shrinkage == 1
    densities = bayes.relative_densities(alike["b"][0], alike["a"][0], 1.0)
    np.testing.assert_allclose(fold.feature_log_density, densities, rtol=1e-9)


@pytest.mark.parametrize("stability", STABILITIES)
def test_samples_add_up_to_the_change_of_a_resample(stability: Stability) -> None:
    """Leaving a sample out changes the stability as its own share says, to first order."""
    data = simulate_domains([60, 60, 60], 3, seed=5)
    fold = next(fold for fold in folds_as(data, stability) if fold.stability < 0)
    fewer = data | {fold.domain: tuple(part[1:] for part in data[fold.domain])}
    (after,) = (f for f in folds_as(fewer, stability) if f.domain == fold.domain)  # type: ignore[arg-type]
    shares = fold.stability_of_samples
    expected = shares[1:].mean() - shares.mean()
    assert after.stability - fold.stability == pytest.approx(expected, rel=0.1, abs=1e-4)


# --- the paper's Appendix B.5, simulated ----------------------------------------------------------


def regression(Phi: NDArray[Any], y: NDArray[Any]) -> Spectrum:
    return decompose(Phi.T @ Phi, (Phi.T @ y)[:, None], np.array([y @ y]), len(y))[0]


def cross_domain_score(domains: list[tuple[Any, Any]], features: tuple[int, ...]) -> float:
    """Mean over held-out domains, for a continuous response and some of the features."""
    chosen = [(Phi[:, list(features)], y) for Phi, y in domains]
    union = regression(np.vstack([p for p, _ in chosen]), np.concatenate([y for _, y in chosen]))
    terms = []
    for i in range(len(chosen)):
        rest = chosen[:i] + chosen[i + 1 :]
        kept = regression(np.vstack([p for p, _ in rest]), np.concatenate([y for _, y in rest]))
        terms.append(discriminability(kept, union, maximise_evidence(kept)))
    return float(np.mean(terms))


def test_cross_domain_validation_selects_the_invariant_features() -> None:
    # Invariant features: orthogonal, the same in every domain. Specific ones: x_iv A + e, with A
    # drawn anew for each domain. The response depends on the invariant ones alone.
    subsets = list(chain.from_iterable(combinations(range(5), k) for k in range(1, 6)))
    scores = dict.fromkeys(subsets, 0.0)
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X_iv = np.linalg.qr(rng.normal(size=(100, 3)))[0] * 10
        domains = []
        for _ in range(4):
            X_D = X_iv @ rng.normal(size=(3, 2)) + 0.5 * rng.normal(size=(100, 2))
            y = X_iv @ np.array([1.0, -1.5, 2.0]) + rng.normal(size=100)
            domains.append((np.hstack([X_iv, X_D]), y))
        for subset in subsets:
            scores[subset] += cross_domain_score(domains, subset) / 12
    best = (0, 1, 2)
    assert scores[best] > max(score for subset, score in scores.items() if subset != best)
    # Dropping one costs much, adding one little, as in the appendix.
    dropped = [scores[best] - scores[s] for s in subsets if set(s) < set(best) and len(s) == 2]
    added = [scores[best] - scores[s] for s in subsets if set(s) > set(best) and len(s) == 4]
    assert min(dropped) > 0.1
    assert 0 < min(added) < max(added) < 0.1


# --- ridge regressions between domains, and transfer ----------------------------------------------


@pytest.mark.parametrize("case", ODD_CASES)
def test_transfer_equals_its_formula(case: str, device: str | None) -> None:
    data = ODD_CASES[case]()
    transfer = Transfer.of(moments_of(data, 3, device))
    assert transfer.domains == tuple(data)
    for row, source in enumerate(data):
        for column, target in enumerate(data):
            found = transfer.skills[row, column]
            if row == column:
                assert np.isnan(found).all()
                continue
            expected = [
                skills_oracle.skill(data[source], data[target], 3, ridge) for ridge in RIDGES
            ]
            np.testing.assert_allclose(found, expected, atol=1e-9)
    for weights in (None, (0.5, 0.3, 0.2), (0.0, 0.5, 0.5), (0.0, 1.0, 0.0)):
        if weights is not None and len(data) != 3:
            continue
        named = None if weights is None else dict(zip(data, weights, strict=True))
        pairs = skills_oracle.pairs(data, 3, named)
        means = list(skills_oracle.into(pairs, data).values())
        found = into(transfer.pairs(weights=weights))
        assert found == pytest.approx(means, abs=1e-9, nan_ok=True)
        expected_skill = skills_oracle.transfer(data, 3, named)
        assert transfer.skill(weights=weights) == pytest.approx(expected_skill, abs=1e-9)


@pytest.mark.parametrize("case", ["n > d", "n < d", "a class absent from some domains"])
def test_predictions_equal_their_formula(case: str, device: str | None) -> None:
    data, on = ODD_CASES[case](), backend(device)
    path = RidgePath.of(Moments.of(*data["a"], 3, device=device))
    samples = np.vstack([data["a"][0], data["b"][0], 1e5 * data["c"][0]])
    for ridge in (0, 2, len(RIDGES) - 1):
        found = to_numpy(path.predict(on.float64(samples), ridge))
        expected = [
            skills_oracle.predicted_class(data["a"], phi, 3, RIDGES[ridge]) for phi in samples
        ]
        np.testing.assert_array_equal(found, expected)
        assert len(set(expected)) > 1
    some = RidgePath.of(Moments.of(*data["a"], 3), ridges=[RIDGES[2], RIDGES[4]])
    target = Moments.of(*data["b"], 3)
    whole = RidgePath.of(Moments.of(*data["a"], 3)).skills(target)
    np.testing.assert_array_equal(some.skills(target), whole[[2, 4]])


@pytest.mark.parametrize("case", ODD_CASES)
def test_a_decomposed_matrix_gives_the_same_weights(case: str, device: str | None) -> None:
    """Up to the rounding of products of features with an offset."""
    for size in (0.0, 10.0, 999.0, 1e5):
        data = moved(ODD_CASES[case](), size)
        kept = merge(Moments.of(*data[name], 3, device=device) for name in list(data)[1:])
        spectrum, eigenvectors = decompose(kept.gram, kept.products, kept.label_sum, kept.n)
        found = RidgePath.of_spectrum(kept, spectrum, eigenvectors, kept.n_features)
        expected = RidgePath.of(kept)
        assert np.array_equal(to_numpy(found.mean), to_numpy(expected.mean))
        assert np.array_equal(to_numpy(found.label_mean), to_numpy(expected.label_mean))
        target = Moments.of(*data["a"], 3, device=device)
        np.testing.assert_allclose(found.skills(target), expected.skills(target), atol=1e-8)
        if "constant" in case or "zero" in case:
            continue
        for one, other in zip(found.weights, expected.weights, strict=True):
            scale = float(np.abs(to_numpy(other)).max())
            np.testing.assert_allclose(to_numpy(one), to_numpy(other), atol=1e-6 * scale)


@given(
    seed=seeds,
    n=st.integers(1, 30),
    d=st.integers(1, 40),
    size=st.sampled_from([1e-60, 1e-8, 1.0, 1e8, 1e60]),
    spread=st.sampled_from([0.0, 1e-17, 1e-15, 1e-12, 1e-9, 1e-6, 1e-3, 1.0]),
)
@settings(max_examples=60, deadline=None)
def test_features_that_hardly_vary_can_be_solved_for(
    seed: int, n: int, d: int, size: float, spread: float
) -> None:
    """A matrix that is rounding is still positive definite with the ridge; skills are shares."""
    rng = np.random.default_rng(seed)
    X = size * (rng.normal(size=d) + spread * rng.normal(size=(n, d)))
    moments = Moments.of(X, rng.integers(0, 3, n), 3)
    for target in (moments, Moments.of(size * rng.normal(size=(9, d)), np.arange(9) % 3, 3)):
        skills = RidgePath.of(moments).skills(target)
        assert np.isnan(skills).all() or ((skills >= 0) & (skills <= 1)).all()


@given(
    seed=seeds,
    chosen=st.permutations("abcd"),
    count=st.integers(1, 4),
    weights=st.lists(st.integers(0, 5), min_size=4, max_size=4),
)
@quick
def test_parts_weights_and_bounded_influence(
    seed: int, chosen: list[str], count: int, weights: list[int]
) -> None:
    """A domain of weight w is predicted with a skill in [0, 1], and is one of m - 1 domains that
    each of the others is predicted from. The best of several ridges moves no further."""
    data = simulate_domains([30, 20, 25, 15], 5, seed=seed)
    transfer, some = Transfer.of(moments_of(data, 3)), chosen[:count]
    alone = Transfer.of(moments_of({name: data[name] for name in some}, 3))
    assert transfer.skill(some) == alone.skill()
    np.testing.assert_array_equal(transfer.pairs(some), alone.pairs())
    rng = np.random.default_rng(seed)
    known = [len(np.unique(y)) > 1 for _, y in data.values()]
    shares = np.where(known, np.array(weights) + 0.1, 0)
    shares = shares / shares.sum()
    assert transfer.skill(weights=7 * shares) == pytest.approx(transfer.skill(weights=shares))
    name = chosen[0]
    garbage = 10 ** rng.uniform(-5, 5) * rng.standard_cauchy(size=data[name][0].shape)
    data[name] = (garbage, data[name][1])
    after = Transfer.of(moments_of(data, 3)).skill(weights=shares)
    share = shares["abcd".index(name)]
    assert abs(after - transfer.skill(weights=shares)) <= share + (1 - share) / 3 + 1e-12


def test_transfer_of_odd_domains() -> None:
    def skill(data: Data, n_classes: int = 3) -> float:
        return Transfer.of(moments_of(data, n_classes)).skill()

    y = np.arange(30) % 2
    perfect: Data = {name: (np.eye(2)[y], y) for name in "abc"}
    assert skill(perfect, 2) == pytest.approx(1, abs=1e-3)
    perfect["c"] = (np.eye(2)[1 - y], y)  # worse than a constant, which counts as none
    means = into(Transfer.of(moments_of(perfect, 2)).pairs())
    assert means == pytest.approx([0.5, 0.5, 0], abs=1e-3)
    data = lacking()  # class 2 is in c alone: it has no effect on the others
    whole = Transfer.of(moments_of(data, 3)).skill(["a", "b"])
    assert whole == pytest.approx(skill({name: data[name] for name in "ab"}, 2), abs=1e-12)
    data = simulate_domains([60, 50, 40], 8)
    twice = {name: (np.tile(Phi, (2, 1)), np.tile(y, 2)) for name, (Phi, y) in data.items()}
    assert skill(twice) == pytest.approx(skill(data), abs=1e-10)
    data["b"] = (data["b"][0], np.full(50, 2))  # one class: neither predicts nor is predicted
    transfer = Transfer.of(moments_of(data, 3))
    assert np.isnan(transfer.skills[:, 1]).all()
    assert not transfer.skills[1, [0, 2]].any()
    assert transfer.skill() == pytest.approx(transfer.skill(["a", "c"]) / 2)
    assert transfer.skill(weights=[0, 1, 0]) == transfer.skill()
    assert transfer.skill(["a"]) == 0
    assert skill({name: (Phi, np.zeros(len(y), int)) for name, (Phi, y) in data.items()}) == 0
    pairs = np.array([[np.nan, 0.2, np.nan], [0.4, np.nan, np.nan], [0.6, np.nan, np.nan]])
    np.testing.assert_allclose(into(pairs), [0.5, 0.2, np.nan])
    for weights, expected in ((None, 0.35), ([1, 3, 5], 0.275), ([0, 0, 1], 0.35)):
        assert mean_into(pairs, weights) == pytest.approx(expected)
    assert mean_into(np.full((2, 2), np.nan)) == 0


# --- evidence -------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", sorted(set(ODD_CASES) - {"an exploding feature"}))
def test_evidence_equals_its_formula(case: str) -> None:
    data = ODD_CASES[case]()
    for size in (0.0, 1e5) if case in ("n > d", "n < d") else (0.0,):
        there = moved(data, size) if size else data
        expected = skills_oracle.evidence(there)
        for fold in folds_of(there):
            rel = 1e-6 if size else 1e-7
            assert fold.evidence == pytest.approx(expected, rel=rel)
            alone = skills_oracle.evidence(others(there, fold.domain))
            assert fold.training_evidence == pytest.approx(alone, rel=rel)


def test_evidence_does_not_see_a_class_of_a_test_domain() -> None:
    data = simulate_domains([30, 20, 40], 5, n_classes=2)
    data["d"] = (data["a"][0] + 1, np.full(30, 2))
    expected = folds_of(others(data, "d"), n_classes=2)
    for fold, same in zip(two_out(data)["d"], expected, strict=True):
        assert fold.evidence == pytest.approx(same.evidence, rel=1e-9)
        assert fold.training_evidence == pytest.approx(same.training_evidence, rel=1e-9)


# --- fewer coordinates than features --------------------------------------------------------------

FEW: dict[str, Callable[[], Data]] = {
    "n < d": lambda: simulate_domains([12, 10, 14], 60),
    "n just below d": lambda: simulate_domains([21, 18, 20], 60),
    "rank-deficient": lambda: simulate_domains([20, 16, 14], 80, rank=9),
    "a feature that is always zero": lambda: {
        name: (np.hstack([Phi, np.zeros((len(y), 9))]), y)
        for name, (Phi, y) in simulate_domains([12, 10, 14], 60).items()
    },
    "scaled": lambda: {
        name: (1e-6 * Phi, y) for name, (Phi, y) in simulate_domains([12, 10, 14], 60).items()
    },
}


def source_of(data: Data, groups: Sequence[Any] | None = None) -> ArraySource:
    features = np.vstack([Phi for Phi, _ in data.values()])
    labels = np.concatenate([y for _, y in data.values()])
    domains = np.repeat(list(data), [len(y) for _, y in data.values()])
    return ArraySource({"net": features}, labels, domains, groups)


def results(read: Inputs, device: str | None = None) -> dict[str, Any]:
    options: dict[str, Any] = {"training": read.training, "n_features": read.n_features}
    folds = leave_one_domain_out(read.moments, read.shards, device=device, **options)
    for each in leave_two_domains_out(read.moments, read.shards, device=device, **options).values():
        folds += each
    found = {"skills": Transfer.of(read.moments, read.training, read.n_features).skills}
    for name in ("discriminability", "stability", "stability_slope", "shrinkage", "evidence",
                 "training_evidence", "ridge", "metric", "alpha", "beta"):  # fmt: skip
        found[name] = np.array([getattr(fold, name) for fold in folds], float)
    for name in ("label_log_density", "feature_log_density", "predicted"):
        found[name] = np.concatenate([getattr(fold, name) for fold in folds])
    return found


@pytest.mark.parametrize("case", FEW)
def test_coordinates_change_no_result(case: str, device: str | None) -> None:
    source = source_of(FEW[case]())
    few, all_features = (read_inputs(source, "net", device, compact=c) for c in (True, False))
    n = sum(len(source.labels(domain)) for domain in "abc")
    assert few.moments["a"].n_features <= n < all_features.moments["a"].n_features
    assert few.n_features == all_features.n_features == all_features.moments["a"].n_features
    expected = results(all_features, device)
    for name, values in results(few, device).items():
        np.testing.assert_allclose(values, expected[name], rtol=1e-7, atol=1e-9, err_msg=name)


def test_where_features_are_kept() -> None:
    """Many samples, a large offset, or nothing but zeros; groups are left out of coordinates."""
    data = FEW["n < d"]()
    for changed, d in (
        (simulate_domains([60, 50, 40], 8), 8),
        ({name: (Phi + 1e6, y) for name, (Phi, y) in data.items()}, 60),
        ({name: (0 * Phi, y) for name, (Phi, y) in data.items()}, 60),
    ):
        assert read_inputs(source_of(changed), "net", None).moments["a"].n_features == d
    source = source_of(data, [f"g{number % 30}" for number in range(36)])
    expected = results(read_inputs(source, "net", None, compact=False))
    found = results(read_inputs(source, "net", None))
    np.testing.assert_allclose(found["evidence"], expected["evidence"], rtol=1e-9)
    np.testing.assert_allclose(found["skills"], expected["skills"], rtol=1e-7)
    alone = results(read_inputs(source_of(data), "net", None))
    assert not np.allclose(found["training_evidence"], alone["training_evidence"])


# --- numbers to predict, and several labels -------------------------------------------------------

KINDS: tuple[Kind, ...] = ("regression", "multilabel")


def simulate(kind: Kind, d: int, sizes: Sequence[int], seed: int = 0) -> Data:
    """Domains that differ in mean; outputs in different units, far from zero."""
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(d, 3)) / np.sqrt(d)
    data = {}
    for number, n in enumerate(sizes):
        X = rng.normal(size=(n, d)) + 0.3 * rng.normal(size=d)
        Y = X @ W + 0.5 * rng.normal(size=(n, 3))
        Y = Y * [1, 50, 0.01] + [10, -400, 3] if kind == "regression" else (Y > 0.4).astype(float)
        data["abcdef"[number]] = (X, Y)
    return data


def folds_of_kind(data: Data, kind: Kind, device: str | None = None) -> list[Fold]:
    moments = moments_of(data, 3, device)
    return leave_one_domain_out(moments, lambda name: [data[name]], kind=kind, device=device)


def stacked(data: Data) -> tuple[Any, Any]:
    return np.vstack([X for X, _ in data.values()]), np.vstack([Y for _, Y in data.values()])


def skill_of(training: Any, target: Any, kind: Kind, ridge: float) -> float:
    """Share of the variance that is predicted: of each number, or of all labels together."""
    (X, Y), (Z, T) = training, target
    W = skills_oracle.ridge_regression(X - X.mean(0), Y - Y.mean(0), ridge)
    errors = ((T - (Y.mean(0) + (Z - X.mean(0)) @ W)) ** 2).sum(axis=0)
    variances = ((T - T.mean(0)) ** 2).sum(axis=0)
    if kind == "regression":
        return float(np.mean(np.clip(1 - errors / variances, 0, 1)))
    return float(np.clip(1 - errors.sum() / variances.sum(), 0, 1))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("d", "sizes"), [(6, (60, 50, 40)), (90, (20, 25, 15))])
def test_folds_of_other_tasks(
    kind: Kind, d: int, sizes: tuple[int, ...], device: str | None
) -> None:
    data = simulate(kind, d, sizes)
    skills = Transfer.of(moments_of(data, 3, device), by_output=kind == "regression").skills
    for row, source in enumerate(data):
        for column, target in enumerate(data):
            for at, ridge in enumerate(RIDGES):
                if row != column:
                    expected = skill_of(data[source], data[target], kind, ridge)
                    assert skills[row, column, at] == pytest.approx(expected, abs=1e-9)
    means = [
        np.mean([skill_of(stacked(others(data, k)), data[k], kind, ridge) for k in data])
        for ridge in RIDGES
    ]

    def centre(Y: Any) -> Any:
        return Y.mean(axis=0) if kind == "regression" else np.zeros(3)

    X, Y = stacked(data)
    highest = [skills_oracle.highest_log_evidence(X, (Y - centre(Y))[:, c]) for c in range(3)]
    evidence = np.mean(highest) / len(Y)
    for fold in folds_of_kind(data, kind, device):
        assert fold.ridge == int(np.argmax(means))
        assert fold.evidence == pytest.approx(evidence, rel=1e-8)
        X, Y = stacked(others(data, fold.domain))
        Phi, T = data[fold.domain]
        shift = centre(Y)
        ratios = [
            bayes.ratio(Phi, T[:, c] - shift[c], X, Y[:, c] - shift[c], fold.alpha[c], fold.beta[c])
            for c in range(3)
        ]
        assert fold.discriminability == pytest.approx(np.mean(ratios) / len(T), rel=1e-7)
        W = skills_oracle.ridge_regression(X - X.mean(0), Y - Y.mean(0), RIDGES[fold.ridge])
        predicted = Y.mean(0) + (Phi - X.mean(0)) @ W
        np.testing.assert_allclose(fold.predicted, predicted, rtol=1e-7, atol=1e-9)
        np.testing.assert_array_equal(fold.labels, T)
        if kind == "regression":
            metrics = r2_score(T, predicted), np.abs(T - predicted).mean()
        else:
            right = ((predicted > 0.5) == (T > 0.5)).all(axis=1)
            metrics = average_precision_score(T, predicted), right.mean()
        assert (fold.metric, fold.second_metric) == pytest.approx(metrics)
        assert fold.contributions.mean() == pytest.approx(fold.metric)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [6, 90])
def test_a_test_domain_of_another_task_is_set_aside(kind: Kind, d: int) -> None:
    data = simulate(kind, d, (40, 30, 35, 25))
    both = leave_two_domains_out(moments_of(data, 3), lambda name: [data[name]], kind=kind)
    for test, folds in both.items():
        for fold, expected in zip(folds, folds_of_kind(others(data, test), kind), strict=True):
            assert fold.evidence == pytest.approx(expected.evidence, rel=1e-9)
            assert fold.discriminability == pytest.approx(expected.discriminability, rel=1e-8)
            assert fold.metric == pytest.approx(expected.metric)


def test_labels_far_from_zero_lose_no_digits() -> None:
    X, Y = stacked(simulate("regression", 5, (30, 20, 25)))
    parts = [Moments.of(X[:30], Y[:30] + 1e9, 3), Moments.of(X[30:], Y[30:] + 1e9, 3)]
    expected = ((Y - Y.mean(axis=0)) ** 2).sum(axis=0)
    np.testing.assert_allclose(merge(parts).label_scatter, expected, rtol=1e-4)
    assert RidgePath.of(merge(parts)).skills(parts[0], by_output=True).max() > 0.3
