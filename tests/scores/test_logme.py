from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import PolynomialFeatures
from tests.oracles import scores as oracle
from tests.scores.data import every_shape, problem

from oodzoo import scores
from oodzoo.errors import InputError


@every_shape
def test_agrees_with_the_oracle(n: int, d: int, n_classes: int) -> None:
    X, y, _ = problem(n, d, n_classes, separation=0.3)
    assert scores.logme(X, y) == pytest.approx(oracle.logme(X, y), rel=1e-8)


@every_shape
def test_published_variant_agrees_with_the_oracle(n: int, d: int, n_classes: int) -> None:
    X, y, _ = problem(n, d, n_classes)
    assert scores.logme(X, y, variant="published") == pytest.approx(
        oracle.published_logme(X, y), rel=1e-8
    )


def test_published_variant_counts_zero_singular_values() -> None:
    X, y, _ = problem(20, 50, 2)
    X[1::2] = X[::2]  # rank 10
    assert scores.logme(X, y, variant="published") == pytest.approx(
        oracle.published_logme(X, y), rel=1e-8
    )


def test_published_variant_is_wrong_for_fewer_samples_than_features(
    rng: np.random.Generator,
) -> None:
    X, y = rng.normal(size=(60, 200)), np.arange(60) % 3
    exact, published = scores.logme(X, y), scores.logme(X, y, variant="published")
    assert exact < 0 < 5 < published


def test_published_variant_is_close_for_more_samples_than_features() -> None:
    X, y, _ = problem(400, 8, 3)
    exact, published = scores.logme(X, y), scores.logme(X, y, variant="published")
    assert published == pytest.approx(exact, rel=1e-4)
    assert published != exact


def test_iris(iris: Any) -> None:
    assert scores.logme(*iris) == pytest.approx(-0.1600602, abs=5e-8)


def numbers(case: str) -> tuple[Any, Any]:
    """Features and numbers to predict, one or several, with n > d or n < d."""
    if case == "diabetes":
        X, y = load_diabetes(return_X_y=True)
        return X, y[:, None]
    if case == "diabetes, n < d":
        X, y = load_diabetes(return_X_y=True)
        return PolynomialFeatures(2).fit_transform(X[:40]), y[:40, None]
    n, d = (80, 12) if case == "n > d" else (30, 70)
    rng = np.random.default_rng(4)
    X = rng.normal(size=(n, d)) * rng.uniform(0.1, 3, d)
    Y = X[:, :4] @ rng.normal(size=(4, 3)) + rng.normal(size=(n, 3)) * [0.2, 3, 1]
    return X, Y * [1, 50, 0.01] + [0, 300, 7]


CASES = ("diabetes", "diabetes, n < d", "n > d", "n < d")


@pytest.mark.parametrize("case", CASES)
def test_numbers_to_predict(case: str) -> None:
    X, Y = numbers(case)
    assert scores.logme(X, Y) == pytest.approx(oracle.logme_of_columns(X, Y), rel=1e-9)
    assert scores.logme(X, Y, variant="published") == pytest.approx(
        oracle.published_logme_of_columns(X, Y), rel=1e-9, abs=1e-9
    )
    if Y.shape[1] == 1:  # one column is the same as a vector
        assert scores.logme(X, Y[:, 0], task="regression") == scores.logme(X, Y)


def test_many_integers_are_asked_about() -> None:
    X, y = load_diabetes(return_X_y=True)
    with pytest.raises(
        InputError, match=r"214 different integers in 442 samples \(25, 31, 37, …\)"
    ):
        scores.logme(X, y)
    as_classes = scores.logme(X, y, task="classification")
    assert as_classes == pytest.approx(scores.logme(X, y.astype(int).astype(str)))


def test_one_hot_labels_are_classes() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 5)), np.arange(40) % 3
    assert scores.logme(X, np.eye(3)[y]) == pytest.approx(scores.logme(X, y), rel=1e-12)


def test_zeros_and_ones() -> None:
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(50, 6)), (rng.random((50, 4)) < 0.4).astype(int)
    assert scores.logme(X, Y) == pytest.approx(oracle.logme_of_columns(X, Y.astype(float)))


@given(seed=st.integers(0, 10_000), scale=st.floats(0.01, 100))
@settings(max_examples=20, deadline=None)
def test_the_unit_of_numbers_adds_a_constant(seed: int, scale: float) -> None:
    """ln p(cy) = ln p(y) - n ln c: the order of models does not depend on the unit."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(30, 5))
    y = X[:, :1] + rng.normal(size=(30, 1))
    assert scores.logme(X, scale * y) == pytest.approx(
        scores.logme(X, y) - np.log(scale), rel=1e-7, abs=1e-7
    )
