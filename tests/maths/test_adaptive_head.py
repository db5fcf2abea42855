"""Heads that adapt to a domain: against the formulas, and on shifted domains."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import softmax
from tests.oracles import adaptive as oracle

from oodzoo.linear.heads.adaptive import (
    AdaptingDomain,
    AdaptiveHead,
    Confusion,
    class_weights,
    estimate_mixture,
    weighted_mean_and_std,
)
from oodzoo.linear.heads.linear import LinearHead

seeds = st.integers(0, 10_000)


def _domains(
    seed: int, n_classes: int, n_domains: int
) -> tuple[list[NDArray[np.float64]], list[NDArray[np.int64]]]:
    """Noisy predictions for domains with different mixtures, some without some classes."""
    rng = np.random.default_rng(seed)
    labels = [
        rng.choice(n_classes, rng.integers(1, 40), p=rng.dirichlet(np.full(n_classes, 0.7)))
        for _ in range(n_domains)
    ]
    probabilities = [
        softmax(2 * np.eye(n_classes)[y] + rng.normal(size=(len(y), n_classes)), axis=1)
        for y in labels
    ]
    return probabilities, labels


def _adaptive(seed: int, n_classes: int = 3, d: int = 5) -> AdaptiveHead:
    rng = np.random.default_rng(seed)
    plain, standardised, base = (
        LinearHead(rng.normal(size=(n_classes, d)), rng.normal(size=n_classes), C)
        for C in (1.0, 0.1, 0.01)
    )
    return AdaptiveHead(plain, standardised, Confusion.of(*_domains(seed, n_classes, 3)), base)


@settings(max_examples=30, deadline=None)
@given(seeds, st.integers(2, 5), st.integers(1, 4))
def test_the_confusion_equals_the_oracle(seed: int, n_classes: int, n_domains: int) -> None:
    probabilities, labels = _domains(seed, n_classes, n_domains)
    found = Confusion.of(probabilities, labels)
    expected = oracle.measured(probabilities, labels)
    np.testing.assert_allclose(found.rates, expected.rates, atol=1e-12)
    np.testing.assert_allclose(found.reference, expected.reference, atol=1e-12)
    np.testing.assert_allclose(found.noise, expected.noise, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(found.rates.sum(axis=1), 1)


@settings(max_examples=20, deadline=None)
@given(seeds, st.integers(2, 4))
def test_the_mixture_equals_the_oracle(seed: int, n_classes: int) -> None:
    probabilities, labels = _domains(seed, n_classes, 3)
    confusion = Confusion.of(probabilities, labels)
    (target, *_), _ = _domains(seed + 1, n_classes, 1)
    found = estimate_mixture(target, confusion)
    expected = oracle.mixture(target, oracle.measured(probabilities, labels))
    np.testing.assert_allclose(found, expected, atol=1e-5)


@settings(max_examples=30, deadline=None)
@given(seeds)
def test_weights_of_classes_equal_their_formula(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mixture, reference = rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(4))
    probabilities = rng.dirichlet(np.ones(4), 20)
    expected = [sum(p[c] * reference[c] / mixture[c] for c in range(4)) for p in probabilities]
    np.testing.assert_allclose(class_weights(probabilities, mixture, reference), expected)


@settings(max_examples=30, deadline=None)
@given(seeds, st.sampled_from([2, 30, 1100]))
def test_integer_weights_are_repetitions(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    features = (rng.normal(size=(n, 3)) * [1, 100, 0] + [0, 1e4, 0.1]).astype(np.float32)
    times = rng.integers(1, 5, n)
    mean, std = weighted_mean_and_std(features, times.astype(float))
    repeated = np.repeat(features.astype(np.float64), times, axis=0)
    np.testing.assert_allclose(mean, repeated.mean(axis=0), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(std[:2], repeated.std(axis=0)[:2], rtol=1e-9, atol=1e-12)
    assert std[2] == 0


@settings(max_examples=30, deadline=None)
@given(seeds)
def test_a_folded_head_equals_the_formula(seed: int) -> None:
    adaptive = _adaptive(seed)
    rng = np.random.default_rng(seed)
    features, mean = rng.normal(size=(4, 5)), rng.normal(size=5)
    std = rng.uniform(0.1, 3, 5) * (rng.random(5) > 0.3)
    head = adaptive.for_domain(mean, std)
    plain, standardised = adaptive.plain, adaptive.standardised
    expected = [
        oracle.logits(
            x, (plain.weights, plain.bias), (standardised.weights, standardised.bias), mean, std
        )
        for x in features
    ]
    np.testing.assert_allclose(head.logits(features), expected, atol=1e-9)
    assert head.C == adaptive.plain.C


@settings(max_examples=30, deadline=None)
@given(seeds)
def test_adapting_equals_its_steps(seed: int) -> None:
    adaptive, confusion = _adaptive(seed), _adaptive(seed).confusion
    rng = np.random.default_rng(seed)
    features = (rng.normal(size=(700, 5)) * [1, 2, 3, 1e3, 0] + 5).astype(np.float32)
    probabilities = adaptive.base.probabilities(features)
    mixture = estimate_mixture(probabilities, confusion)
    weights = class_weights(probabilities, mixture, confusion.reference)
    adapted = adaptive.for_domain(*weighted_mean_and_std(features, weights))
    restored = np.average(probabilities, axis=0, weights=weights)
    usual = sum(confusion.reference[c] * confusion.rates[c] for c in range(3))
    share = np.abs(restored - usual).sum() / 2
    assert 0 < share < 1
    base = adaptive.base
    expected = LinearHead(
        (1 - share) * adapted.weights + share * base.weights,
        (1 - share) * adapted.bias + share * base.bias,
        adapted.C,
    )
    in_parts = AdaptingDomain(adaptive)
    for part in np.split(features, [3, 640]):
        in_parts.add(part)
    assert in_parts.n == 700
    for found in (adaptive.adapted(features), in_parts.head()):
        np.testing.assert_allclose(found.weights, expected.weights, rtol=1e-7)
        np.testing.assert_allclose(found.bias, expected.bias, rtol=1e-7, atol=1e-7)
