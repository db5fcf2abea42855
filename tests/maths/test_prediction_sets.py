"""Prediction sets, distances from training images, resizing: against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.oracles import gaussian as gaussian_oracle
from tests.oracles import prediction_sets as oracle

from oodzoo.extraction.columns import Samples
from oodzoo.predictor import gaussian
from oodzoo.predictor.gaussian import fit_gaussian
from oodzoo.predictor.prediction_sets import (
    intervals_of,
    measure_class_sets,
    measure_intervals,
)

Floats = NDArray[np.float64]


# --- against the definition ---------------------------------------------------------------------


ODD = (
    "usual",
    "one sample",
    "two domains",
    "many classes",
    "equal probabilities",
    "tied probabilities",
    "unknown class",
)


def _odd(kind: str) -> tuple[dict[str, Floats], dict[str, NDArray[np.int64]]]:
    """Probabilities and classes of domains that are in some way unusual."""
    rng = np.random.default_rng(0)
    sizes = {"one sample": (1, 9, 12), "two domains": (8, 11)}.get(kind, (9, 12, 7))
    n_classes = 40 if kind == "many classes" else 3
    probabilities, labels = {}, {}
    for at, n in enumerate(sizes):
        name, y = f"d{at}", rng.integers(0, n_classes, n)
        p = rng.dirichlet(np.ones(n_classes), n)
        if kind == "equal probabilities":
            p = np.full((n, n_classes), 1 / n_classes)
        if kind == "tied probabilities":
            p = np.eye(n_classes)[p.argmax(axis=1)] / 2 + 0.5 / n_classes
        if kind == "unknown class" and at == 0:  # of which no other domain has samples
            y[:] = 2
            p[:, 2] = 0
            p /= p.sum(axis=1, keepdims=True)
        probabilities[name], labels[name] = p, y
    return probabilities, labels


@pytest.mark.parametrize("level", ["0.8", "0.9", "0.95"])
@pytest.mark.parametrize("kind", ODD)
def test_sets_of_unusual_domains_are_those_of_the_definition(kind: str, level: str) -> None:
    probabilities, labels = _odd(kind)
    (found,) = measure_class_sets(probabilities, labels, [float(level)])
    coverage, size = oracle.measured(probabilities, labels, level)
    assert found.coverage == pytest.approx(coverage)
    assert found.size == pytest.approx(size)
    scores = [-p[np.arange(len(p)), labels[name]] for name, p in probabilities.items()]
    score = oracle.threshold(scores, level)
    assert found.thresholds == (0.0 if score == np.inf else -score,)


# --- measured -----------------------------------------------------------------------------------


def test_too_few_samples_give_all_classes_and_no_interval() -> None:
    p = {"a": np.array([[0.7, 0.3]]), "b": np.array([[0.6, 0.4]])}
    (measured,) = measure_class_sets(p, {"a": np.array([0]), "b": np.array([1])}, [0.9])
    assert (measured.thresholds, measured.size, measured.average) == ((0.0,), 2.0, 100.0)
    x = {"a": np.array([[1.0]]), "b": np.array([[2.0]])}
    assert measure_intervals(x, x, [0.9]) == ()


def test_intervals_of_several_numbers() -> None:
    rng = np.random.default_rng(0)
    truth = {name: rng.normal(size=(100, 2)) for name in "abc"}
    predicted = {n: y + rng.normal(size=(100, 2)) * [0.1, 10] for n, y in truth.items()}
    (measured,) = measure_intervals(predicted, truth, [0.9])
    small, large = measured.thresholds
    assert small == pytest.approx(0.165, rel=0.2)
    assert large == pytest.approx(16.5, rel=0.2)
    assert measured.average == pytest.approx(90, abs=4)
    assert measured.size is None
    (low, high), _ = intervals_of(np.array([5.0, 0.0]), measured)
    assert (low, high) == (5 - small, 5 + small)


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
    expected = [
        gaussian_oracle.distance(x.astype(np.float64), features, labels, domains, axes) for x in new
    ]
    np.testing.assert_allclose(fitted.distances(new) * fitted.limit, expected, rtol=1e-4)


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
