"""Where arrays live and who computes on them: NumPy, or PyTorch on a device.

Everything numerical in oodzoo is written once, against the array API standard. What the standard
leaves out, or leaves slow, is here and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import array_api_compat
import array_api_compat.numpy as numpy_namespace
import numpy as np
import scipy.linalg
import scipy.special
from numpy.typing import NDArray

from oodzoo.errors import InputError, MissingPackageError

Array = Any
"""An array of any namespace of the array API."""


@dataclass(frozen=True)
class Backend:
    """An array namespace and the device its arrays live on (None for NumPy)."""

    xp: Any
    device: Any = None

    @property
    def is_numpy(self) -> bool:
        return self.device is None

    @property
    def block_bytes(self) -> int:
        """Size of a block of float64 features to compute on at a time."""
        # Small blocks stay in memory that NumPy has at hand; a device wants much work at once.
        return (16 if self.is_numpy else 256) * 2**20

    @property
    def sweep_rows(self) -> int:
        """How many features to go through one by one before what they changed is multiplied out."""
        return 64 if self.is_numpy else 128

    def asarray(self, values: Array) -> Array:
        """The values as an array of this backend, in their own type; copied only if need be."""
        if self.is_numpy:
            return _host(values)
        if not array_api_compat.is_torch_array(values):
            values = _host(values)
            # PyTorch knows neither read-only memory (a memory map) nor foreign byte order.
            native = values.astype(values.dtype.newbyteorder("="), copy=not values.flags.writeable)
            values = self.xp.asarray(np.ascontiguousarray(native))
        return values.to(self.device)

    def float64(self, values: Array) -> Array:
        """The values as a float64 array of this backend; copied only if need be."""
        # The cast comes after the move, so that float32 features cross to a device as float32.
        return self.xp.astype(self.asarray(values), self.xp.float64, copy=False)

    def gram(self, features: Array) -> Array:
        """The product ``features.T @ features``."""
        # Written on one name: NumPy then calls syrk, which does half the work of gemm.
        return features.T @ features

    def eigh(self, symmetric: Array) -> tuple[Array, Array]:
        """Eigenvalues in ascending order and eigenvectors (columns) of a symmetric matrix."""
        if not self.is_numpy:
            eigenvalues, eigenvectors = self.xp.linalg.eigh(symmetric)
            return eigenvalues, eigenvectors
        # The transpose is the same matrix in the order LAPACK wants: no copy to reorder it.
        eigenvalues, eigenvectors = scipy.linalg.eigh(symmetric.T, driver="evd", check_finite=False)
        return eigenvalues, eigenvectors

    def digamma(self, values: Array) -> Array:
        """ψ, the derivative of ln Γ."""
        return scipy.special.digamma(values) if self.is_numpy else self.xp.digamma(values)

    def solve_lower(self, square: Array, diagonals: Array, right: Array) -> Array:
        """Solve (L + diag D_c) x_c = r_c for each column c, L being strictly below the diagonal.

        The triangle of each column is another, for its diagonal is. A device is given all of them
        at once; NumPy has one, in which the diagonal is exchanged.

        Parameters
        ----------
        square : array (k, k)
            Only what is below its diagonal counts.
        diagonals, right : array (k, C)
        """
        if self.is_numpy:
            # In the order of LAPACK, so that each column is solved where it lies.
            triangle, solution = (np.array(array, order="F") for array in (square, right))
            diagonal = triangle.reshape(-1, order="F")[:: len(triangle) + 1]
            for column in range(solution.shape[1]):
                diagonal[:] = diagonals[:, column]
                scipy.linalg.blas.dtrsv(triangle, solution[:, column], lower=1, overwrite_x=1)
            return solution
        triangles = self.xp.tril(square, k=-1)[None] + self.xp.diag_embed(diagonals.T)
        solution = self.xp.linalg.solve_triangular(triangles, right.T[:, :, None], upper=False)
        return solution[:, :, 0].T


def backend(device: str | None = None) -> Backend:
    """The backend of a device: NumPy for None, else PyTorch on "cpu", "cuda", "cuda:1", ...

    Raises
    ------
    MissingPackageError
        A device is named and PyTorch is not installed.
    InputError
        PyTorch does not know the device or cannot reach it.
    """
    if device is None:
        return Backend(numpy_namespace)
    try:
        import array_api_compat.torch as torch_namespace
        import torch
    except ImportError as error:
        raise MissingPackageError("torch", "torch", f"computing on device {device!r}") from error
    try:
        there = torch.empty(0, dtype=torch.float64, device=device).device
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"device {device!r} cannot be used for float64 ({reason})") from error
    return Backend(torch_namespace, there)


def backend_of(array: Array) -> Backend:
    """The backend an array belongs to."""
    if array_api_compat.is_torch_array(array):
        return Backend(array_api_compat.array_namespace(array), array.device)
    return Backend(numpy_namespace)


def to_numpy(array: Array) -> NDArray[Any]:
    """The array on the host, as NumPy has it."""
    return _host(array)


def _host(values: Array) -> NDArray[Any]:
    if array_api_compat.is_torch_array(values):
        values = values.detach().cpu()
        try:
            values = values.numpy()
        except TypeError:  # bfloat16, which NumPy does not have
            values = values.float().numpy()
    return np.asarray(values)
