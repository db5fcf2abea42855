from __future__ import annotations

import numpy as np
import pytest

from oodzoo.backend import backend
from oodzoo.scores.statistics import principal_components, spectrum

NUMPY = backend()


@pytest.mark.parametrize(("n", "d", "rank"), [(30, 8, 8), (8, 30, 8), (20, 20, 4), (30, 8, 3)])
def test_agrees_with_the_singular_value_decomposition(
    n: int, d: int, rank: int, rng: np.random.Generator
) -> None:
    X = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, d))
    Y = rng.normal(size=(n, 2))
    U, singular, _ = np.linalg.svd(X, full_matrices=False)
    eigenvalues, projected = spectrum(NUMPY, X, Y)
    assert len(eigenvalues) == rank
    np.testing.assert_allclose(eigenvalues[::-1], singular[:rank] ** 2, rtol=1e-9)
    np.testing.assert_allclose(projected[::-1] ** 2, (U[:, :rank].T @ Y) ** 2, atol=1e-9)


@pytest.mark.parametrize(("n", "d"), [(30, 8), (8, 30)])
def test_principal_components(n: int, d: int, rng: np.random.Generator) -> None:
    X = rng.normal(size=(n, d))
    X = X - X.mean(axis=0)
    variances, coordinates = principal_components(NUMPY, X)
    assert (np.diff(variances) <= 0).all()
    np.testing.assert_allclose((coordinates**2).mean(axis=0), variances, rtol=1e-9)
    np.testing.assert_allclose(coordinates @ coordinates.T, X @ X.T, atol=1e-9)


def test_zero_features_have_no_spectrum() -> None:
    eigenvalues, projected = spectrum(NUMPY, np.zeros((5, 3)), np.ones((5, 1)))
    assert (eigenvalues.shape, projected.shape) == ((0,), (0, 1))
