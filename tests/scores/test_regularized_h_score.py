from __future__ import annotations

from typing import Any

import pytest
from sklearn.covariance import ledoit_wolf_shrinkage
from tests.oracles import scores as oracle
from tests.scores.data import every_shape, problem

from oodzoo import scores


@every_shape
def test_agrees_with_the_oracle(n: int, d: int, n_classes: int) -> None:
    X, y, _ = problem(n, d, n_classes)
    assert scores.regularized_h_score(X, y) == pytest.approx(
        oracle.regularized_h_score(X, y), rel=1e-9
    )


def test_shrinkage_agrees_with_scikit_learn() -> None:
    X = problem(30, 80, 4).X
    assert oracle.ledoit_wolf_shrinkage(X) == pytest.approx(ledoit_wolf_shrinkage(X), rel=1e-10)


def test_iris(iris: Any) -> None:
    assert scores.regularized_h_score(*iris) == pytest.approx(1.1778425, abs=5e-8)
