from __future__ import annotations

import numpy as np

from oodzoo.backend import backend
from oodzoo.scores.statistics import centre, class_means, one_hot, standardise

NUMPY = backend()


def test_one_hot() -> None:
    assert one_hot(NUMPY, np.array([1, 0, 1]), 3).tolist() == [[0, 1, 0], [1, 0, 0], [0, 1, 0]]


def test_class_means() -> None:
    X = np.array([[1.0, 2.0], [3.0, 4.0], [7.0, 7.0]])
    encoded, counts, means = class_means(NUMPY, X, np.array([0, 0, 1]), 2)
    assert encoded.shape == (3, 2)
    assert counts.tolist() == [2, 1]
    assert means.tolist() == [[2, 3], [7, 7]]


def test_centred_features_have_mean_zero_and_constant_ones_are_zero(
    rng: np.random.Generator,
) -> None:
    X = np.column_stack([rng.normal(5, 1, size=50), np.full(50, 0.1)])
    centred = centre(NUMPY, X)
    np.testing.assert_allclose(centred.mean(axis=0), 0, atol=1e-14)
    assert not centred[:, 1].any()


def test_standardised_features_have_unit_variance_and_constant_ones_are_zero(
    rng: np.random.Generator,
) -> None:
    rounding = 0.1 * (1 + np.finfo(float).eps * (np.arange(50) % 2))
    X = np.column_stack([rng.normal(5, 3, size=50), rounding])
    standardised = standardise(NUMPY, X)
    np.testing.assert_allclose(standardised.std(axis=0), [1, 0])
    assert not standardised[:, 1].any()
