"""The scale of targets and features: what it is, and what it follows."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.linear.selection.spike_slab import Data, SampleData, variational_em
from oodzoo.linear.selection.target_scale import RULES, TargetMoments, scale_moments, scale_samples

Floats = NDArray[np.float64]


def moments(seed: int = 0, n: int = 60, d: int = 8) -> TargetMoments:
    rng = np.random.default_rng(seed)
    X = rng.normal(2, 3, size=(n, d))
    return TargetMoments.of(X, X[:, :2] + rng.normal(size=(n, 2)))


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "none"])
def test_units_cancel(rule: str) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(50, 6))
    Y = X[:, :2] + rng.normal(size=(50, 2))
    units, targets = 10 ** rng.uniform(-3, 3, size=6), np.array([1e-4, 1e5])
    one = scale_moments(TargetMoments.of(X, Y), rule=rule)
    other = scale_moments(TargetMoments.of(X * units, Y * targets), rule=rule)
    assert one is not None
    assert other is not None
    assert isinstance(one.data, Data)
    assert isinstance(other.data, Data)
    np.testing.assert_allclose(other.factors * targets, one.factors, rtol=1e-6)
    np.testing.assert_allclose(other.data.gram, one.data.gram, atol=1e-8)
    np.testing.assert_allclose(other.data.products, one.data.products, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(other.start, one.start, atol=1e-5)


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


def test_without_centring_and_scale_nothing_is_touched() -> None:
    given = moments()
    found = scale_moments(given, rule="none", centre=False)
    assert found is not None
    assert isinstance(found.data, Data)
    np.testing.assert_array_equal(found.data.gram, given.gram)
    np.testing.assert_array_equal(found.data.products, given.products)
    assert found.data.n == given.n


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


def test_collinear_features_of_many_samples() -> None:
    """The part of a target that no feature explains is not lost where directions are few."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3)) @ rng.normal(size=(3, 9))
    Y = X[:, :1] + 2 * rng.normal(size=(200, 1))
    moments = TargetMoments.of(X, Y)
    found = scale_moments(moments, rule="none", centre=False)
    assert found is not None
    assert isinstance(found.data, SampleData)
    np.testing.assert_allclose(found.data.features.T @ found.data.features, X.T @ X, atol=1e-8)
    np.testing.assert_allclose(found.data.features.T @ found.data.targets, X.T @ Y, atol=1e-8)
    np.testing.assert_allclose((found.data.targets**2).sum(axis=0), (Y**2).sum(axis=0))


def test_moments_add_up() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(30, 4)), rng.normal(size=(30, 2))
    both = TargetMoments.of(X[:10], Y[:10]) + TargetMoments.of(X[10:], Y[10:])
    whole = TargetMoments.of(X, Y)
    assert both.n == whole.n
    np.testing.assert_allclose(both.gram, whole.gram)
    np.testing.assert_allclose(both.squares, whole.squares)
    with pytest.raises(InputError, match=r"\(4, 2\) .* \(3, 2\)"):
        whole + TargetMoments.of(X[:, :3], Y)


def test_nothing_that_varies() -> None:
    X, Y = np.ones((5, 2)), np.arange(5.0)[:, None]
    assert scale_moments(TargetMoments.of(X, Y)) is None
    assert scale_moments(TargetMoments.of(Y, X)) is None
    zeros = np.zeros((5, 9))
    assert scale_samples(zeros, Y) is None
    assert scale_samples(Y, zeros) is None
