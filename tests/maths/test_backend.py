"""Array backends: NumPy, and PyTorch where it is installed, give the same numbers."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np
import pytest
import scipy.special

from oodzoo.core.backend import Backend, backend, backend_of, to_numpy
from oodzoo.core.errors import InputError, MissingPackageError

RNG = np.random.default_rng(0)


@pytest.fixture(params=[None, "cpu"], ids=["numpy", "torch"])
def any_backend(request: pytest.FixtureRequest) -> Backend:
    if request.param is not None:
        pytest.importorskip("torch", reason="PyTorch is not installed")
    return backend(request.param)


def test_conversions_keep_values_and_types(any_backend: Backend) -> None:
    values = RNG.normal(size=(3, 2)).astype(np.float32)
    array = any_backend.asarray(values)
    assert backend_of(array) == any_backend
    assert to_numpy(array).dtype == np.float32
    np.testing.assert_array_equal(to_numpy(array), values)
    assert to_numpy(any_backend.float64(values)).dtype == np.float64


def test_eigh(any_backend: Backend) -> None:
    factor = RNG.normal(size=(5, 5))
    matrix = factor @ factor.T
    values, vectors = map(to_numpy, any_backend.eigh(any_backend.float64(matrix)))
    assert (np.diff(values) >= 0).all()
    np.testing.assert_allclose(vectors * values @ vectors.T, matrix, atol=1e-10)


def test_digamma(any_backend: Backend) -> None:
    points = np.array([0.1, 1.0, 2.5, 40.0])
    found = to_numpy(any_backend.digamma(any_backend.float64(points)))
    np.testing.assert_allclose(found, scipy.special.digamma(points), rtol=1e-12)


def test_solve_lower_uses_a_diagonal_per_column(any_backend: Backend) -> None:
    square, right = RNG.normal(size=(4, 4)), RNG.normal(size=(4, 3))
    diagonals = RNG.uniform(1, 2, size=(4, 3))
    arrays = map(any_backend.float64, (square, diagonals, right))
    solution = to_numpy(any_backend.solve_lower(*arrays))
    for column in range(3):
        triangle = np.tril(square, k=-1) + np.diag(diagonals[:, column])
        np.testing.assert_allclose(triangle @ solution[:, column], right[:, column], atol=1e-12)


@pytest.mark.parametrize("rank", [2, 6])
@pytest.mark.parametrize("ridge", [1e-6, 1.0, 1e6])
def test_solutions_and_inverses_with_a_ridge(any_backend: Backend, rank: int, ridge: float) -> None:
    rng = np.random.default_rng(1)
    factor, right = rng.normal(size=(6, rank)), rng.normal(size=(6, 3))
    matrix = factor @ factor.T  # singular for rank 2
    arrays = any_backend.float64(matrix), any_backend.float64(right)
    solution = any_backend.solve_positive(arrays[0], ridge, arrays[1])
    assert backend_of(solution) == any_backend
    expected = np.linalg.inv(matrix + ridge * np.eye(6))
    np.testing.assert_allclose(to_numpy(solution), expected @ right, rtol=1e-8, atol=1e-9 / ridge)
    inverse = any_backend.inverse_positive(arrays[0], ridge)
    assert backend_of(inverse) == any_backend
    np.testing.assert_allclose(to_numpy(inverse), expected, rtol=1e-8, atol=1e-9 / ridge)
    np.testing.assert_array_equal(to_numpy(arrays[0]), matrix)  # the inputs are not changed
    np.testing.assert_array_equal(to_numpy(arrays[1]), right)


def test_solutions_and_inverses_of_views(any_backend: Backend) -> None:
    """A transposed or sliced matrix is read in the order of its elements, and not changed."""
    factor = np.random.default_rng(2).normal(size=(8, 8))
    whole = any_backend.float64(factor @ factor.T)
    right = any_backend.float64(np.ones((4, 1)))
    for view in (whole[:4, :4], whole[::2, ::2], whole.T[4:, 4:]):
        matrix = to_numpy(view).copy()
        solution = to_numpy(any_backend.solve_positive(view, 0.5, right))
        np.testing.assert_allclose(matrix @ solution + 0.5 * solution, np.ones((4, 1)), atol=1e-12)
        inverse = to_numpy(any_backend.inverse_positive(view, 0.5))
        np.testing.assert_allclose(inverse @ np.ones((4, 1)), solution, atol=1e-12)
        np.testing.assert_array_equal(to_numpy(view), matrix)


def test_numpy_refuses_a_matrix_that_is_not_positive_definite() -> None:
    on, matrix = backend(), np.diag([1.0, -2.0])
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        on.solve_positive(matrix, 1.0, np.ones((2, 1)))
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        on.inverse_positive(matrix, 1.0)


def test_an_unknown_device_is_one_line() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    with pytest.raises(InputError, match="unknown device 'abacus'; expected cpu, cuda") as caught:
        backend("abacus")
    assert "\n" not in str(caught.value)


def test_a_device_without_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without_torch(name: str, *arguments: Any, **options: Any) -> Any:
        if name.split(".")[0] == "torch" or name == "array_api_compat.torch":
            raise ImportError(name)
        return original(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without_torch)
    with pytest.raises(MissingPackageError, match=r"device 'cpu' needs the package torch"):
        backend("cpu")
