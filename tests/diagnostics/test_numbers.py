"""Diagnosis of predicted numbers against scikit-learn and loops."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import mean_absolute_error, r2_score

from oodzoo.diagnostics.numbers import NumberDiagnosis, diagnose_numbers

SEEDS = st.integers(0, 2**32 - 1)
OUTPUTS = ("age", "height")


def numbers(seed: int, n: int = 50) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.normal(size=(n, 2)) * [10, 0.2] + [40, 1.7]
    return y + rng.normal(size=(n, 2)) * [5, 0.1], y


def diagnosed(seed: int) -> NumberDiagnosis:
    predicted, y = numbers(seed)
    paths = [f"{row}.jpg" for row in range(len(y))]
    return diagnose_numbers(predicted, y, OUTPUTS, paths=paths, domains="photo")


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_figures_equal_those_of_scikit_learn(seed: int) -> None:
    predicted, y = numbers(seed)
    found = diagnosed(seed)
    assert found.explained_variance == pytest.approx(100 * r2_score(y, predicted))
    assert found.absolute_error == pytest.approx(mean_absolute_error(y, predicted))
    for at, name in enumerate(OUTPUTS):
        mine = found.per_output[name]
        assert mine.explained_variance == pytest.approx(100 * r2_score(y[:, at], predicted[:, at]))
        assert mine.absolute_error == pytest.approx(mean_absolute_error(y[:, at], predicted[:, at]))
        assert mine.bias == pytest.approx(np.mean(predicted[:, at]) - np.mean(y[:, at]))


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_ranges_divide_the_images_by_their_true_value(seed: int) -> None:
    predicted, y = numbers(seed)
    ranges = diagnosed(seed).per_output["age"].ranges
    assert sum(each.images for each in ranges) == len(y)
    assert len(ranges) == 5
    above = -np.inf
    for each in ranges:
        assert each.low > above
        above = each.high
        rows = [row for row, value in enumerate(y[:, 0]) if each.low <= value <= each.high]
        assert each.images == len(rows) == 10
        errors = [predicted[row, 0] - y[row, 0] for row in rows]
        assert each.bias == pytest.approx(np.mean(errors))
        assert each.absolute_error == pytest.approx(np.mean(np.abs(errors)))


def test_equal_values_are_in_one_range() -> None:
    y = np.array([[1.0]] * 9 + [[2.0]])
    found = diagnose_numbers(y + 1, y, ["y"], paths=[""] * 10, domains="d").per_output["y"]
    assert [(each.low, each.high, each.images) for each in found.ranges] == [(1, 1, 9), (2, 2, 1)]


def test_the_largest_errors_come_first() -> None:
    predicted, y = numbers(1)
    found = diagnosed(1).per_output["height"].largest
    expected = sorted(range(50), key=lambda row: -abs(predicted[row, 1] - y[row, 1]))[:12]
    assert [each.path for each in found] == [f"{row}.jpg" for row in expected]
    assert found[0].error == pytest.approx(predicted[expected[0], 1] - y[expected[0], 1])
    assert (found[0].domain, found[0].output) == ("photo", "height")


def test_exact_predictions_are_no_errors() -> None:
    y = numbers(0)[1]
    found = diagnose_numbers(y, y, OUTPUTS, paths=[""] * 50, domains=["d"] * 50)
    assert found.explained_variance == 100
    assert found.per_output["age"].largest == ()


def test_a_diagnosis_is_restored_from_json() -> None:
    found = diagnosed(2)
    assert NumberDiagnosis.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_arrays_that_do_not_fit_are_refused() -> None:
    predicted, y = numbers(0)
    with pytest.raises(ValueError, match=r"\(50, 2\)"):
        diagnose_numbers(predicted, y, ["age"], paths=[""] * 50, domains="d")
