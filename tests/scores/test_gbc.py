from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from tests.oracles import scores as oracle
from tests.scores.data import Problem, every_shape, few, problem, problems

from oodzoo import scores


@every_shape
@pytest.mark.parametrize("covariance", ["spherical", "diagonal"])
@pytest.mark.parametrize("n_components", [None, 2, 64])
def test_agrees_with_the_oracle(
    n: int, d: int, n_classes: int, covariance: Any, n_components: int | None
) -> None:
    X, y, _ = problem(n, d, n_classes, separation=0.2)
    value = scores.gbc(X, y, covariance=covariance, n_components=n_components, floor=0.1)
    expected = oracle.gbc(X, y, covariance, n_components, floor=0.1)
    assert value == pytest.approx(expected, rel=1e-7, abs=1e-300)


def test_small_overlaps_are_resolved() -> None:
    """Overlaps far below the precision of one still rank."""
    y = np.repeat([0, 1], 20)
    noise = np.random.default_rng(0).normal(size=(40, 5))
    near, far = (scores.gbc(noise + gap * y[:, None], y) for gap in (8, 10))
    assert -1e-15 < near < far < 0


@few
@given(problems)
def test_increases_with_class_separation(p: Problem) -> None:
    """Each class moved off on an axis of its own, all features kept."""
    rng = np.random.default_rng(0)
    own = rng.normal(size=(len(p.y), 4))
    near, far = (
        scores.gbc(np.hstack([p.X, own + gap * np.eye(4)[p.y]]), p.y, n_components=None, floor=1e-9)
        for gap in (0, 100)
    )
    assert near < far <= 0
