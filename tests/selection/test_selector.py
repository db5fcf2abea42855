"""The selector: what it finds, what it does not depend on, and what it does with odd data."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from oodzoo import InputError, SpikeSlabSelector
from oodzoo.moments import Moments
from oodzoo.selection.target_scale import TargetMoments

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


# --- what it finds -----------------------------------------------------------------------------


@pytest.mark.parametrize(("d", "k", "n"), [(100, 50, 200), (100, 90, 200), (300, 100, 500)])
def test_the_simulation_of_the_paper(d: int, k: int, n: int) -> None:
    X, y = simulation(0, d, k, n)
    found = SpikeSlabSelector().fit(X, y).get_support()
    assert found[:k].mean() >= 0.98
    assert found[k:].mean() == 0


@pytest.mark.parametrize(("d", "k", "n"), [(100, 60, 100), (150, 25, 135)])
def test_few_samples_do_not_change_the_scale_of_the_paper(d: int, k: int, n: int) -> None:
    """The data are in the units of the paper's model, whose factor is 1."""
    for seed in range(5):
        selector = SpikeSlabSelector().fit(*simulation(seed, d, k, n))
        assert selector.scale_[0] == pytest.approx(1, abs=0.25)


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


def test_real_images() -> None:
    X, y = load_digits(return_X_y=True)
    selector = SpikeSlabSelector().fit(X, y)
    kept = selector.get_support()
    assert 0.1 < kept.mean() < 0.95
    assert not kept[X.std(axis=0) == 0].any()
    assert selector.transform(X).shape == (len(X), kept.sum())


def test_two_classes_have_one_mask() -> None:
    X, y = classes(1)
    selector = SpikeSlabSelector().fit(X, np.where(y == 0, "yes", "no"))
    np.testing.assert_allclose(selector.inclusion_[0], selector.inclusion_[1], atol=1e-8)
    np.testing.assert_array_equal(selector.classes_, ["no", "yes"])


def test_several_targets() -> None:
    X, first = simulation(0, 12, 2, 100)
    second = X[:, 7] - 2 * X[:, 8] + np.random.default_rng(1).normal(size=100)
    selector = SpikeSlabSelector().fit(X, np.stack([first, second], axis=1))
    assert selector.get_support(indices=True).tolist() == [0, 1, 7, 8]
    assert [np.flatnonzero(row).tolist() for row in selector.target_support_] == [[0, 1], [7, 8]]
    assert not hasattr(selector, "classes_")


def test_integers_are_classes_by_default() -> None:
    X, y = simulation(0, 5, 2, 80)
    rounded = np.round(y)
    assert hasattr(SpikeSlabSelector().fit(X, rounded), "classes_")
    selector = SpikeSlabSelector(task="regression").fit(X, rounded)
    assert selector.get_support(indices=True).tolist() == [0, 1]


def test_the_stochastic_form_finds_the_same() -> None:
    X, y = simulation(0, 40, 10, 400)
    exact = SpikeSlabSelector().fit(X, y)
    selector = SpikeSlabSelector(method="stochastic", batch_size=128, random_state=0).fit(X, y)
    np.testing.assert_array_equal(selector.get_support(), exact.get_support())
    again = SpikeSlabSelector(method="stochastic", batch_size=128, random_state=0).fit(X, y)
    np.testing.assert_array_equal(selector.inclusion_, again.inclusion_)


# --- what it does not depend on ----------------------------------------------------------------

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


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000))
def test_order_does_not_matter_where_data_suffice(seed: int) -> None:
    X, y = simulation(seed, 20, 5, 200)
    rng = np.random.default_rng(seed)
    rows, columns = rng.permutation(200), rng.permutation(20)
    reference = SpikeSlabSelector().fit(X, y).get_support()
    shuffled = SpikeSlabSelector().fit(X[rows][:, columns], y[rows]).get_support()
    np.testing.assert_array_equal(shuffled, reference[columns])


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
    regression = SpikeSlabSelector().fit_moments(TargetMoments.of(X, X[:, :1]))
    assert regression.get_support(indices=True).tolist() == [0]
    assert not hasattr(regression, "classes_")


@pytest.mark.skipif(not find_spec("torch"), reason="PyTorch is not installed")
def test_torch_gives_the_same() -> None:
    X, y = classes(3)
    reference = SpikeSlabSelector().fit(X, y)
    selector = SpikeSlabSelector(device="cpu").fit(X, y)
    np.testing.assert_allclose(selector.inclusion_, reference.inclusion_, atol=1e-8)
    assert isinstance(selector.inclusion_, np.ndarray)


# --- company -----------------------------------------------------------------------------------


def test_in_a_pipeline_and_a_grid_search() -> None:
    X, y = load_iris(return_X_y=True)
    pipeline = make_pipeline(
        StandardScaler(), SpikeSlabSelector(), LogisticRegression(max_iter=500)
    )
    grid = {"spikeslabselector__threshold": [0.1, 0.9], "spikeslabselector__slab": [(1, 1), (1, 9)]}
    search = GridSearchCV(pipeline, grid, cv=3).fit(X, y)
    assert search.best_score_ > 0.9


# --- odd data ----------------------------------------------------------------------------------


def test_nan_is_rejected() -> None:
    X, y = simulation(0, 4, 2, 20)
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        SpikeSlabSelector().fit(X, y)
    with pytest.raises(InputError, match="feature_sum contains NaN"):
        SpikeSlabSelector().fit_moments(TargetMoments.of(X, y[:, None]))


def test_one_sample_is_rejected() -> None:
    with pytest.raises(ValueError, match="1 sample"):
        SpikeSlabSelector().fit([[1.0, 2.0]], [0.5])
    with pytest.raises(InputError, match="1 sample"):
        SpikeSlabSelector().fit_moments(Moments.of(np.ones((1, 2)), np.array([0]), 2))


@pytest.mark.parametrize("value", [0.0, 0.1, 1e9])
def test_constant_features_are_never_kept(value: float) -> None:
    X, y = simulation(0, 6, 3, 50)
    X[:, 1] = value
    assert SpikeSlabSelector().fit(X, y).get_support(indices=True).tolist() == [0, 2]
    moments = TargetMoments.of(X, y[:, None])
    assert SpikeSlabSelector().fit_moments(moments).get_support(indices=True).tolist() == [0, 2]


def test_a_constant_target_keeps_one_feature_and_warns() -> None:
    X, y = simulation(0, 4, 2, 50)
    with pytest.warns(UserWarning, match=r"no feature has .* keeping feature 0,"):
        selector = SpikeSlabSelector().fit(X, np.full(50, 0.1))
    assert selector.get_support(indices=True).tolist() == [0]
    both = SpikeSlabSelector().fit(X, np.stack([np.full(50, 0.1), y], axis=1))
    assert both.get_support(indices=True).tolist() == [0, 1]
    assert np.isnan(both.scale_).tolist() == [True, False]


def test_one_class_only() -> None:
    with pytest.raises(InputError, match=r"all labels are of one class, 'a' \(4 samples\)"):
        SpikeSlabSelector().fit(np.eye(4), ["a"] * 4)


def test_only_constant_features() -> None:
    with pytest.warns(UserWarning, match="no feature"):
        assert SpikeSlabSelector().fit(np.ones((4, 3)), [0, 1, 0, 1]).get_support().sum() == 1


def test_nothing_selected_keeps_the_best() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 5))
    y = 0.3 * X[:, 3] + rng.normal(size=100)
    selector = SpikeSlabSelector(scale="noise")
    with pytest.warns(UserWarning, match="keeping feature 3"):
        assert selector.fit_transform(X, y).shape == (100, 1)
    assert not selector.target_support_.any()


def test_a_single_feature() -> None:
    X, y = simulation(0, 1, 1, 30)
    assert SpikeSlabSelector().fit(X, y).get_support().tolist() == [True]


def test_two_samples() -> None:
    with pytest.warns(UserWarning, match="no feature has an inclusion probability above"):
        selector = SpikeSlabSelector().fit([[0.0, 1.0], [1.0, 1.0]], [0, 1])
    assert selector.get_support().tolist() == [True, False]


@pytest.mark.parametrize("copies", [2, 3])
def test_collinear_features(copies: int) -> None:
    X, y = simulation(0, 8, 3, 100)
    doubled = np.hstack([X] * copies)
    support = SpikeSlabSelector().fit(doubled, y).get_support().reshape(copies, 8)
    assert support[:, :3].any(axis=0).all()
    assert not support[:, 3:].any()


def test_a_target_that_is_fitted_exactly() -> None:
    X, _ = simulation(0, 8, 3, 50)
    support = SpikeSlabSelector().fit(X, 2 * X[:, 0] + X[:, 1]).get_support(indices=True)
    assert support.tolist() == [0, 1]


def test_warns_if_not_converged() -> None:
    X, y = simulation(0, 50, 20, 60)
    with pytest.warns(ConvergenceWarning, match="after 3 iterations"):
        selector = SpikeSlabSelector(max_iter=3).fit(X, y)
    assert (selector.n_iter_, selector.converged_) == (3, False)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"scale": "big"}, "unknown scale 'big'; expected one of evidence, "),
        ({"task": "both"}, "unknown task 'both'; expected one of "),
        ({"method": "fast"}, "unknown method 'fast'; expected one of "),
        ({"threshold": 1.0}, "threshold must be"),
        ({"tol": 0}, "tol must be positive"),
        ({"max_iter": 0}, "max_iter must be 1 or more"),
        ({"inclusion": 2}, "prior inclusion"),
    ],
)
def test_invalid_parameters(parameters: dict[str, Any], message: str) -> None:
    X, y = simulation(0, 4, 2, 20)
    with pytest.raises(InputError, match=message):
        SpikeSlabSelector(**parameters).fit(X, y)


def test_inconsistent_input() -> None:
    X, y = simulation(0, 4, 2, 20)
    with pytest.raises(InputError, match="needs samples, not moments"):
        SpikeSlabSelector(method="stochastic").fit_moments(TargetMoments.of(X, y[:, None]))
    with pytest.raises(InputError, match="expected 4 feature names, got 3"):
        SpikeSlabSelector().fit_moments(TargetMoments.of(X, y[:, None]), feature_names="abc")
    with pytest.raises(InputError, match="must be one column, got 2 columns"):
        SpikeSlabSelector(task="classification").fit(X, np.stack([y, y], axis=1))
    with pytest.raises(InputError, match="must be numeric"):
        SpikeSlabSelector(task="regression").fit(X, ["a"] * 20)
    whole = TargetMoments.of(X, y[:, None])
    with pytest.raises(InputError, match=r"squares must have the shape \(1,\), got \(2,\)"):
        SpikeSlabSelector().fit_moments(
            TargetMoments(20, whole.feature_sum, whole.gram, whole.products, whole.target_sum,
                          np.ones(2))
        )  # fmt: skip


@pytest.mark.parametrize("size", [1e300, 1e-160])
def test_features_too_large_or_too_small(size: float) -> None:
    with pytest.raises(InputError, match=r"X: the largest value is 1e.*; rescale the features"):
        SpikeSlabSelector().fit(size * np.eye(4), [0, 1, 0, 1])
