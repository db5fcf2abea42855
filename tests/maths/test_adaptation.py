"""Heads of features standardised within each domain, and the weights of their images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.heads.planted import planted
from tests.maths.combinations import predicted, present
from tests.oracles import adaptive
from tests.oracles import combination as oracle
from tests.oracles.outputs import best_setting
from tests.oracles.ridge import left_out_ridge, split_classes

from oodzoo.combining.adaptation import (
    ImageWeights,
    standardise,
    standardised_predictions,
    weigh_images,
)
from oodzoo.combining.predictions import SHARES
from oodzoo.extraction.columns import Samples
from oodzoo.linear.heads.adaptive import Confusion
from oodzoo.linear.heads.kinds import folds_within
from oodzoo.linear.heads.ridge import SETTINGS

seeds = st.integers(0, 10_000)


# --- weights ------------------------------------------------------------------------------------


@given(seed=seeds)
@settings(max_examples=10, deadline=None)
def test_weights_equal_their_definition(seed: int) -> None:
    tables, labels = predicted(seed, n_heads=1, sizes=(9, 14, 11, 8))
    *probabilities, target = [np.exp(table[0]) for table in tables]
    target_labels = labels.pop()
    found = weigh_images(probabilities, labels, target)

    def expected(here: Any, domains: list[int]) -> list[float]:
        known = adaptive.measured([probabilities[d] for d in domains], [labels[d] for d in domains])
        mixture = adaptive.mixture(here, known)
        ratios = [r / m if m else 1 for r, m in zip(known.reference, mixture, strict=True)]
        return [sum(p[c] * ratios[c] for c in range(3)) for p in here]

    np.testing.assert_allclose(present(found.target), expected(target, [0, 1, 2]), rtol=1e-3)
    for domain in range(3):
        others = [other for other in range(3) if other != domain]
        np.testing.assert_allclose(
            found.predicted[domain], expected(probabilities[domain], others), rtol=1e-3
        )
        reference = adaptive.reference(labels, 3)
        shares = [np.mean(labels[domain] == c) for c in range(3)]
        np.testing.assert_allclose(
            found.labelled[domain], [reference[c] / shares[c] for c in labels[domain]]
        )
    assert len(present(found.target)) == len(target_labels)


# --- standardised features ----------------------------------------------------------------------


def test_standardise_equals_its_definition() -> None:
    samples = planted(30, 4, 3, 3)
    samples.features[samples.domains == 1, 2] = 7.5  # constant in one domain
    rng = np.random.default_rng(0)
    weights = [rng.uniform(0.2, 3, 10) for _ in range(3)]
    found = standardise(samples, weights)
    np.testing.assert_array_equal(found.labels, samples.labels)
    np.testing.assert_array_equal(found.domains, samples.domains)
    assert found.features.dtype == np.float32
    for domain, each in enumerate(weights):
        rows = samples.domains == domain
        expected = oracle.standardised(samples.features[rows].astype(np.float64), each.tolist())
        np.testing.assert_allclose(found.features[rows], expected, atol=1e-5)
    assert (found.features[samples.domains == 1, 2] == 0).all()


def weighted(sizes: list[int], target: int, seed: int = 0) -> ImageWeights:
    rng = np.random.default_rng(seed)
    *labelled, last = [rng.uniform(0.5, 2, n) for n in [*sizes, target]]
    predicted = [rng.uniform(0.5, 2, n) for n in sizes]
    return ImageWeights(labelled, predicted, last, Confusion(np.eye(3), np.full(3, 1 / 3), 0.0))


@pytest.mark.parametrize("shape", [(80, 5), (40, 60)])
def test_standardised_predictions_equal_literal_fits(shape: tuple[int, int]) -> None:
    """A left-out domain is standardised as if it had no labels, the others by their labels."""
    every = planted(*shape, 3, 4)
    known = every.domains < 3
    y, domains = every.labels[known], every.domains[known]
    samples = Samples(every.features[known], y, domains)
    target = every.features[~known]
    weights = weighted([shape[0] // 4] * 3, len(target))
    groups = [f"g{row // 2}" for row in range(len(y))]
    found = standardised_predictions(samples, target, 3, weights, groups=groups)

    def parts(of: list[list[float]]) -> Any:
        each = [every.features[every.domains == d].astype(np.float64) for d in range(len(of))]
        return np.concatenate([oracle.standardised(x, w) for x, w in zip(each, of, strict=True)])

    labelled = [each.tolist() for each in weights.labelled]
    left_out = []
    for domain in range(3):
        mixed = list(labelled)
        mixed[domain] = weights.predicted[domain].tolist()
        left_out.append(left_out_ridge(parts(mixed), y, domains, {domain}, SETTINGS, 3))
    folds = np.full(len(every.labels), -1)
    folds[known] = folds_within("classification", y, domains, groups)
    together = parts([*labelled, present(weights.target).tolist()])
    inside, rest = split_classes(together, every.labels, folds, SETTINGS, 3)
    within = [inside[:, domains == domain] for domain in range(3)]
    labels = [y[domains == domain] for domain in range(3)]
    assert tuple(found) == SHARES
    for share, mine in found.items():
        at = best_setting("classification", left_out, within, labels, share)
        assert mine.setting == at
        for each, expected in zip(mine.out_of_fold, left_out, strict=True):
            np.testing.assert_allclose(each, expected[at], atol=1e-4)
        for each, expected in zip(mine.within or (), within, strict=True):
            np.testing.assert_allclose(each, expected[at], atol=1e-4)
        np.testing.assert_allclose(present(mine.test), rest[at], atol=1e-4)
