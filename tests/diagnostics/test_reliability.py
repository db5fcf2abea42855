"""Calibration against a loop over bins, and against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve

from oodzoo.diagnostics.reliability import Bin, Reliability, merged, reliability
from oodzoo.evaluation.rows import calibration_error

SEEDS = st.integers(0, 2**32 - 1)


def predictions(seed: int, n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    confidence = rng.random(n)
    return confidence, rng.random(n) < confidence**2


@given(seed=SEEDS, n_bins=st.integers(1, 20))
def test_bins_equal_those_of_a_loop(seed: int, n_bins: int) -> None:
    confidence, correct = predictions(seed)
    found = reliability(confidence, correct, n_bins)
    bins = iter(found.bins)
    error = 0.0
    for b in range(n_bins):
        rows = [r for r, c in enumerate(confidence) if b / n_bins < c <= (b + 1) / n_bins]
        if not rows:
            continue
        mine = next(bins)
        sure, right = np.mean(confidence[rows]), np.mean(correct[rows])
        assert (mine.low, mine.high) == (100 * b / n_bins, 100 * (b + 1) / n_bins)
        assert (mine.images, mine.confidence, mine.accuracy) == pytest.approx(
            (len(rows), 100 * sure, 100 * right)
        )
        error += len(rows) / 60 * abs(right - sure)
    assert next(bins, None) is None
    assert found.error == pytest.approx(100 * error)
    assert (found.images, found.accuracy) == pytest.approx((60, 100 * correct.mean()))
    assert found.confidence == pytest.approx(100 * confidence.mean())


def test_bins_are_those_of_scikit_learn() -> None:
    confidence, correct = predictions(1, 500)
    found = reliability(confidence, correct, 10)
    right, sure = calibration_curve(correct, confidence, n_bins=10)
    assert [each.accuracy for each in found.bins] == pytest.approx(100 * right)
    assert [each.confidence for each in found.bins] == pytest.approx(100 * sure)


def test_the_error_is_that_of_an_evaluation() -> None:
    rng = np.random.default_rng(2)
    probabilities, y = rng.dirichlet(np.ones(4), 80), rng.integers(0, 4, 80)
    found = reliability(probabilities.max(axis=1), probabilities.argmax(axis=1) == y)
    assert found.error == pytest.approx(100 * calibration_error(probabilities, y))


def test_certain_and_impossible_predictions_have_bins() -> None:
    found = reliability(np.array([0.0, 1.0]), np.array([False, True]), 4)
    assert found == Reliability((Bin(0, 25, 1, 0, 0), Bin(75, 100, 1, 100, 100)), 0.0)


@given(seed=SEEDS, cut=st.integers(1, 59))
def test_parts_together_are_the_whole(seed: int, cut: int) -> None:
    confidence, correct = predictions(seed)
    whole = reliability(confidence, correct)
    parts = [reliability(confidence[s], correct[s]) for s in (slice(cut), slice(cut, None))]
    found = merged(parts)
    assert found.error == pytest.approx(whole.error)
    for mine, expected in zip(found.bins, whole.bins, strict=True):
        assert (mine.low, mine.high, mine.images) == (expected.low, expected.high, expected.images)
        assert mine.confidence == pytest.approx(expected.confidence)
        assert mine.accuracy == pytest.approx(expected.accuracy)


def test_other_bins_are_refused() -> None:
    confidence, correct = predictions(0)
    with pytest.raises(ValueError, match="overlap"):
        merged([reliability(confidence, correct, 10), reliability(confidence, correct, 7)])
    with pytest.raises(ValueError, match="0 confidences"):
        reliability(confidence[:0], correct[:0])
