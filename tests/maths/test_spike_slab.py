"""Variational EM against a literal implementation, and the scale of targets and features."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.oracles import spike_slab as oracle
from tests.selection.data import Floats, linear_problem

from oodzoo.core.backend import backend, to_numpy
from oodzoo.linear.selection.spike_slab import Data, SampleData, variational_em
from oodzoo.linear.selection.target_scale import RULES, TargetMoments, scale_moments, scale_samples


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
        pi, m, bounds = oracle.fit(X, Y[:, target], start[:, target], 6)
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


def moments(seed: int = 0, n: int = 60, d: int = 8) -> TargetMoments:
    rng = np.random.default_rng(seed)
    X = rng.normal(2, 3, size=(n, d))
    return TargetMoments.of(X, X[:, :2] + rng.normal(size=(n, 2)))


def test_the_rule_lies_between_its_parts() -> None:
    for n, d in ((400, 8), (60, 50), (20, 50)):
        given = moments(n=n, d=d)
        evidence, weights, noise = (
            scale_moments(given, rule=r) for r in ("evidence", "weights", "noise")
        )
        assert evidence is not None
        assert weights is not None
        assert noise is not None
        assert (evidence.factors >= weights.factors * (1 - 1e-12)).all()
        cap = np.maximum(weights.factors, np.sqrt(2.5) * noise.factors)
        assert (evidence.factors <= cap * (1 + 1e-12)).all()
        # What the selection finds in the slab moves the factor within these bounds.
        few, many = (evidence.rescaled(np.full(2, share)) for share in (1e-3, 1.0))
        np.testing.assert_allclose(few.factors, weights.factors, rtol=0.01)
        limit = np.minimum(cap, np.sqrt(4.5 * (1 + max(0, 1 - d / (n - 1)))) * weights.factors)
        np.testing.assert_allclose(many.factors, np.maximum(limit, weights.factors), rtol=0.01)
        np.testing.assert_allclose(many.start / many.factors, evidence.start / evidence.factors)
        assert many.rescaled(np.ones(2)) is many


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("n", "d"), [(12, 30), (25, 30), (30, 25)])
def test_samples_and_their_moments_are_the_same_problem(rule: str, n: int, d: int) -> None:
    rng = np.random.default_rng(d + n)
    X = rng.normal(size=(n, d))
    X[:, 3] = 0
    Y = np.stack([X[:, 0] + 0.1 * rng.normal(size=n), np.zeros(n), rng.normal(size=n)], axis=1)
    X, Y = X - X.mean(axis=0), Y - Y.mean(axis=0)
    one, other = scale_moments(TargetMoments.of(X, Y), rule=rule), scale_samples(X, Y, rule=rule)
    assert one is not None
    assert other is not None
    # 11 directions are few of 29 features, 24 are not.
    assert isinstance(one.data, SampleData) == (n == 12)
    np.testing.assert_array_equal(one.features, other.features)
    np.testing.assert_array_equal(one.targets, other.targets)
    np.testing.assert_allclose(one.divisors, other.divisors)
    np.testing.assert_allclose(one.factors, other.factors, rtol=1e-6)
    np.testing.assert_allclose(one.correlations, other.correlations, atol=1e-9)
    np.testing.assert_allclose(one.start, other.start, atol=1e-6)
    fits = [variational_em(p.data, p.start, max_iter=20) for p in (one, other)]
    np.testing.assert_allclose(fits[0].inclusion, fits[1].inclusion, atol=1e-6)
    np.testing.assert_allclose(fits[0].noise, fits[1].noise, rtol=1e-6)
