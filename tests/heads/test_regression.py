"""Ridge regressions of numbers against scikit-learn, and what must not matter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.heads.numbers import numbers
from tests.oracles import outputs as oracle
from tests.oracles.ridge import split_ridge

from oodzoo.errors import InputError
from oodzoo.features.columns import Samples
from oodzoo.heads.left_out import Split
from oodzoo.heads.regression import (
    fit_regression_head,
    left_out_regressions,
    predict_regression_splits,
)
from oodzoo.heads.ridge import RIDGES

SHAPES = [(60, 5), (24, 40)]
"""More samples than features, and fewer."""


@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize("left_out", [{0}, {1, 2}])
def test_predictions_of_left_out_domains(n: int, d: int, left_out: set[int]) -> None:
    samples = numbers(n, d, 2, 3)
    (found,) = left_out_regressions(samples, 2, [left_out])
    out = np.isin(samples.domains, list(left_out))
    assert found.shape == (len(RIDGES), out.sum(), 2)
    for ridge, mine in zip(RIDGES, found, strict=True):
        training, others = samples.features[~out], samples.features[out]
        expected = oracle.regression(training, samples.labels[~out], others, ridge)
        np.testing.assert_allclose(mine, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_a_head_has_the_predictions_of_its_path(n: int, d: int) -> None:
    samples = numbers(n, d, 3, 3)
    out = samples.domains == 1
    (path,) = left_out_regressions(samples, 3, [{1}])
    head = fit_regression_head(Samples(*(each[~out] for each in samples)), 3, RIDGES[2])
    assert head.kind == "regression"
    np.testing.assert_allclose(head.values(samples.features[out]), path[2], rtol=1e-6, atol=1e-6)
    with pytest.raises(ValueError, match="no probabilities"):
        head.probabilities(samples.features)


@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_splits(n: int, d: int) -> None:
    samples = numbers(n, d, 2, 3)
    splits = [Split(samples.domains != 1, (samples.domains,)), Split.of(np.arange(n) % 5)]
    found = predict_regression_splits(samples, 2, splits)
    for (training, partitions), ((inside,), rest) in zip(splits, found, strict=True):
        folds = np.where(training, partitions[0], -1)
        for at, ridge in enumerate(RIDGES):
            expected = split_ridge(samples.features, samples.labels, folds, ridge)
            np.testing.assert_allclose(inside[at], expected[0], rtol=1e-8, atol=1e-8)
            np.testing.assert_allclose(rest[at], expected[1], rtol=1e-8, atol=1e-8)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000), st.floats(-1e3, 1e3), st.floats(0.01, 1e3))
def test_predictions_follow_the_units_and_the_order_of_the_outputs(
    seed: int, shift: float, scale: float
) -> None:
    samples = numbers(30, 6, 2, 3, seed)
    (one,) = left_out_regressions(samples, 2, [{0}])
    changed = samples._replace(labels=scale * samples.labels[:, ::-1] + shift)
    (two,) = left_out_regressions(changed, 2, [{0}])
    np.testing.assert_allclose(two, scale * one[:, :, ::-1] + shift, rtol=1e-7, atol=1e-7 * scale)


def test_left_out_labels_and_constant_features_do_not_matter() -> None:
    samples = numbers(30, 4, 1, 3)
    features = samples.features.copy()
    features[:, 1] = 3.0
    samples = samples._replace(features=features)
    labels = np.where(samples.domains[:, None] == 0, 1e6, samples.labels)
    (one,) = left_out_regressions(samples, 1, [{0}])
    (two,) = left_out_regressions(samples._replace(labels=labels), 1, [{0}])
    np.testing.assert_array_equal(one, two)
    assert fit_regression_head(samples, 1, 0.1).weights[0, 1] == 0


@pytest.mark.parametrize(
    ("labels", "message"),
    [(np.zeros(30), "with 1 column, got shape"), (np.full((30, 1), np.nan), "finite")],
)
def test_labels_that_are_no_numbers(labels: Any, message: str) -> None:
    samples = numbers(30, 4, 1, 3)._replace(labels=labels)
    with pytest.raises(InputError, match=message):
        left_out_regressions(samples, 1, [{0}])
    with pytest.raises(InputError, match=message):
        fit_regression_head(samples, 1, 1.0)


def test_ridges_must_be_positive() -> None:
    with pytest.raises(InputError, match="ridges must be one or more numbers above 0, got"):
        fit_regression_head(numbers(30, 4, 1, 3), 1, 0.0)


def test_a_feature_that_varies_in_a_left_out_domain_only_does_not_explode() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 6)).astype(np.float32)
    X[:60, 5] *= 1e-3  # almost constant in the training domains
    Y = X[:, :1] + 0.3 * rng.normal(size=(90, 1))
    samples = Samples(X, Y, np.repeat([0, 1, 2], 30))
    (found,) = left_out_regressions(samples, 1, [{2}])
    for predicted in found:
        assert np.abs(predicted).max() < 2 * np.abs(Y).max()
