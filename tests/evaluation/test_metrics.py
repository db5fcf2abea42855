"""Measures against their definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles import evaluation as oracle

from oodzoo.evaluation.metrics import BINS, accuracy, balanced_accuracy, calibration_error


@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(2, 5), st.floats(0.1, 20))
def test_measures_equal_their_definitions(
    seed: int, n: int, n_classes: int, sharpness: float
) -> None:
    rng = np.random.default_rng(seed)
    logits = sharpness * rng.normal(size=(n, n_classes))
    probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    labels = rng.integers(0, n_classes, n)
    assert accuracy(probabilities, labels) == pytest.approx(oracle.accuracy(probabilities, labels))
    expected = oracle.balanced_accuracy(probabilities, labels)
    assert balanced_accuracy(probabilities, labels) == pytest.approx(expected)
    expected = oracle.calibration_error(probabilities, labels, BINS)
    assert calibration_error(probabilities, labels) == pytest.approx(expected)


def test_absent_classes_do_not_count_in_balanced_accuracy() -> None:
    labels = np.array([0, 0, 0, 2])
    probabilities = np.eye(4)[[0, 0, 1, 2]]
    assert accuracy(probabilities, labels) == 0.75
    assert balanced_accuracy(probabilities, labels) == pytest.approx((2 / 3 + 1) / 2)


def test_a_certain_classifier_is_calibrated_if_correct() -> None:
    labels = np.array([0, 1, 1])
    assert calibration_error(np.eye(2)[labels], labels) == 0
    assert calibration_error(np.eye(2)[1 - labels], labels) == 1


def test_the_edge_of_a_bin_belongs_to_the_bin_below() -> None:
    # 0.6 = 9/15 and 0.59 share the ninth bin, where their errors cancel; 0.61 does not.
    wrong, right = [0.6, 0.4], [0.59, 0.41]
    labels = np.array([1, 0])
    together = calibration_error(np.array([wrong, right]), labels)
    assert together == pytest.approx(abs((0 - 0.6) + (1 - 0.59)) / 2)
    apart = calibration_error(np.array([[0.61, 0.39], right]), labels)
    assert apart == pytest.approx((0.61 + 0.41) / 2)
