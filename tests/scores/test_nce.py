from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles import scores as oracle
from tests.scores.data import every_shape, few, problem

from oodzoo import scores


@every_shape
def test_agrees_with_the_oracle(n: int, d: int, n_classes: int) -> None:
    y = problem(n, d, n_classes).y
    source = np.random.default_rng(n).integers(d, size=n)
    assert scores.nce(source, y) == pytest.approx(oracle.nce(source, y), rel=1e-12, abs=1e-14)


def test_labels_that_halve_the_entropy() -> None:
    assert scores.nce([0, 0, 1, 1], ["a", "b", "c", "c"]) == pytest.approx(-math.log(2) / 2)


@few
@given(st.integers(0, 10**6))
def test_finer_source_labels_score_higher(seed: int) -> None:
    rng = np.random.default_rng(seed)
    y, coarse, more = rng.integers(3, size=(3, 40))
    fine = 3 * coarse + more
    assert scores.nce(coarse, y) <= scores.nce(fine, y) + 1e-12 <= 2e-12
