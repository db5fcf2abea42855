"""The distance from the training images."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles import gaussian as oracle

from oodzoo.extraction.columns import Samples
from oodzoo.predictor import gaussian
from oodzoo.predictor.gaussian import fit_gaussian


def _samples(seed: int, n: int = 60, d: int = 6, classes: int = 2, domains: int = 2) -> Samples:
    rng = np.random.default_rng(seed)
    labels, where = rng.integers(0, classes, n), rng.integers(0, domains, n)
    mixing = rng.normal(size=(d, d))
    features = (
        rng.normal(size=(n, d)) @ mixing
        + 2 * rng.normal(size=(classes, d))[labels]
        + where[:, None]
    )
    return Samples(features.astype(np.float32), labels, where)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.integers(3, 9), st.integers(1, 3))
def test_distances_equal_the_oracle(seed: int, d: int, classes: int) -> None:
    samples = _samples(seed, d=d, classes=classes)
    fitted = fit_gaussian(samples)
    axes = (d - 1) // 2
    assert fitted.axes.shape == (d, axes)
    new = _samples(seed + 1, n=5, d=d).features
    features, labels, domains = samples.features.astype(np.float64), samples.labels, samples.domains
    expected = [oracle.distance(x.astype(np.float64), features, labels, domains, axes) for x in new]
    np.testing.assert_allclose(fitted.distances(new) * fitted.limit, expected, rtol=1e-4)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.01, 100), st.floats(-50, 50))
def test_units_of_features_do_not_matter(seed: int, factor: float, offset: float) -> None:
    features, labels, domains = _samples(seed)
    new = _samples(seed + 1, n=5).features
    other = fit_gaussian(Samples(features * factor + offset, labels, domains))
    distances = fit_gaussian(Samples(features, labels, domains)).distances(new)
    np.testing.assert_allclose(other.distances(new * factor + offset), distances, rtol=0.02)


def test_fewer_images_than_features() -> None:
    rng = np.random.default_rng(0)
    features, labels, domains = _samples(0, n=160, d=5)
    spread = features @ rng.normal(size=(5, 300)) + 0.3 * rng.normal(size=(160, 300))
    wide = spread.astype(np.float32)
    fitted = fit_gaussian(Samples(wide[:80], labels[:80], domains[:80]))
    assert np.mean(fitted.distances(wide[80:]) > 1) <= 0.05
    other = rng.normal(size=(20, 5)) @ rng.normal(size=(5, 300))  # in other directions
    assert (fitted.distances(other) > 1).all()


def test_constant_features_are_ignored() -> None:
    features, labels, domains = _samples(0)
    constant = np.full((len(features), 1), 0.1, np.float32)
    more = fit_gaussian(Samples(np.hstack([features, constant]), labels, domains))
    new = _samples(1, n=5).features
    odd = np.hstack([new, np.full((5, 1), 1e6, np.float32)])
    usual = np.hstack([new, constant[:5]])
    np.testing.assert_allclose(more.distances(odd), more.distances(usual))
    still = fit_gaussian(Samples(np.ones((30, 4), np.float32), labels[:30], domains[:30]))
    assert np.isfinite(still.distances(np.ones((2, 4), np.float32))).all()


def test_groups_are_held_out_together() -> None:
    """Copies of an image in another fold would make the limit too small for new images."""
    features, labels, domains = _samples(0, n=60, d=30, domains=1)
    noise = np.random.default_rng(1).normal(scale=1e-3, size=(240, 30))
    copies = Samples(
        (np.repeat(features, 4, axis=0) + noise).astype(np.float32),
        np.repeat(labels, 4),
        np.repeat(domains, 4),
    )
    apart = fit_gaussian(copies)
    together = fit_gaussian(copies, [[str(at // 4) for at in range(240)]])
    assert together.limit > 1.2 * apart.limit
    single = fit_gaussian(copies, [["all"] * 240])
    assert np.isfinite(single.limit)


def test_subsampling(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = _samples(0, n=500)
    whole = fit_gaussian(samples)
    monkeypatch.setattr(gaussian, "_MAX_IMAGES", 250)
    some = fit_gaussian(samples)
    new = _samples(1, n=20).features
    np.testing.assert_allclose(some.distances(new), whole.distances(new), rtol=0.3)
    assert len(some.centres) == len(whole.centres)
