"""Variational EM and its sweeps against literal implementations, on every backend."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.oracles import spike_slab as oracle
from tests.selection.data import Floats, linear_problem

from oodzoo.core.backend import backend, to_numpy
from oodzoo.linear.selection.spike_slab import Data, SampleData, variational_em


def data(X: Floats, Y: Floats, device: str | None = None) -> Data:
    float64 = backend(device).float64
    return Data(float64(X.T @ X), float64(X.T @ Y), float64(np.asarray((Y**2).sum(axis=0))), len(X))


def samples(X: Floats, Y: Floats, device: str | None = None) -> SampleData:
    float64 = backend(device).float64
    return SampleData(float64(X), float64(Y), len(X))


FORMS = [data, samples]
Form = Callable[..., Data | SampleData]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("n", "d"), [(60, 5), (40, 75), (200, 140), (2, 3), (10, 1)])
def test_agrees_with_one_coordinate_at_a_time(
    form: Form, device: str | None, n: int, d: int
) -> None:
    X, Y, start = linear_problem(d, n, d, 2)
    fit = variational_em(form(X, Y, device), backend(device).float64(start), tol=1e-300, max_iter=6)
    for target in range(2):
        pi, m, _, bounds = oracle.fit(X, Y[:, target], start[:, target], 6)
        np.testing.assert_allclose(to_numpy(fit.inclusion)[:, target], pi, rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(to_numpy(fit.weights)[:, target], m, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(fit.bounds[target], bounds, rtol=1e-8)


@pytest.mark.parametrize("form", FORMS)
def test_targets_are_independent(form: Form) -> None:
    X, Y, start = linear_problem(3, 120, 90, 4)
    together = variational_em(form(X, Y), start)
    assert len(set(together.iterations.tolist())) > 1, (
        "targets must converge at different iterations"
    )
    for target in range(4):
        one = [target]
        alone = variational_em(form(X, Y[:, one]), start[:, one])
        assert together.iterations[target] == alone.iterations[0]
        np.testing.assert_allclose(together.inclusion[:, one], alone.inclusion, atol=1e-8)
        np.testing.assert_allclose(together.weights[:, one], alone.weights, atol=1e-8)
        assert together.noise[target] == pytest.approx(alone.noise[0])
