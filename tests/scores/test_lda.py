from __future__ import annotations

import numpy as np
import pytest
from tests.oracles import scores as oracle
from tests.scores.data import every_shape, problem

from oodzoo import scores


@every_shape
def test_agrees_with_the_oracle(n: int, d: int, n_classes: int) -> None:
    X, y, domains = problem(n, d, n_classes, separation=0.7)
    assert scores.lda(X, y, domains) == pytest.approx(oracle.lda(X, y, domains), rel=1e-12)


def test_is_cross_validated_without_domains(rng: np.random.Generator) -> None:
    """On noise with more features than samples only what is held out tells the truth."""
    X, y = rng.normal(size=(100, 200)), np.arange(100) % 2
    assert 0.25 < scores.lda(X, y) < 0.75
    assert scores.lda(X, y, random_state=1) != scores.lda(X, y, random_state=2)


def test_a_class_of_a_single_domain_cannot_be_predicted() -> None:
    X = np.array([[1.0, 0.1], [0.1, 1.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.1]])
    y, domains = ["a", "b", "a", "b", "c"], [0, 0, 1, 1, 1]
    expected = (1 + 2 / 3) / 2
    assert scores.lda(X, y, domains) == pytest.approx(expected)
