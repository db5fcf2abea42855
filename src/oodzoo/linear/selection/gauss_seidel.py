"""Gauss-Seidel sweeps for many ridge regressions that share their features.

A sweep updates the weights one after the other, for all targets at once. The features are split
into blocks: the influence between blocks is a matrix product, and inside a block one triangular
system is solved per target. Two implementations give the same weights:

- :class:`GramSweeps` uses :math:`G = \\Phi^\\top\\Phi` and :math:`b = \\Phi^\\top y`. A sweep takes
  d² operations per target, independent of the number of samples.
- :class:`SampleSweeps` uses Φ and y, and updates the residual y - Φm. A sweep takes 2·n·d
  operations per target and reads n × d numbers instead of d × d, which is cheaper for n < d.
"""

from __future__ import annotations

from typing import Protocol

from oodzoo.core.backend import Array, backend_of


class Sweeps(Protocol):
    """Regressions whose weights are updated sweep by sweep; the caller holds the weights (d, C)."""

    diagonal: Array
    """Diagonal of G, (d,)."""

    def restart(self, mean: Array) -> None:
        """Recompute the residual from these weights, without accumulated rounding errors."""
        ...

    def sweep(self, ridge: Array, mean: Array) -> Array:
        """Return the weights after one sweep.

        `ridge` (d, C) is the prior precision of each weight divided by that of the noise; `mean`
        are the weights passed to :meth:`restart` or returned by the last sweep.
        """
        ...

    def misfit(self, mean: Array) -> Array:
        """Return |y - Φ mean|² of each target, (C,)."""
        ...

    def keep(self, columns: Array) -> None:
        """Drop all targets but these."""
        ...


class GramSweeps:
    """Regressions given by their moments G (d, d), Φᵀy (d, C) and yᵀy (C,)."""

    def __init__(self, gram: Array, products: Array, squares: Array, mean: Array) -> None:
        self.backend = backend_of(gram)
        self.diagonal = self.backend.xp.linalg.diagonal(gram)
        self.gram, self.products, self.squares = gram, products, squares
        self.restart(mean)

    def restart(self, mean: Array) -> None:
        self.residual = self.products - self.gram @ mean

    def keep(self, columns: Array) -> None:
        xp = self.backend.xp
        self.products, self.residual = (
            xp.take(array, columns, axis=1) for array in (self.products, self.residual)
        )
        self.squares = xp.take(self.squares, columns)

    def misfit(self, mean: Array) -> Array:
        xp = self.backend.xp
        fitted = xp.sum(mean * (self.products + self.residual), axis=0)
        # yᵀy - 2mᵀb + mᵀGm can be slightly negative where the target is fitted exactly.
        return xp.clip(self.squares - fitted, min=0.0)

    def sweep(self, ridge: Array, mean: Array) -> Array:
        """Return the weights after one sweep.

        Recursive: update the first half of the features, apply the change to the second half with
        one matrix product, update the second half, apply that change to the first half. In total
        this is one d × d by d × C product in large pieces.
        """
        backend, gram, residual = self.backend, self.gram, self.residual
        diagonals = self.diagonal[:, None] + ridge
        pull = ridge * mean
        step = backend.xp.zeros_like(mean)

        def update(first: int, end: int) -> None:
            if end - first <= backend.sweep_rows:
                rows = slice(first, end)
                right = residual[rows, :] - pull[rows, :]
                step[rows, :] = backend.solve_lower(gram[rows, rows], diagonals[rows, :], right)
                residual[rows, :] -= gram[rows, rows] @ step[rows, :]
                return
            middle = (first + end) // 2
            one, two = slice(first, middle), slice(middle, end)
            update(first, middle)
            residual[two, :] -= gram[two, one] @ step[one, :]
            update(middle, end)
            residual[one, :] -= gram[one, two] @ step[two, :]

        update(0, gram.shape[0])
        return mean + step


class SampleSweeps:
    """Regressions given by their samples Φ (n, d) and y (n, C)."""

    def __init__(self, features: Array, targets: Array, mean: Array) -> None:
        self.backend = backend = backend_of(features)
        xp = backend.xp
        n, d = features.shape
        # Transposed, so that a block of features is contiguous in memory.
        transposed = xp.empty((d, n), dtype=xp.float64, device=backend.device)
        transposed[:, :] = features.T
        starts = range(0, d, backend.sweep_rows)
        self.rows = [slice(first, min(first + backend.sweep_rows, d)) for first in starts]
        self.blocks = [transposed[rows, :] for rows in self.rows]
        self.squares = [backend.gram(block.T) for block in self.blocks]
        self.diagonal = xp.concat([xp.linalg.diagonal(square) for square in self.squares])
        self.targets = targets
        self.restart(mean)

    def restart(self, mean: Array) -> None:
        self.residual = self.backend.xp.asarray(self.targets, copy=True)
        for rows, block in zip(self.rows, self.blocks, strict=True):
            self.residual -= block.T @ mean[rows, :]

    def keep(self, columns: Array) -> None:
        xp = self.backend.xp
        self.targets, self.residual = (
            xp.take(array, columns, axis=1) for array in (self.targets, self.residual)
        )

    def misfit(self, mean: Array) -> Array:
        return self.backend.xp.sum(self.residual**2, axis=0)

    def sweep(self, ridge: Array, mean: Array) -> Array:
        backend = self.backend
        diagonals = self.diagonal[:, None] + ridge
        pull = ridge * mean
        step = backend.xp.zeros_like(mean)
        for rows, block, square in zip(self.rows, self.blocks, self.squares, strict=True):
            right = block @ self.residual - pull[rows, :]
            step[rows, :] = backend.solve_lower(square, diagonals[rows, :], right)
            self.residual -= block.T @ step[rows, :]
        return mean + step
