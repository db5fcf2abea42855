"""Solutions on each array backend: singular matrices, which no public call provokes."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np
import pytest

from oodzoo.core.backend import Backend, backend, backend_of, to_numpy
from oodzoo.core.errors import MissingPackageError


@pytest.fixture(params=[None, "cpu"], ids=["numpy", "torch"])
def any_backend(request: pytest.FixtureRequest) -> Backend:
    if request.param is not None:
        pytest.importorskip("torch", reason="PyTorch is not installed")
    return backend(request.param)


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
    inverse, again = any_backend.inverse_positive(arrays[0], ridge, arrays[1])
    assert backend_of(inverse) == any_backend
    lower, expected = np.tril(to_numpy(inverse)), np.tril(expected)
    np.testing.assert_allclose(lower, expected, rtol=1e-8, atol=1e-9 / ridge)
    np.testing.assert_allclose(to_numpy(again), to_numpy(solution), rtol=1e-12)
    np.testing.assert_array_equal(to_numpy(arrays[0]), matrix)  # the inputs are not changed
    np.testing.assert_array_equal(to_numpy(arrays[1]), right)


def test_numpy_refuses_a_matrix_that_is_not_positive_definite() -> None:
    on, matrix = backend(), np.diag([1.0, -2.0])
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        on.solve_positive(matrix, 1.0, np.ones((2, 1)))
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        on.inverse_positive(matrix, 1.0, np.ones((2, 1)))


def test_a_device_without_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without_torch(name: str, *arguments: Any, **options: Any) -> Any:
        if name.split(".")[0] == "torch" or name == "array_api_compat.torch":
            raise ImportError(name)
        return original(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without_torch)
    with pytest.raises(MissingPackageError, match=r"device 'cpu' needs the package torch"):
        backend("cpu")
