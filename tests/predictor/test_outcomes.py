"""What is predicted for a sample."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oodzoo.predictor.prediction import outcome, outcome_array, score

NAMES = np.array(["ant", "bee", "cow"])


@given(st.lists(st.tuples(*[st.floats(0, 1)] * 3), max_size=8))
def test_arrays_say_the_same_as_single_outcomes(rows: list[tuple[float, ...]]) -> None:
    values = np.array(rows).reshape(-1, 3)
    classes = [outcome("classification", row, NAMES) for row in values]
    assert outcome_array("classification", classes, NAMES).tolist() == [
        NAMES[row.argmax()] for row in values
    ]
    labels = [outcome("multilabel", row, NAMES) for row in values]
    np.testing.assert_array_equal(outcome_array("multilabel", labels, NAMES), values > 0.5)
    numbers = [outcome("regression", row, NAMES) for row in values]
    np.testing.assert_array_equal(outcome_array("regression", numbers, NAMES), values)


def test_labels_of_a_predictor_that_no_sample_has() -> None:
    values = [np.array([0.9, 0.1, 0.2]), np.array([0.2, 0.8, 0.1])]
    labels = [outcome("multilabel", each, NAMES) for each in values]
    assert score("multilabel", labels, values, NAMES, [["ant"], ["bee"]], "image") == 1
