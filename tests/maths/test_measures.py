"""Measures against their definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, mean_absolute_error, r2_score
from tests.oracles import evaluation as oracle

from oodzoo.combining.evaluation.rows import (
    BINS,
    accuracy,
    balanced_accuracy,
    by_output,
    calibration_error,
    measures_of,
)


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


def test_the_edge_of_a_bin_belongs_to_the_bin_below() -> None:
    # 0.6 = 9/15 and 0.59 share the ninth bin, where their errors cancel; 0.61 does not.
    wrong, right = [0.6, 0.4], [0.59, 0.41]
    labels = np.array([1, 0])
    together = calibration_error(np.array([wrong, right]), labels)
    assert together == pytest.approx(abs((0 - 0.6) + (1 - 0.59)) / 2)
    apart = calibration_error(np.array([[0.61, 0.39], right]), labels)
    assert apart == pytest.approx((0.61 + 0.41) / 2)


@given(st.integers(0, 2**32 - 1), st.integers(3, 30), st.integers(2, 4))
def test_measures_of_each_output_equal_scikit_learn(seed: int, n: int, n_outputs: int) -> None:
    rng = np.random.default_rng(seed)
    names = [f"y{column}" for column in range(n_outputs)]
    y = rng.normal(size=(n, n_outputs)) * 10.0 ** np.arange(n_outputs)
    predicted = y + rng.normal(size=y.shape)
    found = by_output("regression", predicted, y, names)
    assert list(found) == names
    for column, name in enumerate(names):
        pair = y[:, column], predicted[:, column]
        assert found[name] == pytest.approx(
            {
                "explained_variance": 100 * r2_score(*pair),
                "absolute_error": mean_absolute_error(*pair),
            }
        )
    together = measures_of("regression", predicted, y)
    for at, measure in enumerate(together._fields):
        assert together[at] == pytest.approx(np.mean([each[measure] for each in found.values()]))
    labels = (rng.random((n, n_outputs)) < 0.3).astype(float)
    found = by_output("multilabel", predicted, labels, names)
    present = np.flatnonzero(labels.any(axis=0)).tolist()
    assert list(found) == [names[column] for column in present]
    for column in present:
        expected = 100 * average_precision_score(labels[:, column], predicted[:, column])
        assert found[names[column]] == pytest.approx({"average_precision": expected})


def test_a_single_output_and_classes_have_no_measures_by_output() -> None:
    y = np.array([[1.0], [2.0]])
    assert by_output("regression", y, y, ["age"]) == {}
    assert by_output("classification", np.eye(2), np.array([0, 1]), ["a", "b"]) == {}
