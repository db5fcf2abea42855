"""One pass over the coordinates of many ridge regressions that share their features."""

from __future__ import annotations

from zood.backend import Array, backend_of


def sweep(gram: Array, ridge: Array, mean: Array, rest: Array) -> tuple[Array, Array]:
    """Update the weights one after the other, for all targets: one pass of Gauss and Seidel.

    The first half of the features is updated, then what the second half sees of the change is one
    product, then the second half is updated, and what the first sees of that is one product; each
    half likewise. In all that is one d × d by d × C product, in large pieces.

    Parameters
    ----------
    gram : array (d, d)
    ridge : array (d, C)
        Prior precision of each weight, divided by that of the noise.
    mean : array (d, C)
    rest : array (d, C)
        b - G mean.

    Returns
    -------
    mean, rest : array (d, C)
        After the pass.
    """
    where = backend_of(gram)
    xp = where.xp
    diagonals = xp.linalg.diagonal(gram)[:, None] + ridge
    step = xp.zeros_like(mean)
    rest = xp.asarray(rest, copy=True)
    pull = ridge * mean

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
    return mean + step, rest
