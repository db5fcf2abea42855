"""Array backends, NumPy or PyTorch on a device; devices, their batch sizes and memory.

Numerical code is written once, against the array API standard. Operations that the standard lacks,
or for which a backend has a faster routine, are methods of :class:`Backend`.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import array_api_compat
import array_api_compat.numpy as numpy_namespace
import numpy as np
import scipy.linalg
import scipy.special
from numpy.typing import NDArray

from oodzoo.core.errors import InputError, MissingPackageError
from oodzoo.core.text import count

Array = Any
"""An array of any array API namespace."""


@dataclass(frozen=True)
class Backend:
    """An array namespace and the device of its arrays (None for NumPy)."""

    xp: Any
    device: Any = None

    @property
    def is_numpy(self) -> bool:
        return self.device is None

    @property
    def block_bytes(self) -> int:
        """Size of the blocks in which float64 features are processed."""
        # Small blocks let NumPy reuse memory; a GPU needs large ones to be busy.
        return (16 if self.is_numpy else 256) * 2**20

    @property
    def sweep_rows(self) -> int:
        """Number of coordinate updates between two matrix products that apply them."""
        return 64 if self.is_numpy else 128

    def asarray(self, values: Array) -> Array:
        """Convert values to an array of this backend, keeping the dtype; copy only if necessary."""
        if self.is_numpy:
            return to_numpy(values)
        if not array_api_compat.is_torch_array(values):
            values = to_numpy(values)
            # PyTorch supports neither read-only memory (a memory map) nor foreign byte order.
            native = values.astype(values.dtype.newbyteorder("="), copy=not values.flags.writeable)
            values = self.xp.asarray(np.ascontiguousarray(native))
        return values.to(self.device)

    def float64(self, values: Array) -> Array:
        """Convert values to a float64 array of this backend; copy only if necessary."""
        # Cast after the transfer, so that float32 features are transferred as float32.
        return self.xp.astype(self.asarray(values), self.xp.float64, copy=False)

    def gram(self, features: Array) -> Array:
        """Compute ``features.T @ features``."""
        # With one operand on both sides NumPy calls syrk, which does half the work of gemm.
        return features.T @ features

    def eigh(self, symmetric: Array) -> tuple[Array, Array]:
        """Compute the eigenvalues (ascending) and eigenvectors (columns) of a symmetric matrix."""
        if not self.is_numpy:
            eigenvalues, eigenvectors = self.xp.linalg.eigh(symmetric)
            return eigenvalues, eigenvectors
        # The transpose is the same matrix in Fortran order, which LAPACK takes without a copy.
        eigenvalues, eigenvectors = scipy.linalg.eigh(symmetric.T, driver="evd", check_finite=False)
        return eigenvalues, eigenvectors

    def digamma(self, values: Array) -> Array:
        """Compute the digamma function ψ, the derivative of ln Γ."""
        return scipy.special.digamma(values) if self.is_numpy else self.xp.digamma(values)

    def solve_positive(self, matrix: Array, ridge: float, right: Array) -> Array:
        """Solve (A + ridge I) x = right for a positive semi-definite matrix A, by Cholesky."""
        if self.is_numpy:
            return scipy.linalg.lapack.dpotrs(_factor(matrix, ridge), right, lower=1)[0]
        shifted = matrix.clone()
        shifted.diagonal().add_(ridge)
        return self.xp.cholesky_solve(right, self.xp.linalg.cholesky(shifted))

    def inverse_positive(self, matrix: Array, ridge: float, right: Array) -> tuple[Array, Array]:
        """Invert A + ridge I, and solve for the right side, as :meth:`solve_positive`.

        What is above the diagonal of the inverse is undefined.
        """
        if self.is_numpy:
            factor = _factor(matrix, ridge)
            solution = scipy.linalg.lapack.dpotrs(factor, right, lower=1)[0]
            inverse, info = scipy.linalg.lapack.dpotri(factor, lower=1, overwrite_c=1)
            if info:
                raise np.linalg.LinAlgError(f"the matrix is not positive definite (info {info})")
            return inverse, solution
        shifted = matrix.clone()
        shifted.diagonal().add_(ridge)
        factor = self.xp.linalg.cholesky(shifted)
        return self.xp.cholesky_inverse(factor), self.xp.cholesky_solve(right, factor)

    def solve_lower(self, square: Array, diagonals: Array, right: Array) -> Array:
        """Solve (L + diag D_c) x_c = r_c for each column c, L being strictly lower triangular.

        Each column has a triangle of its own. PyTorch solves them as one batch; with NumPy one
        triangle is reused and its diagonal replaced.

        Parameters
        ----------
        square : array (k, k)
            Only the part below its diagonal is used.
        diagonals, right : array (k, C)
        """
        if self.is_numpy:
            # Fortran order, so that each column is solved in place.
            triangle, solution = (np.array(array, order="F") for array in (square, right))
            diagonal = triangle.reshape(-1, order="F")[:: len(triangle) + 1]
            for column in range(solution.shape[1]):
                diagonal[:] = diagonals[:, column]
                scipy.linalg.blas.dtrsv(triangle, solution[:, column], lower=1, overwrite_x=1)
            return solution
        triangles = self.xp.tril(square, k=-1)[None] + self.xp.diag_embed(diagonals.T)
        solution = self.xp.linalg.solve_triangular(triangles, right.T[:, :, None], upper=False)
        return solution[:, :, 0].T


def _factor(matrix: NDArray[np.float64], ridge: float) -> NDArray[np.float64]:
    """Lower Cholesky factor of A + ridge I; what is above its diagonal is undefined."""
    shifted = np.array(matrix.T, order="F")  # of a symmetric matrix, a plain copy
    shifted.reshape(-1, order="F")[:: len(shifted) + 1] += ridge
    factor: NDArray[np.float64]
    factor, info = scipy.linalg.lapack.dpotrf(shifted, lower=1, overwrite_a=1, clean=0)
    if info:
        raise np.linalg.LinAlgError(f"the matrix is not positive definite (info {info})")
    return factor


def backend(device: str | None = None) -> Backend:
    """Return the backend of a device: NumPy for None, else PyTorch on "cpu", "cuda", "cuda:1", …

    Raises
    ------
    MissingPackageError
        If a device is named and PyTorch is not installed.
    InputError
        If the device is unknown or unavailable.
    """
    if device is None:
        return Backend(numpy_namespace)
    try:
        import array_api_compat.torch as torch_namespace
        import torch
    except ImportError as error:
        raise MissingPackageError("torch", "torch", f"computing on device {device!r}") from error
    try:
        resolved = torch.empty(0, dtype=torch.float64, device=device).device
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).strip().splitlines()[0]
        if reason.startswith("Expected one of"):  # a list of all kinds that PyTorch has names for
            raise InputError(f"unknown device {device!r}; expected cpu, cuda or cuda:1") from error
        raise InputError(f"device {device!r} cannot be used for float64 ({reason})") from error
    return Backend(torch_namespace, resolved)


def backend_of(array: Array) -> Backend:
    """Return the backend of an array."""
    if array_api_compat.is_torch_array(array):
        return Backend(array_api_compat.array_namespace(array), array.device)
    return Backend(numpy_namespace)


def to_numpy(values: Array) -> NDArray[Any]:
    """Convert values to a NumPy array, copying from a device if necessary."""
    if array_api_compat.is_torch_array(values):
        values = values.detach().cpu()
        try:
            values = values.numpy()
        except TypeError:  # bfloat16, which NumPy lacks
            values = values.float().numpy()
    return np.asarray(values)


def resolve_device(device: str, kind: str) -> str:
    """Return the device for a model of a source; "auto" is the fastest one available."""
    if device != "auto":
        require_device(device)
        return device
    if kind == "onnx":
        import onnxruntime

        has_cuda = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
        return "cuda" if has_cuda else "cpu"
    try:
        import torch
    except ImportError:  # loading the model will report it
        return "cpu"
    if torch.cuda.is_available():
        return "cuda"
    if torch.backends.mps.is_available():
        return "mps"
    return "cpu"


def default_batch_size(device: str) -> int:
    """Return a batch size that fills the device without waiting long for images."""
    return 16 if device == "cpu" else 256


def available_memory() -> int:
    """Return the bytes of main memory that are free or can be reclaimed."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    if sys.platform == "win32":
        return 4 << 30
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def require_device(device: str) -> None:
    """Reject an unknown device name."""
    name, _, number = device.partition(":")
    if device != "auto" and (
        name not in ("cpu", "cuda", "mps") or (number and not number.isdigit())
    ):
        raise InputError(f"unknown device {device!r}; expected one of auto, cpu, cuda, cuda:1, mps")


def require_present(device: str) -> None:
    """Reject a CUDA device that neither PyTorch nor ONNX Runtime finds on this machine."""
    name, _, number = device.partition(":")
    if name != "cuda":
        return
    found = 0
    with suppress(ImportError):
        import torch

        found = torch.cuda.device_count()
    if int(number or 0) < found:
        return
    with suppress(ImportError):
        import onnxruntime

        # It does not count the devices; without PyTorch, loading a model will report it.
        if not found and "CUDAExecutionProvider" in onnxruntime.get_available_providers():
            return
    raise InputError(f"device {device!r} is not available: found {count(found, 'CUDA device')}")
