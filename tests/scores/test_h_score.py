from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles import scores as oracle
from tests.scores.data import FEATURES, Problem, close, every_shape, few, problem, problems

from oodzoo import scores


@every_shape
def test_agrees_with_the_oracle(n: int, d: int, n_classes: int) -> None:
    X, y, _ = problem(n, d, n_classes)
    assert scores.h_score(X, y) == pytest.approx(oracle.h_score(X, y), rel=1e-8)


def test_separable_classes() -> None:
    X = np.repeat(np.eye(3), 5, axis=0)
    assert scores.h_score(X, np.repeat([0, 1, 2], 5)) == pytest.approx(2)


@few
@given(problems, st.integers(1, 5))
def test_increases_with_features(p: Problem, more: int) -> None:
    extra = np.random.default_rng(0).normal(size=(len(p.y), more))
    wider = p._replace(X=np.hstack([p.X, extra]))
    assert FEATURES["h_score"](wider) >= FEATURES["h_score"](p) - 1e-7


@pytest.mark.parametrize("n", [60, 5])
def test_a_repeated_feature_has_no_effect(n: int) -> None:
    p = problem(n, 6, 2)
    twice = p._replace(X=np.hstack([p.X, p.X[:, :1]]))
    assert FEATURES["h_score"](twice) == close(FEATURES["h_score"](p))


def test_iris(iris: Any) -> None:
    assert scores.h_score(*iris) == pytest.approx(1.1918988, abs=5e-8)
