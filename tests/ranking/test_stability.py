"""Stability, printed and robust, against dense Gaussians."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.covariance import oas
from tests.oracles import bayes

from oodzoo.errors import InputError
from oodzoo.moments import Moments
from oodzoo.ranking.folds import Fold, Stability, leave_one_domain_out

Data = dict[str, tuple[NDArray[Any], NDArray[Any]]]
quick = settings(max_examples=15, deadline=None)
seeds = st.integers(0, 10_000)


def simulate(n: int, d: int, rank: int | None = None, seed: int = 0) -> Data:
    rng = np.random.default_rng(seed)
    mix = rng.normal(size=(rank or d, d)) / np.sqrt(rank or d)
    return {
        name: (
            (rng.normal(size=(n, rank or d)) + 0.7 * rng.normal(size=rank or d)) @ mix + 1,
            rng.integers(0, 2, size=n),
        )
        for name in "abc"
    }


def folds_of(data: Data, stability: Stability = "robust", device: str | None = None) -> list[Fold]:
    domains = {name: Moments.of(*data[name], 2, device=device) for name in data}
    return leave_one_domain_out(
        domains, lambda name: [data[name]], stability=stability, device=device
    )


def kept(data: Data, fold: Fold) -> Any:
    return np.vstack([data[name][0] for name in data if name != fold.domain])


SHAPES = [(50, 6, None), (20, 60, None), (40, 20, 3)]


@pytest.mark.parametrize(("n", "d", "rank"), SHAPES)
def test_printed_form_equals_the_dense_gaussian(n: int, d: int, rank: int | None) -> None:
    data = simulate(n, d, rank)
    for fold in folds_of(data, "paper"):
        densities = bayes.feature_densities(data[fold.domain][0], kept(data, fold))
        np.testing.assert_allclose(fold.feature_log_density, densities, rtol=1e-8)
        ratio = np.std(fold.label_log_density) / np.std(densities)
        assert fold.shrinkage is None
        assert fold.stability == pytest.approx(np.mean(densities), rel=1e-8)
        assert fold.spread_ratio == pytest.approx(ratio, rel=1e-8)
        assert (fold.discriminability + fold.spread_ratio * fold.stability) == pytest.approx(
            fold.discriminability + ratio * np.mean(densities), rel=1e-8
        )


@pytest.mark.parametrize(("n", "d", "rank"), [*SHAPES, (30, 1, None)])
def test_robust_form_equals_the_dense_gaussian(n: int, d: int, rank: int | None) -> None:
    data = simulate(n, d, rank)
    for fold in folds_of(data):
        training = kept(data, fold)
        if d > 1:  # of a single feature scikit-learn says 0; there is nothing to shrink
            assert fold.shrinkage == pytest.approx(oas(training)[1], rel=1e-9)
        assert fold.shrinkage is not None
        left_out = data[fold.domain][0]
        densities = bayes.relative_densities(left_out, training, fold.shrinkage)
        np.testing.assert_allclose(fold.feature_log_density, densities, rtol=1e-8, atol=1e-11)
        k = bayes.times_as_far_out(left_out, training, fold.shrinkage)
        assert fold.stability == pytest.approx(-np.log(max(k, 1)), rel=1e-7, abs=1e-12)
        assert fold.density_spread == pytest.approx(np.std(densities), rel=1e-8)


def test_features_alike_in_every_direction_shrink_to_the_identity() -> None:
    rng = np.random.default_rng(0)
    data = {"a": (np.vstack([np.eye(4), -np.eye(4)]), np.tile([0, 1], 4))}
    data["b"] = (rng.normal(size=(6, 4)), np.tile([0, 1], 3))
    fold = folds_of(data)[1]
    assert fold.shrinkage == 1
    densities = bayes.relative_densities(data["b"][0], data["a"][0], 1.0)
    np.testing.assert_allclose(fold.feature_log_density, densities, rtol=1e-9)


@given(seed=seeds, d=st.sampled_from([4, 70]))
@quick
def test_robust_form_is_invariant_to_rotation_translation_and_scale(seed: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    data = simulate(25, d, seed=seed)
    rotation = np.linalg.qr(rng.normal(size=(d, d)))[0]
    scale, shift = 10 ** rng.uniform(-3, 3), 3 * rng.normal(size=d)
    changed = {name: (scale * (Phi @ rotation + shift), y) for name, (Phi, y) in data.items()}
    for fold, same in zip(folds_of(changed), folds_of(data), strict=True):
        assert fold.shrinkage == pytest.approx(same.shrinkage, rel=1e-8)
        np.testing.assert_allclose(
            fold.feature_log_density, same.feature_log_density, rtol=1e-7, atol=1e-9
        )


def test_printed_form_moves_with_the_scale() -> None:
    data = simulate(50, 6)
    scaled = {name: (10 * Phi, y) for name, (Phi, y) in data.items()}
    for fold, same in zip(folds_of(scaled, "paper"), folds_of(data, "paper"), strict=True):
        assert fold.stability == pytest.approx(same.stability - 6 * np.log(10), rel=1e-9)


@given(seed=seeds)
@quick
def test_invariant_to_the_order_of_samples_classes_and_domains(seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = simulate(25, 5, seed=seed)
    order = rng.permutation(25)
    changed = {
        name: (data[name][0][order], 1 - data[name][1][order])
        for name in rng.permutation(list(data))
    }
    for stability in ("robust", "paper"):
        expected = {fold.domain: fold.stability for fold in folds_of(data, stability)}
        found = {fold.domain: fold.stability for fold in folds_of(changed, stability)}
        assert found == pytest.approx(expected, rel=1e-9)


def test_a_domain_further_out_is_less_stable() -> None:
    rng = np.random.default_rng(0)
    values = []
    for shift in (0.0, 1.0, 3.0):
        data = {
            name: (rng.normal(size=(400, 5)) + shift * (name == "c"), rng.integers(0, 2, size=400))
            for name in "abc"
        }
        values.append(folds_of(data)[2].stability)
    assert values[0] == pytest.approx(0, abs=0.1)
    # Five unit variances and a shift s have a mean squared distance of 5 (1 + s²).
    assert values[1] == pytest.approx(-0.5 * np.log(2), abs=0.1)
    assert values[2] == pytest.approx(-0.5 * np.log(10), abs=0.1)


def test_to_collapse_into_the_centre_is_no_merit() -> None:
    rng = np.random.default_rng(0)
    data = simulate(30, 4)
    centre = np.mean([Phi.mean(axis=0) for name, (Phi, _) in data.items() if name != "c"], axis=0)
    data["c"] = (centre + 1e-6 * rng.normal(size=(30, 4)), data["c"][1])
    (fold,) = (fold for fold in folds_of(data) if fold.domain == "c")
    assert fold.stability == 0
    assert not fold.stability_of_samples.any()


@pytest.mark.parametrize("stability", ["robust", "paper"])
def test_samples_add_up_to_the_change_of_a_resample(stability: Stability) -> None:
    """Leaving a sample out changes the stability as its own share says, to first order."""
    data = simulate(60, 3, seed=5)
    name = next(f.domain for f in folds_of(data, stability) if f.stability < 0)
    (fold,) = (f for f in folds_of(data, stability) if f.domain == name)
    Phi, y = data[name]
    (fewer,) = (
        f for f in folds_of({**data, name: (Phi[1:], y[1:])}, stability) if f.domain == name
    )
    shares = fold.stability_of_samples
    expected = shares[1:].mean() - shares.mean()
    assert fewer.stability - fold.stability == pytest.approx(expected, rel=0.1, abs=1e-4)


# --- degenerate features: the decided answer ----------------------------------------------------


@pytest.mark.parametrize("stability", ["robust", "paper"])
@pytest.mark.parametrize("value", [0.0, 3.0, 0.1])
def test_features_that_do_not_vary_have_no_density(stability: Stability, value: float) -> None:
    data = {name: (np.full_like(Phi, value), y) for name, (Phi, y) in simulate(50, 6).items()}
    for fold in folds_of(data, stability):
        np.testing.assert_array_equal(fold.feature_log_density, np.zeros(50))
        assert fold.stability == fold.spread_ratio == 0
        assert (fold.discriminability + fold.spread_ratio * fold.stability) == fold.discriminability


@pytest.mark.parametrize("stability", ["robust", "paper"])
def test_some_features_that_do_not_vary(stability: Stability) -> None:
    data = simulate(50, 6)
    for Phi, _ in data.values():
        Phi[:, 2] = 5.0
        Phi[:, 4] = 0.0
    for fold in folds_of(data, stability):
        assert np.isfinite(fold.feature_log_density).all()


def test_a_single_sample_has_no_spread() -> None:
    data = simulate(50, 6)
    data["c"] = (data["c"][0][:1], data["c"][1][:1])
    fold = folds_of(data, "paper")[2]
    assert fold.density_spread == fold.spread_ratio == 0


def test_unknown_form() -> None:
    with pytest.raises(InputError, match="unknown stability 'mild'; expected one of robust, paper"):
        folds_of(simulate(5, 2), "mild")  # type: ignore[arg-type]


@pytest.mark.parametrize("stability", ["robust", "paper"])
@pytest.mark.parametrize(("n", "d", "rank"), SHAPES)
def test_pytorch_agrees(n: int, d: int, rank: int | None, stability: Stability) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    data = simulate(n, d, rank)
    for fold, same in zip(folds_of(data, stability, "cpu"), folds_of(data, stability), strict=True):
        np.testing.assert_allclose(
            fold.feature_log_density, same.feature_log_density, rtol=1e-9, atol=1e-11
        )
        assert fold.stability == pytest.approx(same.stability, rel=1e-9)
        assert fold.spread_ratio == pytest.approx(same.spread_ratio, rel=1e-9)
