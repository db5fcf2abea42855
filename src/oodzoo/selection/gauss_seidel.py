"""Passes over the coordinates of many ridge regressions that share their features.

The weights are updated one after the other, for all targets at once: Gauss and Seidel's way. What a
block of features sees of the others is a product of matrices; inside a block, one triangle is
solved for each target. There are two forms, which give the same weights:

- :class:`GramSweeps` knows :math:`G = \\Phi^\\top\\Phi` and :math:`b = \\Phi^\\top y`. A pass costs
  d² operations for each target, whatever the number of samples.
- :class:`SampleSweeps` knows Φ and y, and carries the misfit y - Φm along. A pass costs 2nd
  operations and reads n × d numbers instead of d × d, which is less for n < d.
"""

from __future__ import annotations

from typing import Protocol

from oodzoo.backend import Array, backend_of


class Sweeps(Protocol):
    """Regressions whose weights are updated pass by pass; the caller keeps the weights (d, C)."""

    diagonal: Array
    """Gᵢᵢ of each feature, (d,)."""

    def look(self, mean: Array) -> None:
        """Go on from these weights, free of the rounding errors of earlier passes."""
        ...

    def sweep(self, ridge: Array, mean: Array) -> Array:
        """The weights after one pass.

        `ridge` (d, C) is the prior precision of each weight, divided by that of the noise; `mean`
        are the weights that :meth:`look` has seen or the last pass has given.
        """
        ...

    def misfit(self, mean: Array) -> Array:
        """|y - Φ mean|² of each target, (C,)."""
        ...

    def keep(self, columns: Array) -> None:
        """Go on with these targets only."""
        ...


class GramSweeps:
    """Regressions that are known by their moments.

    Parameters
    ----------
    gram : array (d, d)
    products : array (d, C)
        b of each target.
    squares : array (C,)
        yᵀy of each target.
    mean : array (d, C)
    """

    def __init__(self, gram: Array, products: Array, squares: Array, mean: Array) -> None:
        self.backend = backend_of(gram)
        self.diagonal = self.backend.xp.linalg.diagonal(gram)
        self.gram, self.products, self.squares = gram, products, squares
        self.look(mean)

    def look(self, mean: Array) -> None:
        self.rest = self.products - self.gram @ mean

    def keep(self, columns: Array) -> None:
        xp = self.backend.xp
        self.products, self.rest = (
            xp.take(array, columns, axis=1) for array in (self.products, self.rest)
        )
        self.squares = xp.take(self.squares, columns)

    def misfit(self, mean: Array) -> Array:
        xp = self.backend.xp
        fitted = xp.sum(mean * (self.products + self.rest), axis=0)
        # yᵀy - 2mᵀb + mᵀGm may cancel to less than nothing where the target is fitted exactly.
        return xp.clip(self.squares - fitted, min=0.0)

    def sweep(self, ridge: Array, mean: Array) -> Array:
        """One pass.

        The first half of the features is updated, then what the second half sees of the change is
        one product, then the second half is updated, and what the first sees of that is one
        product; each half likewise. In all that is one d × d by d × C product, in large pieces.
        """
        where, gram, rest = self.backend, self.gram, self.rest
        diagonals = self.diagonal[:, None] + ridge
        pull = ridge * mean
        step = where.xp.zeros_like(mean)

        def go(first: int, end: int) -> None:
            if end - first <= where.sweep_rows:
                rows = slice(first, end)
                right = rest[rows, :] - pull[rows, :]
                step[rows, :] = where.solve_lower(gram[rows, rows], diagonals[rows, :], right)
                rest[rows, :] -= gram[rows, rows] @ step[rows, :]
                return
            middle = (first + end) // 2
            one, two = slice(first, middle), slice(middle, end)
            go(first, middle)
            rest[two, :] -= gram[two, one] @ step[one, :]
            go(middle, end)
            rest[one, :] -= gram[one, two] @ step[two, :]

        go(0, gram.shape[0])
        return mean + step


class SampleSweeps:
    """Regressions that are known by their samples.

    Parameters
    ----------
    features : array (n, d)
    targets : array (n, C)
    mean : array (d, C)
    """

    def __init__(self, features: Array, targets: Array, mean: Array) -> None:
        self.backend = where = backend_of(features)
        xp = where.xp
        n, d = features.shape
        # In this order the numbers of a block of features lie together.
        turned = xp.empty((d, n), dtype=xp.float64, device=where.device)
        turned[:, :] = features.T
        starts = range(0, d, where.sweep_rows)
        self.rows = [slice(first, min(first + where.sweep_rows, d)) for first in starts]
        self.blocks = [turned[rows, :] for rows in self.rows]
        self.squares = [where.gram(block.T) for block in self.blocks]
        self.diagonal = xp.concat([xp.linalg.diagonal(square) for square in self.squares])
        self.targets = targets
        self.look(mean)

    def look(self, mean: Array) -> None:
        self.rest = self.backend.xp.asarray(self.targets, copy=True)
        for rows, block in zip(self.rows, self.blocks, strict=True):
            self.rest -= block.T @ mean[rows, :]

    def keep(self, columns: Array) -> None:
        xp = self.backend.xp
        self.targets, self.rest = (
            xp.take(array, columns, axis=1) for array in (self.targets, self.rest)
        )

    def misfit(self, mean: Array) -> Array:
        return self.backend.xp.sum(self.rest**2, axis=0)

    def sweep(self, ridge: Array, mean: Array) -> Array:
        """One pass."""
        where = self.backend
        diagonals = self.diagonal[:, None] + ridge
        pull = ridge * mean
        step = where.xp.zeros_like(mean)
        for rows, block, square in zip(self.rows, self.blocks, self.squares, strict=True):
            right = block @ self.rest - pull[rows, :]
            step[rows, :] = where.solve_lower(square, diagonals[rows, :], right)
            self.rest -= block.T @ step[rows, :]
        return mean + step
