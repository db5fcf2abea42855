"""Tests of heads for deployment."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import log_softmax
from tests.evaluation.data import task_zoo

from oodzoo.combining.final import FinalHead, fit_columns, fit_pool, fit_pool_for_target
from oodzoo.combining.heads import Heads, choose_pool, predict_with_heads
from oodzoo.combining.pool import Limits
from oodzoo.combining.predictions import Head, HeadPredictions, fit_kind
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.source import ArraySource
from oodzoo.extraction.target import as_target
from oodzoo.linear.heads.kinds import fit_head_of
from oodzoo.linear.heads.linear import LinearHead
from oodzoo.tasks import KINDS, Kind

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


@pytest.mark.parametrize("kind", KINDS)
def test_a_pool_is_the_weighted_mean_of_its_heads(source: ArraySource, kind: Kind) -> None:
    if kind != "classification":
        source = ArraySource(*task_zoo(kind), None, kind)
    heads = predict_with_heads(source)[None]
    final, pool = fit_pool(source, heads), choose_pool(heads)
    assert (final.head.kind, final.columns.models) == (kind, pool.models)
    assert (final.adaptive is None) == (kind != "classification")
    if final.adaptive is not None:
        assert final.adaptive.base is final.head
        assert final.adaptive.standardised.weights.any()
    n_outputs, expected = len(source.classes), 0.0
    of_models = dict.fromkeys(pool.models, 0.0)
    for member, weight in zip(pool.members, pool.weights, strict=True):
        samples = Columns.all_of(source, [member.model]).samples(source, source.domains)
        setting = heads.candidates[member].setting
        head = fit_kind(kind, member.kind, samples, n_outputs, setting)
        expected = expected + weight * head.logits(samples.features)
        of_models[member.model] += weight
    assert final.weights == pytest.approx(of_models)
    assert sum(of_models.values()) == pytest.approx(1)
    found = final.head.logits(together(source, final))
    if kind == "classification":
        found, expected = log_softmax(found, axis=1), log_softmax(expected, axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    one = fit_pool(source, heads, Limits(max_models=1))
    assert one.weights == {one.columns.models[0]: 1.0}


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


@pytest.mark.parametrize("is_alone", [False, True])
def test_a_given_head_is_not_fitted(source: ArraySource, heads: Heads, is_alone: bool) -> None:
    """As that of a fine-tuned model: its share is added as it is, and nothing adapts it."""
    rng = np.random.default_rng(1)
    tuned = Head("noise", "tuned", 1.0)
    given = LinearHead(rng.normal(size=(3, 4)), rng.normal(size=3), 1.0)
    known = [np.log(np.eye(3)[y] * 0.97 + 0.01) for y in heads.labels]  # such a head is chosen
    others = {head: each for head, each in heads.candidates.items() if head.model != "noise"}
    candidates = ({} if is_alone else others) | {tuned: HeadPredictions(0, known)}
    final = fit_pool(source, replace(heads, candidates=candidates), given={tuned: given})
    if is_alone:
        np.testing.assert_array_equal(final.head.weights, given.weights)
        assert (final.weights, final.adaptive) == ({"noise": 1.0}, None)
        return
    share = final.weights["noise"]
    assert 0 < share <= 1
    at = [*final.columns.by_model].index("noise")
    start = sum(len(part) for part in list(final.columns.by_model.values())[:at])
    np.testing.assert_allclose(final.head.weights[:, start : start + 4], share * given.weights)
    assert final.adaptive is not None
    assert not final.adaptive.standardised.weights[:, start : start + 4].any()


@pytest.mark.parametrize("kind", KINDS)
def test_columns(source: ArraySource, kind: Kind) -> None:
    if kind != "classification":
        source = ArraySource(*task_zoo(kind), None, kind)
    columns = Columns.all_of(source, list(source.models[:2]))
    final = fit_columns(source, columns)
    samples = columns.samples(source, source.domains)
    expected = fit_head_of(kind, samples, len(source.classes))
    np.testing.assert_array_equal(final.head.weights, expected.weights)
    assert (final.head.kind, final.weights, final.adaptive) == (kind, {}, None)
    assert final.columns.normalised == frozenset()
