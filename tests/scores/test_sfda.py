from __future__ import annotations

import numpy as np
import pytest
from tests.oracles import scores as oracle
from tests.scores.data import every_shape, problem

from oodzoo import scores


@every_shape
@pytest.mark.parametrize("scale", [0.05, 0.5])  # of shrinkage near one, and near none
def test_agrees_with_the_oracle(n: int, d: int, n_classes: int, scale: float) -> None:
    X, y, _ = problem(n, d, n_classes, separation=0.5)
    X = scale * X
    assert scores.sfda(X, y) == pytest.approx(oracle.sfda(X, y), rel=1e-6, abs=1e-10)


def test_minimal_shrinkage() -> None:
    """Far more spread than makes exp(-a σ) vanish; a direction of small spread then counts."""
    X, y, _ = problem(60, 3, 3, separation=0.5)
    X = X @ np.diag([5.0, 5.0, 5e-3])
    assert scores.sfda(X, y) == pytest.approx(oracle.sfda(X, y), rel=1e-9)
