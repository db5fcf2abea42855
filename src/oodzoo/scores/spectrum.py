"""Eigenvalues of XᵀX, computed from the smaller of XᵀX and XXᵀ."""

from __future__ import annotations

import sys

from oodzoo.backend import Array, Backend


def spectrum(backend: Backend, X: Array, Y: Array) -> tuple[Array, Array]:
    """Compute the non-zero eigenvalues of XᵀX, ascending, and UᵀY.

    U are the corresponding left singular vectors of X. Eigenvalues below rounding error are
    dropped, so constant and repeated features have no effect. Complexity O(n·d·min(n, d)).
    """
    if not _is_wide(X):
        return spectrum_of_gram(backend, backend.gram(X), X.T @ Y, _rounding(X))
    eigenvalues, vectors = nonzero_eigh(backend, backend.gram(X.T), _rounding(X))
    return eigenvalues, vectors.T @ Y


def spectrum_of_gram(
    backend: Backend, gram: Array, targets: Array, rounding: float
) -> tuple[Array, Array]:
    """Compute what :func:`spectrum` does, from XᵀX and XᵀY."""
    eigenvalues, vectors = nonzero_eigh(backend, gram, rounding)
    return eigenvalues, (vectors.T @ targets) / backend.xp.sqrt(eigenvalues)[:, None]


def principal_components(backend: Backend, X: Array) -> tuple[Array, Array]:
    """Compute the variances (1/n), descending, and the coordinates of a centred X."""
    xp = backend.xp
    gram = backend.gram(X.T if _is_wide(X) else X)
    eigenvalues, vectors = nonzero_eigh(backend, gram, _rounding(X))
    coordinates = vectors * xp.sqrt(eigenvalues) if _is_wide(X) else X @ vectors
    return xp.flip(eigenvalues) / X.shape[0], xp.flip(coordinates, axis=1)


def nonzero_eigh(backend: Backend, gram: Array, rounding: float) -> tuple[Array, Array]:
    """Eigenvalues, ascending, and eigenvectors; without those below `rounding` times the last."""
    eigenvalues, vectors = backend.eigh(gram)
    least = max(float(eigenvalues[-1]) * rounding, 0.0)
    first = int(backend.xp.count_nonzero(eigenvalues <= least))
    return eigenvalues[first:], vectors[:, first:]


def _is_wide(X: Array) -> bool:
    return bool(X.shape[0] <= X.shape[1])


def _rounding(X: Array) -> float:
    return float(max(X.shape) * sys.float_info.epsilon)
