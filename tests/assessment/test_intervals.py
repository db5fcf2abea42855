"""Intervals of metrics: the definition of Wilson's, and their coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from oodzoo.assessment.testing import Z, metric_interval, wilson
from oodzoo.metrics import metric


@given(n=st.integers(1, 500), share=st.floats(0, 1))
def test_the_ends_are_as_far_from_the_accuracy_as_the_quantile_says(n: int, share: float) -> None:
    """Wilson's ends are the accuracies q for which |p - q| is z standard errors of q."""
    correct = round(share * n)
    p = correct / n
    low, high = wilson(correct, n)
    assert 0 <= low <= p <= high <= 1
    for end in (low, high):
        if 0 < end < 1:
            assert abs(p - end) == pytest.approx(Z * math.sqrt(end * (1 - end) / n), abs=1e-9)


def test_the_quantile_is_that_of_a_normal_distribution() -> None:
    assert pytest.approx(stats.norm.ppf(0.95)) == Z


def test_the_interval_is_that_of_scipy() -> None:
    found = stats.binomtest(37, 50).proportion_ci(0.9, method="wilson")
    assert wilson(37, 50) == pytest.approx((found.low, found.high))
    guess = np.array([1] * 37 + [0] * 13)
    assert metric_interval("classification", guess, np.ones(50)) == pytest.approx(
        (100 * found.low, 100 * found.high)
    )


@pytest.mark.parametrize("kind", ["regression", "multilabel"])
def test_other_intervals_contain_the_truth_nine_times_of_ten(kind: str) -> None:
    rng = np.random.default_rng(0)

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        score = rng.normal(size=(n, 1))
        if kind == "regression":
            return score, score + 0.5 * rng.normal(size=(n, 1))
        return score, (score + rng.normal(size=(n, 1)) > 0.5).astype(float)

    truth = 100 * metric(kind, *draw(20_000))  # type: ignore[arg-type]
    found = [metric_interval(kind, *draw(150)) for _ in range(200)]  # type: ignore[arg-type]
    assert 0.84 < np.mean([i is not None and i[0] <= truth <= i[1] for i in found]) < 0.96


@pytest.mark.parametrize("kind", ["regression", "multilabel"])
def test_samples_that_all_contribute_the_same_have_no_interval(kind: str) -> None:
    """Not one of no width, which any promise would be above or below."""
    rng = np.random.default_rng(0)
    scores, same = rng.random((8, 1)), np.zeros((8, 1))
    assert metric_interval(kind, scores, same) is None  # type: ignore[arg-type]
    varied = np.repeat([[0.0], [1.0]], 4, axis=0)
    assert metric_interval(kind, varied, varied) is None  # type: ignore[arg-type]
    assert metric_interval(kind, scores, varied) is not None  # type: ignore[arg-type]


def test_one_sample_says_nothing() -> None:
    one = np.array([[1.0]])
    assert metric_interval("multilabel", one, one) is None
    assert metric_interval("regression", one, one) is None
    found = metric_interval("classification", one[0], one[0])
    assert found == pytest.approx((26.99, 100), abs=0.01)
