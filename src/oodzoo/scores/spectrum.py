"""Eigenvalues of XᵀX, computed from the smaller of XᵀX and XXᵀ."""

from __future__ import annotations

import sys

from oodzoo.backend import Array, Backend


def spectrum(backend: Backend, X: Array, Y: Array) -> tuple[Array, Array]:
    """Compute the non-zero eigenvalues of XᵀX, ascending, and UᵀY.

    U are the corresponding left singular vectors of X. Eigenvalues below rounding error are
    dropped, so constant and repeated features have no effect. Complexity O(n·d·min(n, d)).
    """
    eigenvalues, vectors = _decompose(backend, X)
    if _is_wide(X):
        return eigenvalues, vectors.T @ Y
    return eigenvalues, (vectors.T @ (X.T @ Y)) / backend.xp.sqrt(eigenvalues)[:, None]


def principal_components(backend: Backend, X: Array) -> tuple[Array, Array]:
    """Compute the variances (1/n), descending, and the coordinates of a centred X."""
    xp = backend.xp
    eigenvalues, vectors = _decompose(backend, X)
    coordinates = vectors * xp.sqrt(eigenvalues) if _is_wide(X) else X @ vectors
    return xp.flip(eigenvalues) / X.shape[0], xp.flip(coordinates, axis=1)


def _is_wide(X: Array) -> bool:
    return bool(X.shape[0] <= X.shape[1])


def _decompose(backend: Backend, X: Array) -> tuple[Array, Array]:
    """Non-zero eigenvalues, and the left (wide X) or right (tall X) singular vectors."""
    eigenvalues, vectors = backend.eigh(backend.gram(X.T if _is_wide(X) else X))
    largest = float(eigenvalues[-1])
    rounding = largest * max(X.shape) * sys.float_info.epsilon
    first = int(backend.xp.count_nonzero(eigenvalues <= max(rounding, 0.0)))
    return eigenvalues[first:], vectors[:, first:]
