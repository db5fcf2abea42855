"""Tests of heads for deployment."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.evaluation.data import task_zoo

from oodzoo.combining.final import FinalHead, fit_columns, fit_pool, fit_pool_for_target
from oodzoo.combining.heads import Heads, choose_pool, predict_with_heads
from oodzoo.combining.pool import Limits
from oodzoo.combining.predictions import Head, HeadPredictions, fit_kind
from oodzoo.core.errors import InputError
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.source import ArraySource
from oodzoo.extraction.target import as_target
from oodzoo.linear.heads.adaptive import weighted_mean_and_std
from oodzoo.linear.heads.kinds import fit_head_of
from oodzoo.linear.heads.linear import LinearHead
from oodzoo.tasks import Kind

N = 40


@pytest.fixture(scope="module")
def source() -> ArraySource:
    """Three models of which two see the classes, in domains that shift the features."""
    rng = np.random.default_rng(0)
    y, domains = np.tile([0, 1, 2, 0], N), np.repeat(["a", "b", "c", "d"], N)
    shift = rng.normal(size=(4, 6))[np.repeat(np.arange(4), N)]
    signal = np.eye(6)[y] * 2
    features = {
        "one": signal + shift + rng.normal(size=(4 * N, 6)),
        "two": signal[:, ::-1] + 2 * shift + rng.normal(size=(4 * N, 6)),
        "noise": rng.normal(size=(4 * N, 4)),
    }
    return ArraySource(features, y, domains)


@pytest.fixture(scope="module")
def heads(source: ArraySource) -> Heads:
    return predict_with_heads(source)[None]


def together(source: ArraySource, final: FinalHead) -> NDArray[np.float32]:
    return final.columns.samples(source, source.domains).features


def test_columns(source: ArraySource) -> None:
    columns = Columns.all_of(source, ["one", "noise"])
    final = fit_columns(source, columns)
    expected = fit_head_of("classification", columns.samples(source, source.domains), 3)
    np.testing.assert_array_equal(final.head.weights, expected.weights)
    assert (final.weights, final.adaptive) == ({}, None)


def test_a_pool_is_the_weighted_mean_of_its_heads(source: ArraySource, heads: Heads) -> None:
    final = fit_pool(source, heads)
    pool = choose_pool(heads)
    assert final.columns.models == pool.models
    assert sum(final.weights.values()) == pytest.approx(1)
    logs = []
    for member in pool.members:
        samples = Columns.all_of(source, [member.model]).samples(source, source.domains)
        setting = heads.candidates[member].setting
        head = fit_kind("classification", member.kind, samples, 3, setting)
        logs.append(np.log(head.probabilities(samples.features)))
    expected = np.exp(np.average(logs, axis=0, weights=pool.weights))
    for model, weight in final.weights.items():
        pairs = zip(pool.members, pool.weights, strict=True)
        assert weight == pytest.approx(sum(w for head, w in pairs if head.model == model))
    expected /= expected.sum(axis=1, keepdims=True)
    found = final.head.probabilities(together(source, final))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_limits_hold(source: ArraySource, heads: Heads) -> None:
    final = fit_pool(source, heads, Limits(max_models=1))
    assert len(final.columns.models) == 1
    assert final.weights == {final.columns.models[0]: 1.0}


def test_a_pool_that_adapts(source: ArraySource, heads: Heads) -> None:
    """Adapted to a domain, its standardised part is that of the domain's own mean and deviation."""
    final = fit_pool(source, heads)
    assert final.adaptive is not None
    x = together(source, final)[:N].astype(np.float64)
    assert final.adaptive.base is final.head
    weights = np.ones(N)
    mean, std = weighted_mean_and_std(x, weights)
    folded = final.adaptive.for_domain(mean, std).logits(x)
    literal = final.adaptive.plain.logits(x) + final.adaptive.standardised.logits((x - mean) / std)
    np.testing.assert_allclose(folded, literal, rtol=1e-9, atol=1e-9)


def test_a_pool_for_a_target(source: ArraySource, heads: Heads) -> None:
    """Domain d is shifted far away; without labels of it, standardised heads still classify it."""
    rng = np.random.default_rng(1)
    y = np.tile([0, 1, 2, 0], N // 4 * 2)
    far = {
        "one": np.eye(6)[y] * 2 + 9 + rng.normal(size=(len(y), 6)),
        "two": np.eye(6)[y][:, ::-1] * 2 - 9 + rng.normal(size=(len(y), 6)),
        "noise": rng.normal(size=(len(y), 4)),
    }
    final = fit_pool_for_target(source, heads, as_target(source, far))
    x = np.concatenate([far[model] for model in final.columns.by_model], axis=1)
    adapted = np.mean(final.head.logits(x).argmax(axis=1) == y)
    assert final.adaptive is not None
    plain = np.mean(final.adaptive.base.logits(x).argmax(axis=1) == y)
    assert adapted > 0.8 > plain


def test_the_order_of_target_images_does_not_matter(source: ArraySource, heads: Heads) -> None:
    rng = np.random.default_rng(2)
    widths = {model: source.facts(model).feature_dim for model in source.models}
    target = {model: rng.normal(size=(30, width)) for model, width in widths.items()}
    order = rng.permutation(30)
    shuffled = {model: features[order] for model, features in target.items()}
    one, two = (
        fit_pool_for_target(source, heads, as_target(source, each)) for each in (target, shuffled)
    )
    assert one.columns.models == two.columns.models
    np.testing.assert_allclose(one.head.weights, two.head.weights, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(one.head.bias, two.head.bias, rtol=1e-5, atol=1e-8)


def test_domains_that_are_shifted_are_standardised(source: ArraySource, heads: Heads) -> None:
    final = fit_pool(source, heads)
    assert final.adaptive is not None
    assert final.adaptive.standardised.weights.any()


def test_heads_are_not_changed(source: ArraySource, heads: Heads) -> None:
    before = replace(heads, candidates=dict(heads.candidates))
    fit_pool(source, heads)
    assert list(heads.candidates) == list(before.candidates)


@pytest.mark.parametrize("kind", ["regression", "multilabel"])
def test_pools_of_numbers_and_labels_are_one_linear_head(kind: Kind) -> None:
    source = ArraySource(*task_zoo(kind), None, kind)
    heads = predict_with_heads(source)[None]
    final, pool = fit_pool(source, heads), choose_pool(heads)
    assert final.head.kind == kind
    assert final.adaptive is None
    assert sum(final.weights.values()) == pytest.approx(1)
    expected = np.zeros((len(together(source, final)), 2))
    for member, weight in zip(pool.members, pool.weights, strict=True):
        samples = Columns.all_of(source, [member.model]).samples(source, source.domains)
        head = fit_kind(kind, member.kind, samples, 2, heads.candidates[member].setting)
        expected = expected + weight * head.logits(samples.features)
    found = final.head.logits(together(source, final))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["regression", "multilabel"])
def test_heads_of_columns_of_numbers_and_labels(kind: Kind) -> None:
    source = ArraySource(*task_zoo(kind), None, kind)
    columns = Columns.all_of(source, ["good", "fair"])
    final = fit_columns(source, columns)
    expected = fit_head_of(kind, columns.samples(source, source.domains), 2)
    np.testing.assert_array_equal(final.head.weights, expected.weights)
    assert final.head.kind == kind


def test_a_pool_for_a_target_needs_classes() -> None:
    features, y, domains = task_zoo("regression")
    source = ArraySource(features, y, domains, None, "regression")
    heads = predict_with_heads(source)[None]
    other, _, _ = task_zoo("regression", seed=1)
    with pytest.raises(InputError, match="needs classes, but the task is 'regression'"):
        fit_pool_for_target(source, heads, as_target(source, other))


def test_a_given_head_is_not_fitted(source: ArraySource, heads: Heads) -> None:
    """As that of a fine-tuned model: its share is added as it is, and nothing adapts it."""
    rng = np.random.default_rng(1)
    tuned = Head("noise", "tuned", 1.0)
    given = LinearHead(rng.normal(size=(3, 4)), rng.normal(size=3), 1.0)
    known = [np.log(np.eye(3)[y] * 0.97 + 0.01) for y in heads.labels]  # such a head is chosen
    others = {head: each for head, each in heads.candidates.items() if head.model != "noise"}
    more = replace(heads, candidates=others | {tuned: HeadPredictions(0, known)})
    final = fit_pool(source, more, given={tuned: given})
    share = final.weights["noise"]
    assert 0 < share <= 1
    at = [*final.columns.by_model].index("noise")
    start = sum(len(part) for part in list(final.columns.by_model.values())[:at])
    np.testing.assert_allclose(final.head.weights[:, start : start + 4], share * given.weights)
    assert final.adaptive is not None
    assert not final.adaptive.standardised.weights[:, start : start + 4].any()


def test_a_pool_of_a_given_head_alone(source: ArraySource, heads: Heads) -> None:
    tuned = Head("noise", "tuned", 1.0)
    given = LinearHead(np.ones((3, 4)), np.zeros(3), 1.0)
    known = [np.log(np.eye(3)[y] * 0.97 + 0.01) for y in heads.labels]
    alone = replace(heads, candidates={tuned: HeadPredictions(0, known)})
    final = fit_pool(source, alone, given={tuned: given})
    np.testing.assert_array_equal(final.head.weights, given.weights)
    assert (final.weights, final.adaptive) == ({"noise": 1.0}, None)
