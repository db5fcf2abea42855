"""Gauss-Seidel sweeps against a loop over the coordinates, on every backend."""

from __future__ import annotations

import numpy as np
import pytest
from tests.selection.data import DEVICES, linear_problem

from oodzoo.backend import backend, to_numpy
from oodzoo.selection.gauss_seidel import GramSweeps, SampleSweeps, Sweeps


@pytest.mark.parametrize("device", DEVICES)
def test_a_sweep_updates_one_coordinate_after_the_other(device: str | None) -> None:
    # More features than a block holds, and not a multiple of it.
    X, Y, mean = linear_problem(0, 50, 150, 3)
    G, b, squares = X.T @ X, X.T @ Y, np.asarray((Y**2).sum(axis=0))
    ridge = np.random.default_rng(1).uniform(0.1, 2, size=mean.shape)
    expected = mean.copy()
    for i in range(150):
        others = b[i] - G[i] @ expected + G[i, i] * expected[i]
        expected[i] = others / (G[i, i] + ridge[i])
    g, p, q, x, y, m, r = map(backend(device).float64, (G, b, squares, X, Y, mean, ridge))
    forms: list[Sweeps] = [GramSweeps(g, p, q, m), SampleSweeps(x, y, m)]
    for sweeps in forms:
        after = sweeps.sweep(r, m)
        np.testing.assert_allclose(to_numpy(after), expected, rtol=1e-9, atol=1e-10)
        misfit = ((Y - X @ expected) ** 2).sum(axis=0)
        np.testing.assert_allclose(to_numpy(sweeps.misfit(after)), misfit, rtol=1e-7)
        np.testing.assert_allclose(to_numpy(sweeps.diagonal), np.diag(G))
        carried = to_numpy(sweeps.sweep(r, after))
        sweeps.restart(after)
        np.testing.assert_allclose(to_numpy(sweeps.sweep(r, after)), carried, atol=1e-9)
        sweeps.keep(backend(device).asarray(np.array([2])))
        one = [2]
        sweeps.restart(after[:, one])
        alone = to_numpy(sweeps.sweep(r[:, one], after[:, one]))
        np.testing.assert_allclose(alone, carried[:, one], atol=1e-9)
