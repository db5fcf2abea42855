"""Heads of features standardised within each domain, and the weights of their images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.combination.data import predicted, present
from tests.heads.planted import planted
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
from oodzoo.combining.predictions import SHARES, HeadPredictions
from oodzoo.extraction.columns import Samples
from oodzoo.linear.heads.adaptive import Confusion
from oodzoo.linear.heads.kinds import folds_within
from oodzoo.linear.heads.ridge import SETTINGS

seeds = st.integers(0, 10_000)


# --- weights ------------------------------------------------------------------------------------


def test_images_weigh_alike_where_all_domains_have_the_same_mixture() -> None:
    labels = [np.repeat([0, 1, 2], [6, 10, 4] * np.array(times)) for times in (1, 3, 2)]
    perfect = [np.eye(3)[y] for y in labels]
    found = weigh_images(perfect, labels, np.eye(3)[labels[0]])
    for each in (*found.labelled, *found.predicted, present(found.target)):
        np.testing.assert_allclose(each, 1)
    np.testing.assert_allclose(found.confusion.rates, np.eye(3))
    np.testing.assert_allclose(found.confusion.reference, [0.3, 0.5, 0.2])


def test_weights_restore_the_mean_mixture() -> None:
    """By labels exactly; by perfect predictions of many images nearly."""
    labels = [np.repeat([0, 1], shares) for shares in ([300, 700], [800, 200], [400, 600])]
    found = weigh_images([np.eye(2)[y] for y in labels], labels, np.eye(2)[labels[1]])
    for y, weights in zip(labels, found.labelled, strict=True):
        np.testing.assert_allclose(np.bincount(y, weights) / weights.sum(), [0.5, 0.5])
    by_class = np.bincount(labels[1], present(found.target)) / present(found.target).sum()
    np.testing.assert_allclose(by_class, [0.5, 0.5], atol=0.01)
    rest = np.bincount(labels[1], found.predicted[1]) / found.predicted[1].sum()
    np.testing.assert_allclose(rest, [0.35, 0.65], atol=0.01)  # of the other two domains


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


@given(seed=seeds, domain=st.integers(0, 2))
@settings(max_examples=20, deadline=None)
def test_labels_of_a_domain_do_not_weigh_its_images_as_if_it_had_none(
    seed: int, domain: int
) -> None:
    tables, labels = predicted(seed, n_heads=1, sizes=(9, 14, 11))
    probabilities = [np.exp(table[0]) for table in tables]
    before = weigh_images(probabilities, labels, probabilities[0]).predicted[domain]
    labels[domain] = np.random.default_rng(seed).permutation(labels[domain])
    labels[domain][:2] = 0
    after = weigh_images(probabilities, labels, probabilities[0]).predicted[domain]
    np.testing.assert_array_equal(before, after)


def test_weights_of_a_class_that_only_one_domain_has() -> None:
    tables, labels = predicted(3, n_heads=1, sizes=(9, 14, 11))
    labels = [np.where(y == 2, 0, y) for y in labels]
    labels[1][:3] = 2
    probabilities = [np.exp(table[0]) for table in tables]
    probabilities[1] = probabilities[1] * [1, 1, 0]  # unknown where this domain is left out
    probabilities[1] /= probabilities[1].sum(axis=1, keepdims=True)
    found = weigh_images(probabilities, labels, probabilities[0])
    for each in (*found.labelled, *found.predicted, present(found.target)):
        assert np.isfinite(each).all()
        assert (each > 0).all()


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


def outputs_of(predictions: HeadPredictions) -> list[Any]:
    """Of the training domains."""
    return [*predictions.out_of_fold, *(predictions.within or ())]


def test_a_shift_and_a_scale_of_a_domain_cancel() -> None:
    samples = planted(60, 5, 3, 3)
    target = planted(20, 5, 3, 1, seed=1).features
    weights = weighted([20] * 3, 20)
    before = standardised_predictions(samples, target, 3, weights)
    features = samples.features.copy()
    features[samples.domains == 1] = 4 * features[samples.domains == 1] - 64
    moved = samples._replace(features=features)
    after = standardised_predictions(moved, (target / 2 + 32).astype(np.float32), 3, weights)
    for share in SHARES:
        one, two = before[share], after[share]
        assert one.setting == two.setting
        pairs = [(present(one.test), present(two.test))]
        for a, b in [*pairs, *zip(outputs_of(one), outputs_of(two), strict=True)]:
            np.testing.assert_allclose(np.exp(a), np.exp(b), atol=1e-3)


def test_the_target_changes_only_its_own_predictions() -> None:
    samples = planted(60, 5, 3, 3)
    rng = np.random.default_rng(0)
    weights = weighted([20] * 3, 20)
    targets = [rng.normal(size=(20, 5)).astype(np.float32) for _ in range(2)]
    one, two, none = (
        standardised_predictions(samples, target, 3, weights) for target in (*targets, None)
    )
    for share in SHARES:
        for other in (two[share], none[share]):
            assert one[share].setting == other.setting
            for a, b in zip(outputs_of(one[share]), outputs_of(other), strict=True):
                np.testing.assert_array_equal(a, b)
        assert not np.allclose(present(one[share].test), present(two[share].test))
        assert none[share].test is None


def test_domains_of_one_group_have_no_folds() -> None:
    samples = planted(30, 5, 3, 3)
    target, weights = samples.features[:7], weighted([10] * 3, 7)
    (one, two, three) = standardised_predictions(
        samples, target, 3, weights, groups=["patient"] * 30
    ).values()
    assert one.within is None
    assert one.setting == two.setting == three.setting
    assert present(one.test).shape == (7, 3)
