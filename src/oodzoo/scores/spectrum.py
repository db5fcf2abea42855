"""Eigenvalues of XᵀX, taken on whichever side of X is shorter."""

from __future__ import annotations

import sys

from oodzoo.backend import Array, Backend


def spectrum(backend: Backend, X: Array, Y: Array) -> tuple[Array, Array]:
    """Eigenvalues of XᵀX that are not zero, ascending, and UᵀY.

    U are the left singular vectors of X that go with them. Eigenvalues that rounding alone may
    have made are left out, so that a constant or a repeated feature changes nothing.
    O(n·d·min(n, d)).
    """
    eigenvalues, vectors = _decompose(backend, X)
    if _is_wide(X):
        return eigenvalues, vectors.T @ Y
    return eigenvalues, (vectors.T @ (X.T @ Y)) / backend.xp.sqrt(eigenvalues)[:, None]


def principal_components(backend: Backend, X: Array) -> tuple[Array, Array]:
    """Variances (1/n), descending, and the coordinates of a centred X along their directions."""
    xp = backend.xp
    eigenvalues, vectors = _decompose(backend, X)
    coordinates = vectors * xp.sqrt(eigenvalues) if _is_wide(X) else X @ vectors
    return xp.flip(eigenvalues) / X.shape[0], xp.flip(coordinates, axis=1)


def _is_wide(X: Array) -> bool:
    return bool(X.shape[0] <= X.shape[1])


def _decompose(backend: Backend, X: Array) -> tuple[Array, Array]:
    """Eigenvalues that are not zero, and the left singular vectors of a wide X, else the right."""
    eigenvalues, vectors = backend.eigh(backend.gram(X.T if _is_wide(X) else X))
    largest = float(eigenvalues[-1])
    rounding = largest * max(X.shape) * sys.float_info.epsilon
    first = int(backend.xp.count_nonzero(eigenvalues <= max(rounding, 0.0)))
    return eigenvalues[first:], vectors[:, first:]
