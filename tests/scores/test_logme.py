from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.oracles import scores as oracle
from tests.scores.data import every_shape, problem

from oodzoo import scores


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
