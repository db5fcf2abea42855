"""Variational EM against a literal implementation, on every backend."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles import spike_slab as oracle
from tests.selection.data import DEVICES, Floats, linear_problem

from oodzoo.backend import backend, to_numpy
from oodzoo.errors import InputError
from oodzoo.selection.spike_slab import Data, Priors, SampleData, stochastic_em, variational_em


def data(X: Floats, Y: Floats, device: str | None = None) -> Data:
    float64 = backend(device).float64
    return Data(float64(X.T @ X), float64(X.T @ Y), float64(np.asarray((Y**2).sum(axis=0))), len(X))


def samples(X: Floats, Y: Floats, device: str | None = None) -> SampleData:
    float64 = backend(device).float64
    return SampleData(float64(X), float64(Y), len(X))


FORMS = [data, samples]
Form = Callable[..., Data | SampleData]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("device", DEVICES)
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
@given(st.integers(0, 10_000), st.integers(2, 40), st.integers(1, 12))
def test_every_update_increases_the_bound(seed: int, n: int, d: int) -> None:
    X, Y, start = linear_problem(seed, n, d, 1)
    _, _, steps, _ = oracle.fit(X, Y[:, 0], start[:, 0], 4)
    assert np.diff(steps).min() >= -1e-9 * np.abs(steps).max()


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


@pytest.mark.parametrize(
    "wrong",
    [{"inclusion": 0.0}, {"inclusion": 1.0}, {"slab": (1.0,)}, {"spike": (5.0, -1.0)},
     {"noise": (0.0, 1.0)}, {"slab": (float("nan"), 1.0)}],
)  # fmt: skip
def test_invalid_priors(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError, match=f"prior {next(iter(wrong))}"):
        Priors(**wrong)  # type: ignore[arg-type]
