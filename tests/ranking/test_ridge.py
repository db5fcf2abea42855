"""Ridge regression between domains against its literal formula."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles import unseen as oracle
from tests.ranking.data import lacking, simulate_domains
from tests.ranking.odd_domains import ODD_CASES, moved

from oodzoo.backend import backend, to_numpy
from oodzoo.evidence import decompose
from oodzoo.moments import Moments, merge
from oodzoo.ranking.ridge import RIDGES, RidgePath


@pytest.fixture(params=[None, "cpu"], ids=["numpy", "torch"])
def device(request: pytest.FixtureRequest) -> str | None:
    if request.param is not None:
        pytest.importorskip("torch", reason="PyTorch is not installed")
    chosen: str | None = request.param
    return chosen


@pytest.mark.parametrize("case", ODD_CASES)
def test_skills_equal_their_formula(case: str, device: str | None) -> None:
    data = ODD_CASES[case]()
    for source in data:
        path = RidgePath.of(Moments.of(*data[source], 3, device=device))
        for target in data:
            found = path.skills(Moments.of(*data[target], 3, device=device))
            expected = [oracle.skill(data[source], data[target], 3, ridge) for ridge in RIDGES]
            np.testing.assert_allclose(found, expected, atol=1e-9)


def test_several_domains_are_trained_on_together(device: str | None) -> None:
    data = simulate_domains([200, 60, 9], 8, n_classes=5)
    both = (np.vstack([data[d][0] for d in "bc"]), np.concatenate([data[d][1] for d in "bc"]))
    path = RidgePath.of(merge(Moments.of(*data[d], 5, device=device) for d in "bc"))
    found = path.skills(Moments.of(*data["a"], 5, device=device))
    expected = [oracle.skill(both, data["a"], 5, ridge) for ridge in RIDGES]
    assert max(expected) > 0
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize("case", ["n > d", "n < d", "a class absent from some domains"])
@pytest.mark.parametrize("ridge", [0, 2, len(RIDGES) - 1])
def test_predictions_equal_their_formula(case: str, ridge: int, device: str | None) -> None:
    data = ODD_CASES[case]()
    path = RidgePath.of(Moments.of(*data["a"], 3, device=device))
    samples = np.vstack([data["a"][0], data["b"][0], 1e5 * data["c"][0]])
    found = to_numpy(path.predict(backend(device).float64(samples), ridge))
    expected = [oracle.predicted_class(data["a"], phi, 3, RIDGES[ridge]) for phi in samples]
    np.testing.assert_array_equal(found, expected)
    assert len(set(expected)) > 1


def test_a_class_without_training_samples_is_never_predicted(device: str | None) -> None:
    Phi, y = lacking()["a"]  # lacks class 2
    path = RidgePath.of(Moments.of(Phi, y, 3, device=device))
    far = backend(device).float64(1e3 * np.random.default_rng(0).normal(size=(200, Phi.shape[1])))
    for ridge in range(len(RIDGES)):
        assert set(to_numpy(path.predict(far, ridge)).tolist()) == {0, 1}


@pytest.mark.parametrize("size", [999.0, 1e5, 1e8])
def test_a_large_offset_changes_no_prediction(size: float, device: str | None) -> None:
    data = simulate_domains([60, 50], 8)
    there = moved(data, size)
    one = RidgePath.of(Moments.of(*data["a"], 3, device=device))
    two = RidgePath.of(Moments.of(*there["a"], 3, device=device))
    for ridge in range(len(RIDGES)):
        expected = to_numpy(one.predict(backend(device).float64(data["b"][0]), ridge))
        found = to_numpy(two.predict(backend(device).float64(there["b"][0]), ridge))
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("size", [0.0, 10.0, 999.0, 1e5])
@pytest.mark.parametrize("case", ODD_CASES)
def test_a_decomposed_matrix_gives_the_same_weights(
    case: str, size: float, device: str | None
) -> None:
    """Up to the rounding of products of features with an offset."""
    data = moved(ODD_CASES[case](), size)
    kept = merge(Moments.of(*data[name], 3, device=device) for name in list(data)[1:])
    d = kept.n_features
    spectrum, eigenvectors = decompose(kept.gram, kept.products, kept.label_sum, kept.n)
    found = RidgePath.of_spectrum(kept, spectrum, eigenvectors, d)
    expected = RidgePath.of(kept)
    np.testing.assert_array_equal(to_numpy(found.mean), to_numpy(expected.mean))
    np.testing.assert_array_equal(to_numpy(found.label_mean), to_numpy(expected.label_mean))
    target = Moments.of(*data["a"], 3, device=device)
    np.testing.assert_allclose(found.skills(target), expected.skills(target), atol=1e-8)
    if "constant" in case or "zero" in case:
        return
    for one, other in zip(found.weights, expected.weights, strict=True):
        scale = float(np.abs(to_numpy(other)).max())
        np.testing.assert_allclose(to_numpy(one), to_numpy(other), atol=1e-6 * scale)


@pytest.mark.parametrize("case", ["n > d", "n < d"])
def test_fewer_coordinates_need_the_number_of_features(case: str) -> None:
    """Coordinates of the samples in the space that they span, of features with as many zeros."""
    data = ODD_CASES[case]()
    Phi = np.vstack([part[0] for part in data.values()])
    _, _, axes = np.linalg.svd(Phi, full_matrices=False)
    d = Phi.shape[1]
    few = {name: (X @ axes.T, y) for name, (X, y) in data.items()}
    one = RidgePath.of(Moments.of(*data["a"], 3)).skills(Moments.of(*data["b"], 3))
    two = RidgePath.of(Moments.of(*few["a"], 3), d).skills(Moments.of(*few["b"], 3))
    np.testing.assert_allclose(two, one, atol=1e-9)
    padded = {name: (np.hstack([X, np.zeros((len(X), 3))]), y) for name, (X, y) in data.items()}
    three = RidgePath.of(Moments.of(*data["a"], 3), d + 3).skills(Moments.of(*data["b"], 3))
    four = RidgePath.of(Moments.of(*padded["a"], 3)).skills(Moments.of(*padded["b"], 3))
    np.testing.assert_allclose(three, four, atol=1e-9)


def test_some_of_the_ridges() -> None:
    data = simulate_domains([60, 50], 8)
    whole = RidgePath.of(Moments.of(*data["a"], 3))
    some = RidgePath.of(Moments.of(*data["a"], 3), ridges=[RIDGES[2], RIDGES[4]])
    target = Moments.of(*data["b"], 3)
    np.testing.assert_array_equal(some.skills(target), whole.skills(target)[[2, 4]])


@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 30),
    d=st.integers(1, 40),
    size=st.sampled_from([1e-60, 1e-8, 1.0, 1e8, 1e60]),
    spread=st.sampled_from([0.0, 1e-17, 1e-15, 1e-12, 1e-9, 1e-6, 1e-3, 1.0]),
)
@settings(max_examples=100, deadline=None)
def test_features_that_hardly_vary_can_be_solved_for(
    seed: int, n: int, d: int, size: float, spread: float
) -> None:
    """A matrix that is rounding is still positive definite with the ridge."""
    rng = np.random.default_rng(seed)
    X = size * (rng.normal(size=d) + spread * rng.normal(size=(n, d)))
    moments = Moments.of(X, rng.integers(0, 3, n), 3)
    for target in (moments, Moments.of(size * rng.normal(size=(9, d)), np.arange(9) % 3, 3)):
        skills = RidgePath.of(moments).skills(target)
        assert np.isnan(skills).all() or ((skills >= 0) & (skills <= 1)).all()
