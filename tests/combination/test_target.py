"""Pools for a target of which there are unlabelled images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.combination.data import present, small
from tests.evaluation.data import zoo

from oodzoo.combining.adaptation import (
    STANDARDISED,
    TargetPool,
    pool_for_target,
    standardised_predictions,
    weigh_images,
)
from oodzoo.combining.heads import Heads, choose_pool, predict_with_heads
from oodzoo.combining.pool import Limits
from oodzoo.combining.predictions import Head
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.source import ArraySource

TEST = "d2"

Target = Callable[[str], NDArray[np.float32]]


def features_of(source: ArraySource, domain: str = TEST) -> Target:
    return lambda model: Columns.all_of(source, [model]).samples(source, [domain]).features


def pooled(source: ArraySource, heads: Heads | None = None, **options: Any) -> TargetPool:
    """For the test domain of a source."""
    heads = heads or predict_with_heads(source)[TEST]
    return pool_for_target(source, heads, choose_pool(heads), features_of(source), **options)


def shifted(strength: float) -> tuple[Any, Any, Any]:
    """Each domain is moved by a vector of its own."""
    features, y, domains = zoo(n=24, n_domains=4)
    rng = np.random.default_rng(5)
    for name, array in features.items():
        moves = strength * rng.normal(size=(4, array.shape[1]))
        features[name] = array + np.repeat(moves, 24, axis=0)
    return features, y, domains


def test_standardised_heads_are_candidates() -> None:
    source = small(n_domains=4)
    heads = predict_with_heads(source)[TEST]
    plain = choose_pool(heads)
    found = pooled(source, heads)
    expected = weigh_images(
        [np.exp(each) for each in plain.out_of_fold], heads.labels, np.exp(present(plain.test))
    )
    np.testing.assert_array_equal(present(found.weights.target), expected.target)
    candidates = dict(heads.candidates)
    for model in source.models:
        samples = Columns.all_of(source, [model]).samples(source, heads.domains)
        added = standardised_predictions(samples, features_of(source)(model), 3, expected)
        candidates |= {Head(model, STANDARDISED, share): each for share, each in added.items()}
    again = choose_pool(
        Heads(heads.domains, heads.labels, heads.alone, candidates, heads.milliseconds)
    )
    assert (found.pool.members, found.pool.weights) == (again.members, again.weights)
    np.testing.assert_array_equal(present(found.pool.test), present(again.test))


def test_they_are_used_where_domains_are_shifted() -> None:
    source = ArraySource(*shifted(4.0))
    heads = predict_with_heads(source)[TEST]
    found = pooled(source, heads).pool
    weights = zip(found.members, found.weights, strict=True)
    assert sum(w for head, w in weights if head.kind == STANDARDISED) > 0.8
    labels, plain = source.labels(TEST), choose_pool(heads)
    accuracies = [
        np.mean(p.argmax(axis=1) == labels) for p in (present(found.test), present(plain.test))
    ]
    assert accuracies[0] > accuracies[1] + 0.1


def test_the_order_of_the_images_only_orders_the_predictions() -> None:
    features, y, domains = shifted(1.0)
    rows = np.flatnonzero(domains == TEST)
    order = np.arange(len(y))
    order[rows] = np.random.default_rng(0).permutation(rows)
    one = pooled(ArraySource(features, y, domains))
    moved = {name: array[order] for name, array in features.items()}
    two = pooled(ArraySource(moved, y[order], domains))
    assert one.pool.members == two.pool.members
    inside = order[rows] - rows[0]
    np.testing.assert_allclose(
        present(one.weights.target)[inside], present(two.weights.target), rtol=1e-5
    )
    np.testing.assert_allclose(
        np.exp(present(one.pool.test))[inside], np.exp(present(two.pool.test)), atol=1e-4
    )


def test_the_labels_of_the_target_are_no_input() -> None:
    """Labels of the test domain that are permuted change nothing, to the last bit."""
    features, y, domains = shifted(1.0)
    other = y.copy()
    other[domains == TEST] = np.random.default_rng(0).permutation(y[domains == TEST])
    one, two = (pooled(ArraySource(features, labels, domains)) for labels in (y, other))
    assert one.pool.members == two.pool.members
    np.testing.assert_array_equal(present(one.pool.test), present(two.pool.test))
    np.testing.assert_array_equal(present(one.weights.target), present(two.weights.target))


def test_the_source_may_lack_the_target() -> None:
    """Only features of the training domains are read from it."""
    source = small(n_domains=4)
    heads = predict_with_heads(source)[TEST]
    without = source.only(heads.domains)
    one = pooled(source, heads)
    two = pool_for_target(without, heads, choose_pool(heads), features_of(source))
    assert one.pool.members == two.pool.members
    np.testing.assert_array_equal(present(one.pool.test), present(two.pool.test))


def test_limits() -> None:
    source = small(n_domains=3)
    assert len(pooled(source).pool.models) > 1
    assert len(pooled(source, limits=Limits(max_models=1)).pool.models) == 1


def test_predictions_for_the_target_are_needed() -> None:
    source = small(n_domains=3)
    heads = predict_with_heads(source)[None]
    with pytest.raises(ValueError, match="no predictions for the target"):
        pool_for_target(source, heads, choose_pool(heads), features_of(source))
