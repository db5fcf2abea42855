"""The selector: what it finds, what it does not depend on, and what it does with odd data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.utils.estimator_checks import parametrize_with_checks

from oodzoo import SpikeSlabSelector
from oodzoo.linear.moments import Moments
from oodzoo.linear.selection.target_scale import TargetMoments

Floats = NDArray[np.float64]


def simulation(seed: int, d: int, k: int, n: int) -> tuple[Floats, Floats]:
    """The paper's simulation (Appendix C.6): the first k of d features matter."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X[:, :k] @ rng.uniform(1, 3, size=k) + rng.normal(size=n)


def classes(seed: int, n: int = 400, d: int = 30, k: int = 6) -> tuple[Floats, NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, size=n)
    X = rng.normal(size=(n, d))
    X[:, :k] += 1.5 * rng.normal(size=(3, k))[y]
    return X, y


@parametrize_with_checks([SpikeSlabSelector()])  # type: ignore[untyped-decorator]
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_estimator_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize(("d", "k", "n"), [(100, 50, 200), (100, 90, 200), (300, 100, 500)])
def test_the_simulation_of_the_paper(d: int, k: int, n: int) -> None:
    X, y = simulation(0, d, k, n)
    found = SpikeSlabSelector().fit(X, y).get_support()
    assert found[:k].mean() >= 0.98
    assert found[k:].mean() == 0


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_classes_need_the_scale() -> None:
    X, y = classes(1)
    selector = SpikeSlabSelector().fit(X, y)
    support = selector.get_support()
    assert support[:6].all()
    assert support[6:].mean() <= 0.1
    assert selector.target_support_.shape == selector.inclusion_.shape == (3, 30)
    np.testing.assert_array_equal(selector.target_support_.any(axis=0), support)
    np.testing.assert_array_equal(selector.classes_, [0, 1, 2])
    assert selector.converged_
    assert SpikeSlabSelector(scale="none").fit(X, y).get_support().sum() == 1


def test_several_targets() -> None:
    X, first = simulation(0, 12, 2, 100)
    second = X[:, 7] - 2 * X[:, 8] + np.random.default_rng(1).normal(size=100)
    selector = SpikeSlabSelector().fit(X, np.stack([first, second], axis=1))
    assert selector.get_support(indices=True).tolist() == [0, 1, 7, 8]
    assert [np.flatnonzero(row).tolist() for row in selector.target_support_] == [[0, 1], [7, 8]]
    assert not hasattr(selector, "classes_")


def test_the_stochastic_form_finds_the_same() -> None:
    X, y = simulation(0, 40, 10, 400)
    exact = SpikeSlabSelector().fit(X, y)
    selector = SpikeSlabSelector(method="stochastic", batch_size=128, random_state=0).fit(X, y)
    np.testing.assert_array_equal(selector.get_support(), exact.get_support())
    again = SpikeSlabSelector(method="stochastic", batch_size=128, random_state=0).fit(X, y)
    np.testing.assert_array_equal(selector.inclusion_, again.inclusion_)


scales = st.floats(1e-6, 1e6)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), scales, st.floats(-100, 100), st.booleans())
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_units_do_not_matter(seed: int, scale: float, shift: float, hard: bool) -> None:
    X, y = simulation(seed, 20, 5, 15 if hard else 60)
    rng = np.random.default_rng(seed)
    units = 10 ** rng.uniform(-4, 4, size=20) * rng.choice([-1, 1], size=20)
    reference = SpikeSlabSelector(max_iter=300).fit(X, y)
    other = SpikeSlabSelector(max_iter=300).fit(X * units + shift * units, scale * y + shift)
    np.testing.assert_allclose(other.inclusion_, reference.inclusion_, atol=1e-4)
    np.testing.assert_array_equal(other.get_support(), reference.get_support())


def test_moments_give_the_same_result() -> None:
    X, y = classes(2)
    reference = SpikeSlabSelector().fit(X, y)
    names = [f"unit {i}" for i in range(30)]
    moments = Moments.of(X[:100], y[:100], 3) + Moments.of(X[100:], y[100:], 3)
    selector = SpikeSlabSelector().fit_moments(moments, classes=list("abc"), feature_names=names)
    np.testing.assert_allclose(selector.inclusion_, reference.inclusion_, atol=1e-6)
    assert selector.classes_.tolist() == ["a", "b", "c"]
    kept = reference.get_support(indices=True)
    assert selector.get_feature_names_out().tolist() == [names[i] for i in kept]
    parts = [TargetMoments.of(X[rows], X[rows, :1]) for rows in (slice(150), slice(150, None))]
    regression = SpikeSlabSelector().fit_moments(parts[0] + parts[1])
    assert regression.get_support(indices=True).tolist() == [0]
    assert not hasattr(regression, "classes_")


@pytest.mark.parametrize("value", [0.0, 0.1, 1e9])
def test_constant_features_are_never_kept(value: float) -> None:
    X, y = simulation(0, 6, 3, 50)
    X[:, 1] = value
    assert SpikeSlabSelector().fit(X, y).get_support(indices=True).tolist() == [0, 2]
    moments = TargetMoments.of(X, y[:, None])
    assert SpikeSlabSelector().fit_moments(moments).get_support(indices=True).tolist() == [0, 2]


def test_constant_targets_and_features_and_nothing_selected() -> None:
    X, y = simulation(0, 4, 2, 50)
    both = SpikeSlabSelector().fit(X, np.stack([np.full(50, 0.1), y], axis=1))
    assert both.get_support(indices=True).tolist() == [0, 1]
    assert np.isnan(both.scale_).tolist() == [True, False]
    for d in (3, 9):
        with pytest.warns(UserWarning, match="no feature"):
            assert SpikeSlabSelector().fit(np.ones((4, d)), [0, 1, 0, 1]).get_support().sum() == 1
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 5))
    y = 0.3 * X[:, 3] + rng.normal(size=100)
    selector = SpikeSlabSelector(scale="noise")
    with pytest.warns(UserWarning, match="keeping feature 3"):
        assert selector.fit_transform(X, y).shape == (100, 1)
    assert not selector.target_support_.any()


def test_collinear_features_exact_targets_and_integers() -> None:
    X, y = simulation(0, 8, 3, 100)
    for copies in (2, 3):
        support = SpikeSlabSelector().fit(np.hstack([X] * copies), y).get_support()
        assert support.reshape(copies, 8)[:, :3].any(axis=0).all()
        assert not support.reshape(copies, 8)[:, 3:].any()
    exact = SpikeSlabSelector().fit(X, 2 * X[:, 0] + X[:, 1])
    assert exact.get_support(indices=True).tolist() == [0, 1]
    assert hasattr(SpikeSlabSelector().fit(X, np.round(y)), "classes_")  # by default
    rounded = SpikeSlabSelector(task="regression").fit(X, np.round(y))
    assert rounded.get_support(indices=True).tolist() == [0, 1, 2]
