from __future__ import annotations

import numpy as np
import pytest
from tests.oracles import scores as oracle
from tests.scores.data import SHAPES, problem

from oodzoo import scores
from oodzoo.errors import InputError


@pytest.mark.parametrize(("n", "d", "n_classes"), SHAPES[1:])
def test_agrees_with_the_oracle(n: int, d: int, n_classes: int) -> None:
    X, y, _ = problem(n, d, n_classes)
    assert scores.parc(X, y) == pytest.approx(oracle.parc(X, y), rel=1e-9)


def test_two_points_score_a_hundred() -> None:
    X = np.array([[1.0, 2.0, 0.0], [3.0, 0.0, 5.0]])[[0, 0, 0, 1, 1]]
    assert scores.parc(X, [0, 0, 0, 1, 1]) == pytest.approx(100)


def test_sample_is_seeded() -> None:
    X, y, _ = problem(300, 10, 3)
    assert scores.parc(X, y, max_samples=300) == scores.parc(X, y, random_state=5)
    drawn = scores.parc(X, y, max_samples=100)
    assert drawn == scores.parc(X, y, max_samples=100)
    assert drawn != scores.parc(X, y, max_samples=100, random_state=1)
    assert drawn == pytest.approx(scores.parc(X, y), abs=10)


def test_needs_two_samples_of_a_class() -> None:
    with pytest.raises(InputError, match="all 3 pairs of samples have different classes"):
        scores.parc(np.eye(3), ["a", "b", "c"])
