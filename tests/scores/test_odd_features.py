"""Features that do not vary, or that vary wildly, have a score too."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.scores.data import FEATURES, problem

from oodzoo.errors import InputError

every_score = pytest.mark.parametrize("name", sorted(FEATURES))


@every_score
@pytest.mark.parametrize("constant", [0.0, 0.1, -1e6])
@pytest.mark.parametrize("d", [5, 90])
def test_a_constant_feature(name: str, constant: float, d: int) -> None:
    p = problem(45, d, 3)
    value = FEATURES[name](p._replace(X=np.insert(p.X, 2, constant, axis=1)))
    assert math.isfinite(value)
    if name in {"h_score", "transrate", "nleep"} or (
        constant == 0 and name in {"knn", "logme"}
    ):  # it counts for nothing
        assert value == pytest.approx(FEATURES[name](p), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("name", ["h_score", "parc"])
def test_a_feature_that_only_rounding_moves_is_constant(name: str) -> None:
    """Put on a common scale with the others, rounding would weigh as much as they do."""
    p = problem(45, 5, 3)
    rounded = 0.1 * (1 + np.finfo(float).eps * (np.arange(45) % 2))
    moved, fixed = (
        p._replace(X=np.insert(p.X, 2, column, axis=1)) for column in (rounded, np.full(45, 0.1))
    )
    assert not np.array_equal(moved.X, fixed.X)
    assert FEATURES[name](moved) == pytest.approx(FEATURES[name](fixed), rel=1e-9)


CONSTANT = {
    "gbc": -6.0,
    "gbc diagonal": -6.0,
    "h_score": 0.0,
    "nleep": -math.log(3),
    "parc": 0.0,
    "regularized_h_score": 0.0,
    "sfda": -math.log(3),
    "transrate": 0.0,
}


@every_score
@pytest.mark.parametrize("constant", [0.0, 0.1, 3.0])
@pytest.mark.parametrize("d", [1, 4, 50])
def test_nothing_but_constant_features(name: str, constant: float, d: int) -> None:
    p = problem(30, d, 3)._replace(y=np.arange(30) % 3)
    value = FEATURES[name](p._replace(X=np.full((30, d), constant)))
    assert math.isfinite(value)
    if name in CONSTANT:
        assert value == pytest.approx(CONSTANT[name], abs=1e-9)


@every_score
@pytest.mark.parametrize("d", [3, 60])
def test_classes_that_are_single_points(name: str, d: int) -> None:
    """As after neural collapse: nothing is better than this."""
    p = problem(30, d, 3)
    points = np.random.default_rng(0).normal(size=(3, d))
    value = FEATURES[name](p._replace(X=points[p.y]))
    assert math.isfinite(value)
    best = {"gbc": 0, "gbc diagonal": 0, "knn": 1, "lda": 1, "sfda": 0, "h_score": 2}
    if name in best:
        assert value == pytest.approx(best[name], abs=1e-6)


@every_score
@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_very_small_and_very_large_features(name: str, scale: float) -> None:
    p = problem(40, 8, 3)
    assert math.isfinite(FEATURES[name](p._replace(X=scale * p.X)))


@every_score
def test_a_class_of_one_sample(name: str) -> None:
    p = problem(30, 5, 3)
    y = np.where(np.arange(30) == 11, 3, p.y)
    assert math.isfinite(FEATURES[name](p._replace(y=y)))


@every_score
def test_two_samples(name: str) -> None:
    p = problem(6, 4, 2)
    if name == "parc":
        pytest.skip("two samples have one pair, and no correlation")
    pair = p._replace(X=p.X[:2], y=p.y[:2], domains=np.array([0, 1]))
    assert math.isfinite(FEATURES[name](pair))


@pytest.mark.parametrize(("n", "d"), [(300, 8), (100, 150)])
def test_logme_of_a_large_offset(n: int, d: int) -> None:
    """It falls by ln(c) / n where the offset is multiplied by c, and by no more."""
    p = problem(n, d, 3)
    X = p.X + 5 * np.eye(3, d)[p.y]
    values = [FEATURES["logme"](p._replace(X=X + size)) for size in (1e4, 1e7)]
    assert values[0] - values[1] == pytest.approx(math.log(1e3) / n, rel=1e-2)


@every_score
@pytest.mark.parametrize(("size", "shown"), [(1e300, "[+]300"), (1e-160, "-160")])
def test_features_too_large_or_too_small(name: str, size: float, shown: str) -> None:
    p = problem(45, 5, 3)
    X = size * p.X / np.abs(p.X).max()
    with pytest.raises(InputError, match=f"^X: the largest value is 1e{shown}; rescale"):
        FEATURES[name](p._replace(X=X))
