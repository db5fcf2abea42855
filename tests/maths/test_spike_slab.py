"""Variational EM and its sweeps against literal implementations, on every backend."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles import spike_slab as oracle
from tests.selection.data import Floats, linear_problem

from oodzoo.core.backend import backend, to_numpy
from oodzoo.linear.selection.gauss_seidel import GramSweeps, SampleSweeps, Sweeps
from oodzoo.linear.selection.spike_slab import Data, SampleData, stochastic_em, variational_em


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


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(2, 60),
    st.integers(1, 80),
    st.integers(1, 3),
    st.sampled_from(FORMS),
)
def test_the_bound_never_decreases(seed: int, n: int, d: int, n_targets: int, form: Form) -> None:
    X, Y, start = linear_problem(seed, n, d, n_targets)
    fit = variational_em(form(X, Y), start, max_iter=150)
    for bounds in fit.bounds:
        assert np.diff(bounds).min() >= -1e-9 * np.abs(bounds).max()


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


@pytest.mark.parametrize("form", FORMS)
def test_long_runs_do_not_drift(form: Form) -> None:
    X, Y, start = linear_problem(4, 30, 25, 1)
    fit = variational_em(form(X, Y), start, tol=1e-300, max_iter=120)
    pi, m, _, _ = oracle.fit(X, Y[:, 0], start[:, 0], 120)
    np.testing.assert_allclose(fit.inclusion[:, 0], pi, atol=1e-8)
    np.testing.assert_allclose(fit.weights[:, 0], m, atol=1e-8)
    assert not fit.converged.any()


def test_full_batches_give_the_exact_algorithm() -> None:
    X, Y, start = linear_problem(5, 80, 30, 2)
    whole = data(X, Y)
    exact = variational_em(whole, start, tol=1e-300, max_iter=20)
    batched = stochastic_em(iter([whole] * 21), start, tol=1e-300, max_iter=20)
    np.testing.assert_allclose(batched.inclusion, exact.inclusion, atol=1e-10)
    np.testing.assert_allclose(batched.bounds, exact.bounds)


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
