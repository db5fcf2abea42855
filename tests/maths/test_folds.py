"""Folds: discriminability, stability, ridge regressions and transfer, against literal formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
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
    moments_of,
    moved,
    read,
    simulate_domains,
)

from oodzoo.core.errors import InputError
from oodzoo.extraction.features import ArraySource
from oodzoo.ranking.transfer import RIDGES, ModelMoments, Transfer, into, read_moments
from oodzoo.ranking.zood import HeldOutDomains, HeldOutFold, Stability
from oodzoo.tasks import Kind, task_of

STABILITIES: tuple[Stability, ...] = ("robust", "paper")


def folds_as(data: Data, stability: Stability, device: str | None = None) -> list[HeldOutFold]:
    return HeldOutDomains(read(data, 3, device), stability=stability).folds(densities=True)


def two_out(data: Data, n_classes: int = 3) -> dict[str, list[HeldOutFold]]:
    held_out = HeldOutDomains(read(data, n_classes))
    return {test: held_out.folds(test, densities=True) for test in data}


def others(data: Data, name: str) -> Data:
    return {domain: part for domain, part in data.items() if domain != name}


def assert_same(one: HeldOutFold, other: HeldOutFold) -> None:
    for name, value in vars(one).items():
        if name in ("alpha", "beta"):  # free along a flat maximum
            continue
        same = getattr(other, name)
        if isinstance(value, float | np.ndarray):
            np.testing.assert_allclose(value, same, rtol=1e-9, atol=1e-11, err_msg=name)
        else:
            assert value == same


@pytest.mark.parametrize("case", CASES)
def test_discriminability_equals_the_evidence_ratio(case: str) -> None:
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
        formulas: list[Any] = [bayes.ratio, bayes.marginals]
        ratio, marginals = (
            np.mean(
                [of(Phi_i, Y_i[:, c], Phi, Y[:, c], fold.alpha[c], fold.beta[c]) for c in classes],
                axis=0,
            )
            for of in formulas
        )
        assert fold.discriminability == pytest.approx(ratio / len(y_i), rel=1e-8)
        np.testing.assert_allclose(fold.label_log_density, marginals, rtol=1e-8, atol=1e-10)
        for c in classes if case == "n > d" else ():  # the maximum, by the plain iteration
            expected = bayes.fixed_point(Phi, Y[:, c])
            np.testing.assert_allclose((fold.alpha[c], fold.beta[c]), expected, rtol=1e-6)


def assert_ridge(folds: list[HeldOutFold], data: Data) -> None:
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
    if device is None and len(data) > 2:  # chosen without the held-out domain
        for test, each in two_out(data).items():
            assert_ridge(each, others(data, test))
            alone = folds_of(others(data, test))
            if case in ("n > d", "n < d", "four domains"):  # as if it had never been seen
                for fold, same in zip(each, alone, strict=True):
                    assert_same(fold, same)


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


@pytest.mark.parametrize(("stability", "d"), [("robust", 6), ("paper", 90)])
def test_a_large_offset_costs_nothing(d: int, stability: Stability, device: str | None) -> None:
    """From some size on, an offset is an intercept without a penalty, however large it is."""
    rng = np.random.default_rng(5)
    labels, direction = np.arange(60) % 3, rng.normal(size=d)
    signal = 3 * np.eye(3, d)[labels]
    data = {
        name: (rng.normal(size=(60, d)) + signal + 0.2 * rng.normal(size=d), labels)
        for name in "abc"
    }

    def at(size: float) -> list[HeldOutFold]:
        there = {name: (X + size * direction, y) for name, (X, y) in data.items()}
        return folds_as(there, stability, device)

    names = ("discriminability", "stability", "spread_ratio")
    for sizes, known, rel in (((1e5, 1e8), names, 1e-4), ((0.999e3, 1.001e3), names[:2], 1e-5)):
        for one, two in zip(*map(at, sizes), strict=True):  # the second: at the limit
            assert one.metric == two.metric > 0.8
            for name in known:
                assert getattr(one, name) == pytest.approx(getattr(two, name), rel=rel, abs=1e-5)


def test_what_does_not_fit_together() -> None:
    data = simulate_domains([30, 20], 5)
    moments = moments_of(data, 3)
    odd = moments | {"d": moments_of(simulate_domains([9], 4), 3)["a"]}
    narrow: Data = {name: (Phi[:, 1:], y) for name, (Phi, y) in data.items()}
    for domains, shards, says in [
        ({}, {}, r"at least 2 domains .* got 0: none"),
        (moments, {}, "moments are of 30 samples, but the shards have 0"),
        (moments, narrow, "moments have 5 features, but the shards have 4"),
        (odd, {}, "domain 'a' has 5 features and 3 classes, but domain 'd' has 4 and"),
    ]:
        odd_read = ModelMoments(domains, lambda d, of=shards: [of[d]] if d in of else [])  # type: ignore[misc]
        with pytest.raises(InputError, match=says):
            HeldOutDomains(odd_read).folds()
    with pytest.raises(InputError, match=r"at least 3 domains are needed .* got 2: 'a', 'b'"):
        two_out(data)
    with pytest.raises(InputError, match="unknown stability 'mild'; expected one of robust, paper"):
        folds_as(data, "mild")  # type: ignore[arg-type]


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
    assert folds[2].feature_log_density.std() == folds[2].spread_ratio == 0


def test_the_scale_of_stability() -> None:
    rng = np.random.default_rng(0)
    for shift, expected in ((0.0, 0), (3.0, -0.5 * np.log(10))):
        # five unit variances and a shift s have a mean squared distance of 5 (1 + s²)
        data: Data = {
            name: (rng.normal(size=(400, 5)) + shift * (name == "c"), np.arange(400) % 3)
            for name in "abc"
        }
        fold = folds_of(data)[2]
        assert fold.stability == pytest.approx(expected, abs=0.1)
        # leaving a sample out changes the stability as its own share says, to first order
        shares = fold.stability_of_samples
        fewer = folds_of(data | {"c": tuple(part[1:] for part in data["c"])})[2]  # type: ignore[arg-type]
        change = shares[1:].mean() - shares.mean()
        assert fewer.stability - fold.stability == pytest.approx(change, rel=0.1, abs=1e-4)
    centre = np.mean([data[name][0].mean(axis=0) for name in "ab"], axis=0)
    data["c"] = (centre + 1e-6 * rng.normal(size=(400, 5)), data["c"][1])
    fold = folds_of(data)[2]  # to collapse into the centre is no merit
    assert fold.stability == 0
    assert not fold.stability_of_samples.any()
    alike: Data = {
        "a": (np.vstack([np.eye(4), -np.eye(4)]), np.tile([0, 1], 4)),
        "b": (rng.normal(size=(6, 4)), np.tile([0, 1], 3)),
    }
    fold = folds_of(alike)[1]  # alike in every direction: shrunk to the identity
    assert fold.shrinkage == 1
    densities = bayes.relative_densities(alike["b"][0], alike["a"][0], 1.0)
    np.testing.assert_allclose(fold.feature_log_density, densities, rtol=1e-9)


@pytest.mark.parametrize("case", ODD_CASES)
def test_transfer_equals_its_formula(case: str, device: str | None) -> None:
    data = ODD_CASES[case]()
    transfer = Transfer.of(read(data, 3, device))
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


@pytest.mark.parametrize("case", sorted(set(ODD_CASES) - {"an exploding feature"}))
def test_evidence_equals_its_formula(case: str) -> None:
    data = ODD_CASES[case]()
    for size in (0.0, 1e5) if case in ("n > d", "n < d") else (0.0,):
        there = moved(data, size) if size else data
        expected = skills_oracle.evidence(there)
        rel = 1e-6 if size else 1e-7
        whole, rest = HeldOutDomains(read(there)).evidence()
        assert whole == pytest.approx(expected, rel=rel)
        alone = [skills_oracle.evidence(others(there, name)) for name in there]
        assert rest == pytest.approx(alone, rel=rel)


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


def results(read: ModelMoments) -> dict[str, Any]:
    held_out, tests = HeldOutDomains(read), [[], *([name] for name in read.moments)]
    folds = [fold for test in tests for fold in held_out.folds(*test, densities=True)]
    evidence = [np.append(rest, whole) for whole, rest in (held_out.evidence(*t) for t in tests)]
    found = {"skills": Transfer.of(read).skills, "evidence": np.concatenate(evidence)}
    for name in ("discriminability", "stability", "stability_slope", "shrinkage", "ridge",
                 "metric", "alpha", "beta"):  # fmt: skip
        found[name] = np.array([getattr(fold, name) for fold in folds], float)
    for name in ("label_log_density", "feature_log_density", "predicted"):
        found[name] = np.concatenate([getattr(fold, name) for fold in folds])
    return found


@pytest.mark.parametrize("case", FEW)
def test_coordinates_change_no_result(case: str, device: str | None) -> None:
    source = source_of(FEW[case]())
    few, all_features = (read_moments(source, "net", device, compact=c) for c in (True, False))
    n = sum(len(source.labels(domain)) for domain in "abc")
    assert few.moments["a"].n_features <= n < all_features.moments["a"].n_features
    assert few.n_features == all_features.n_features == all_features.moments["a"].n_features
    expected = results(all_features)
    for name, values in results(few).items():
        np.testing.assert_allclose(values, expected[name], rtol=1e-7, atol=1e-9, err_msg=name)


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


def folds_of_kind(data: Data, kind: Kind, device: str | None = None) -> list[HeldOutFold]:
    return HeldOutDomains(read(data, 3, device), task=task_of(kind)).folds(densities=True)


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
    means = [
        np.mean([skill_of(stacked(others(data, k)), data[k], kind, ridge) for k in data])
        for ridge in RIDGES
    ]

    def centre(Y: Any) -> Any:
        return Y.mean(axis=0) if kind == "regression" else np.zeros(3)

    for fold in folds_of_kind(data, kind, device):
        assert fold.ridge == int(np.argmax(means))
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
    held_out = HeldOutDomains(read(data), task=task_of(kind))
    for test in data:
        folds = held_out.folds(test)
        alone = HeldOutDomains(read(others(data, test)), task=task_of(kind)).evidence()
        for found, known in zip(held_out.evidence(test), alone, strict=True):
            assert found == pytest.approx(known, rel=1e-9)
        for fold, expected in zip(folds, folds_of_kind(others(data, test), kind), strict=True):
            assert fold.discriminability == pytest.approx(expected.discriminability, rel=1e-8)
            assert fold.metric == pytest.approx(expected.metric)
