"""Zero-shot heads, and heads that start from them, against their formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax
from tests.heads.planted import SETS, SHAPES, planted
from tests.oracles import zero_shot as oracle

from oodzoo.features.columns import Samples, normalise
from oodzoo.heads.linear import LinearHead, fit_head
from oodzoo.heads.paths import left_out_paths
from oodzoo.heads.zero_shot import (
    fit_from_zero_shot,
    left_out_from_zero_shot,
    left_out_zero_shot,
    zero_shot_head,
)

CS = (1e-3, 0.1, 1.0)


def _texts(n_classes: int, d: int, seed: int = 0) -> LinearHead:
    rng = np.random.default_rng(seed)
    texts = rng.normal(size=(n_classes, d))
    return zero_shot_head(texts / np.linalg.norm(texts, axis=1, keepdims=True), 8.0, -1.5)


def _unit(shape: tuple[int, int], n_classes: int) -> Samples:
    samples = planted(*shape, n_classes, 4)
    return samples._replace(features=normalise(samples.features))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.1, 100), st.floats(-20, 20))
def test_the_head_is_the_formula(seed: int, scale: float, bias: float) -> None:
    rng = np.random.default_rng(seed)
    X, texts = rng.normal(size=(6, 5)) * 10 ** rng.uniform(-3, 3, (6, 1)), rng.normal(size=(3, 5))
    found = zero_shot_head(texts, scale, bias).logits(normalise(X))
    expected = [oracle.logits(x, texts, scale, bias) for x in X]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_features_without_any_length_stay_zero() -> None:
    unit = normalise(np.array([[0.0, 0.0], [3.0, 4.0]]))
    np.testing.assert_allclose(unit, [[0.0, 0.0], [0.6, 0.8]], rtol=1e-6)
    assert unit.dtype == np.float32
    large = normalise(np.array([[1e30, 1e30]], np.float32))
    np.testing.assert_allclose(large, math.sqrt(0.5), rtol=1e-6)


def test_the_zero_shot_head_learns_nothing(device: str | None) -> None:
    samples, head = _unit((48, 24), 3), _texts(3, 24)
    found = left_out_zero_shot(samples, 3, SETS, zero_shot=head, device=device)
    expected = log_softmax(head.logits(samples.features), axis=1)
    for left_out, path in zip(SETS, found, strict=True):
        rows = np.isin(samples.domains, list(left_out))
        np.testing.assert_allclose(path, expected[None, rows], rtol=1e-5)
        assert path.dtype == np.float32


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_paths_that_start_from_given_logits(
    shape: tuple[int, int], n_classes: int, device: str | None
) -> None:
    samples, head = _unit(shape, n_classes), _texts(n_classes, shape[1])
    offset = head.logits(samples.features)
    found = left_out_paths(samples, n_classes, SETS, Cs=CS, tol=1e-8, device=device, offset=offset)
    X = samples.features.astype(np.float64)
    for left_out, path in zip(SETS, found, strict=True):
        rows = np.isin(samples.domains, list(left_out))
        mean, std = X[~rows].mean(axis=0), X[~rows].std(axis=0)
        Z = (X - mean) / std
        for at, C in enumerate(CS):
            both = oracle.started_head(Z[~rows], samples.labels[~rows], offset[~rows], C)
            logits = offset[rows] + Z[rows] @ both[:, :-1].T + both[:, -1]
            np.testing.assert_allclose(path[at], log_softmax(logits, axis=1), atol=2e-4)


def test_the_default_tolerance(device: str | None) -> None:
    samples, head = _unit((80, 6), 3), _texts(3, 6)
    loose = left_out_from_zero_shot(samples, 3, SETS, zero_shot=head, device=device)
    offset = head.logits(samples.features)
    exact = left_out_paths(samples, 3, SETS, tol=1e-8, offset=offset)
    difference = max(np.abs(np.exp(a) - np.exp(b)).max() for a, b in zip(loose, exact, strict=True))
    assert difference < 0.02


def test_a_class_without_training_samples(device: str | None) -> None:
    samples, head = _unit((48, 24), 3), _texts(4, 24)
    (found,) = left_out_from_zero_shot(samples, 4, [{0}], zero_shot=head, device=device)
    assert np.isneginf(found[:, :, 3]).all()
    np.testing.assert_allclose(np.exp(found).sum(axis=2), 1, rtol=1e-5)


def test_texts_that_are_right_already(device: str | None) -> None:
    """Nothing is left to learn, and the fit ends."""
    samples = _unit((48, 24), 3)
    means = np.stack([samples.features[samples.labels == c].mean(axis=0) for c in range(3)])
    head = zero_shot_head(1e4 * means, 1.0)
    offset = head.logits(samples.features)
    right = offset.argmax(axis=1) == samples.labels
    kept = Samples(*(each[right] for each in samples))
    (found,) = left_out_from_zero_shot(kept, 3, [{0}], zero_shot=head, device=device)
    assert np.isfinite(found).all()
    rows = kept.labels[kept.domains == 0]
    assert (found[0].argmax(axis=1) == rows).mean() > 0.9


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("C", [1e-3, 1.0])
def test_the_fitted_head(shape: tuple[int, int], C: float) -> None:
    samples, head = _unit(shape, 3), _texts(3, shape[1])
    found = fit_from_zero_shot(samples, 3, C, head)
    X, offset = samples.features.astype(np.float64), head.logits(samples.features)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    both = oracle.started_head(Z, samples.labels, offset, C)
    expected = offset + Z @ both[:, :-1].T + both[:, -1]
    np.testing.assert_allclose(found.probabilities(X), softmax(expected, axis=1), atol=1e-3)
    assert found.C == C


def test_a_strong_penalty_leaves_the_zero_shot_weights() -> None:
    samples, head = _unit((48, 24), 3), _texts(3, 24)
    found = fit_from_zero_shot(samples, 3, 1e-9, head)
    np.testing.assert_allclose(found.weights, head.weights, atol=1e-4)
    assert found.bias.mean() == pytest.approx(-1.5, abs=1e-3)
    plain = fit_head(samples, 3, C=1e-9)
    assert np.abs(plain.weights).max() < 1e-4


def test_heads_are_told_apart() -> None:
    one, two = _texts(3, 4), _texts(3, 4, seed=1)
    assert one.digest == _texts(3, 4).digest != two.digest
    assert LinearHead(one.weights, one.bias + 1, 0.0).digest != one.digest
