from __future__ import annotations

import numpy as np
import pytest
from tests.oracles import scores as oracle
from tests.scores.data import every_shape, problem

from oodzoo import scores


@every_shape
@pytest.mark.parametrize("k", [1, 5, 200])
def test_agrees_with_the_oracle(n: int, d: int, n_classes: int, k: int) -> None:
    X, y, domains = problem(n, d + 1, n_classes)  # with one feature all similarities tie
    assert scores.knn(X, y, domains, k=k) == pytest.approx(oracle.knn(X, y, domains, k=k))


def test_many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, domains = problem(60, 10, 5)
    monkeypatch.setattr("oodzoo.scores._knn._BLOCK", 100)
    assert scores.knn(X, y, domains, k=7) == pytest.approx(oracle.knn(X, y, domains, k=7))


def test_votes_are_weighted_by_similarity() -> None:
    """One near neighbour of the right class outvotes two far ones of the wrong class."""
    X = np.array([[1.0, 0.0], [0.99, 0.1], [0.1, 1.0], [0.0, 1.0], [1.0, 1.0]])
    y = ["a", "a", "b", "b", "b"]
    domains = [0, 1, 1, 1, 0]
    # Of domain 0, (1, 0) is then right, and (1, 1) right by two against one.
    assert scores.knn(X, y, domains, temperature=0.07) == pytest.approx(
        np.mean([1.0, np.mean([1.0, 1.0, 1.0])])
    )
    # With equal weights the majority is wrong about (1, 0).
    assert scores.knn(X, y, domains, temperature=1e6) < 1


def test_low_temperature_follows_the_nearest_neighbour() -> None:
    X, y, domains = problem(60, 10, 5)
    assert scores.knn(X, y, domains, temperature=1e-4) == scores.knn(X, y, domains, k=1)


def test_all_tied_neighbours_vote() -> None:
    """k = 1, but the nearest are one "a" and two "b" at the same place."""
    X = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    y = np.array(["b", "a", "b", "b", "a"])
    domains = np.array([0, 1, 1, 1, 1])
    order = np.array([0, 2, 3, 1, 4])
    assert scores.knn(X, y, domains, k=1) == scores.knn(X[order], y[order], domains, k=1)


def test_a_class_of_a_single_domain_cannot_be_predicted() -> None:
    X = np.array([[1.0, 0.1], [0.1, 1.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.1]])
    y, domains = ["a", "b", "a", "b", "c"], [0, 0, 1, 1, 1]
    expected = (1 + 2 / 3) / 2
    assert scores.knn(X, y, domains) == pytest.approx(expected)
