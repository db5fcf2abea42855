"""Coordinates without what labels explain, against a literal form."""

from __future__ import annotations

import numpy as np
import pytest
from tests.oracles import domains as oracle

from oodzoo.domains.clusters import PER_MODEL, embed, principal_components
from oodzoo.errors import InputError
from oodzoo.features.source import ArraySource

RNG = np.random.default_rng(0)
N = 90
Y = RNG.integers(0, 3, N)
DOMAINS = np.sort(RNG.choice(["x", "y"], N))  # the order of the source is that of the rows


def source(features: dict[str, np.ndarray], y: np.ndarray = Y) -> ArraySource:
    return ArraySource(features, y, DOMAINS)


def test_coordinates_are_whitened_residuals() -> None:
    features = RNG.normal(size=(N, 14)) * np.linspace(3, 1, 14) + 5 * np.eye(14)[Y] + 7
    found = embed(source({"m": features}), ["m"])
    rest = oracle.without_class_means(features, Y.tolist())
    expected = oracle.whitened(rest, PER_MODEL)
    # components are unique up to their sign
    signs = np.sign((found * expected).sum(axis=0))
    np.testing.assert_allclose(found, expected * signs, atol=1e-6)


def test_each_model_has_coordinates_of_its_own() -> None:
    small, large = RNG.normal(size=(N, 3)), 1000 * RNG.normal(size=(N, 20))
    found = embed(source({"small": small, "large": large}), ["small", "large"])
    assert found.shape == (N, 3 + PER_MODEL)
    np.testing.assert_allclose((found**2).mean(axis=0), 1, atol=1e-6)
    alone = embed(source({"small": small}), ["small"])
    np.testing.assert_allclose(found[:, :3], alone)


def test_numbers_and_several_labels_are_removed_too() -> None:
    y = RNG.normal(size=(N, 2))
    features = np.concatenate([y @ RNG.normal(size=(2, 4)), RNG.normal(size=(N, 1))], axis=1)
    found = embed(source({"m": features}, y), ["m"])
    assert found.shape == (N, 1)  # nothing but noise is left of the fifth feature
    np.testing.assert_allclose(found.T @ y, 0, atol=1e-6)


def test_features_that_labels_explain_completely() -> None:
    with pytest.raises(InputError, match="do not vary within a class"):
        embed(source({"m": np.eye(3)[Y]}), ["m"])


def test_the_result_depends_on_the_seed_alone() -> None:
    features = RNG.normal(size=(N, 30))
    first, again = (embed(source({"m": features}), ["m"], seed=3) for _ in range(2))
    np.testing.assert_array_equal(first, again)


def test_principal_components_have_falling_variances() -> None:
    found = principal_components(RNG.normal(size=(50, 6)) * [1, 5, 2, 0, 3, 4], 4)
    assert found.shape == (50, 4)
    assert (np.diff(found.var(axis=0)) < 0).all()
    product = found.T @ found
    np.testing.assert_allclose(product, np.diag(np.diag(product)), atol=1e-8)
