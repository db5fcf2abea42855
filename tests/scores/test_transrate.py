from __future__ import annotations

from typing import Any

import pytest
from tests.oracles import scores as oracle
from tests.scores.data import every_shape, problem

from oodzoo import scores


@every_shape
@pytest.mark.parametrize("eps", [1e-4, 0.5])
def test_agrees_with_the_oracle(n: int, d: int, n_classes: int, eps: float) -> None:
    X, y, _ = problem(n, d, n_classes)
    assert scores.transrate(X, y, eps=eps) == pytest.approx(
        oracle.transrate(X, y, eps=eps), rel=1e-9
    )


def test_iris(iris: Any) -> None:
    assert scores.transrate(*iris) == pytest.approx(0.5894054, abs=5e-8)
