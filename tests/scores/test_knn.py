from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.oracles import scores as oracle
from tests.scores.data import every_shape, problem

from oodzoo import scores
from oodzoo.backend import Backend


@every_shape
@pytest.mark.parametrize("k", [1, 5, 200])
def test_agrees_with_the_oracle(n: int, d: int, n_classes: int, k: int) -> None:
    X, y, domains = problem(n, d + 1, n_classes)  # with one feature all similarities tie
    assert scores.knn(X, y, domains, k=k) == pytest.approx(oracle.knn(X, y, domains, k=k))


@pytest.fixture(params=["numpy", "torch"])
def as_array(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    if request.param == "numpy":
        return np.asarray
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    return lambda values: torch.asarray(np.asarray(values))


@pytest.mark.parametrize("shape", [(4, 3), (7, 11), (100, 5)])
@pytest.mark.parametrize("k", [1, 4, 25, 200])
def test_many_blocks(
    monkeypatch: pytest.MonkeyPatch, as_array: Callable[[Any], Any], shape: Any, k: int
) -> None:
    X, y, domains = problem(60, 10, 5)
    expected = oracle.knn(X, y, domains, k=k)
    monkeypatch.setattr("oodzoo.scores._knn._block_shape", lambda *_: shape)
    assert scores.knn(as_array(X), y, domains, k=k) == expected


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("shape", [(2, 1), (50, 2), (3, 5)])
def test_ties_within_and_between_blocks(
    monkeypatch: pytest.MonkeyPatch, as_array: Callable[[Any], Any], shape: Any, seed: int
) -> None:
    """Few different directions, so that most neighbours tie, and some samples are zero."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-1, 2, size=(40, 2)) * rng.choice([1.0, 2.0], size=(40, 1))
    y, domains = rng.integers(0, 3, size=40), rng.integers(0, 2, size=40)
    expected = [oracle.knn(X, y, domains, k, temperature=1, with_ties=True) for k in (1, 3, 8, 40)]
    monkeypatch.setattr("oodzoo.scores._knn._block_shape", lambda *_: shape)
    found = [scores.knn(as_array(X), y, domains, k, temperature=1) for k in (1, 3, 8, 40)]
    assert found == expected


def test_features_are_not_copied_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backend, "block_bytes", 2**17)
    X = np.random.default_rng(0).normal(size=(2_000, 300)).astype(np.float32)
    y, domains = np.arange(2_000) % 3, np.arange(2_000) % 2
    tracemalloc.start()
    scores.knn(X, y, domains, k=3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < X.nbytes


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
