from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles import scores as oracle
from tests.scores.data import Problem, close, every_shape, few, problem, problems

from oodzoo import scores


@every_shape
def test_agrees_with_the_oracle(n: int, d: int, n_classes: int) -> None:
    y = problem(n, d, n_classes).y
    theta = np.random.default_rng(n).dirichlet(np.full(d, 0.3), size=n)
    assert scores.leep(theta, y) == pytest.approx(oracle.leep(theta, y), rel=1e-10, abs=1e-12)


def test_perfect_and_uninformative_source_classes() -> None:
    y = np.arange(40) % 4
    assert scores.leep(np.eye(4)[y], y) == 0
    assert scores.leep(np.full((40, 7), 1 / 7), y) == pytest.approx(-math.log(4))


@few
@given(problems, st.integers(1, 6), st.floats(0.01, 5))
def test_lies_between_negative_entropy_and_zero(p: Problem, n_source: int, evenness: float) -> None:
    theta = np.random.default_rng(0).dirichlet(np.full(n_source, evenness), size=len(p.y))
    shares = np.bincount(p.y) / len(p.y)
    assert float(shares @ np.log(shares)) - 1e-9 <= scores.leep(theta, p.y) <= 0


@few
@given(st.integers(0, 10**6), st.integers(1, 5))
def test_equals_nce_for_one_hot_probabilities(seed: int, n_source: int) -> None:
    rng = np.random.default_rng(seed)
    source, y = rng.integers(n_source, size=30), np.arange(30) % 3
    assert scores.leep(np.eye(n_source)[source], y) == close(scores.nce(source, y))


@few
@given(st.integers(0, 10**6), st.floats(0, 1))
def test_decreases_towards_uniform_probabilities(seed: int, share: float) -> None:
    """Certain and right sources, mixed with what is the same for all samples."""
    y = np.random.default_rng(seed).permutation(np.arange(30) % 3)
    mixed = (1 - share) * np.eye(3)[y] + share / 3
    more = (1 - share / 2) * np.eye(3)[y] + share / 6
    assert scores.leep(mixed, y) <= scores.leep(more, y) + 1e-12
