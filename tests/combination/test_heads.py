"""All heads of all models, and pools of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import log_softmax
from tests.combination.data import Costly, present, small
from tests.evaluation.data import zoo
from tests.oracles import combination as oracle

from oodzoo.combining.heads import Heads, choose_pool, left_out_pools, predict_with_heads
from oodzoo.combining.pool import Limits, PoolChooser
from oodzoo.combining.predictions import (
    SHARES,
    TRAINED,
    HeadPredictions,
    fit_kind,
    model_predictions,
)
from oodzoo.extraction.columns import Columns, Samples
from oodzoo.extraction.source import ArraySource
from oodzoo.linear.heads.linear import LinearHead


@pytest.fixture(scope="module")
def source() -> ArraySource:
    return small(n_domains=4)


@pytest.fixture(scope="module")
def found(source: ArraySource) -> dict[str | None, Heads]:
    return predict_with_heads(source)


def test_all_heads_of_all_models(source: ArraySource, found: dict[str | None, Heads]) -> None:
    assert list(found) == [None, "d0", "d1", "d2", "d3"]
    for test, heads in found.items():
        assert heads.domains == tuple(domain for domain in source.domains if domain != test)
        for domain, labels in zip(heads.domains, heads.labels, strict=True):
            np.testing.assert_array_equal(labels, source.labels(domain))
        assert tuple(heads.alone) == source.models
        assert set(heads.candidates) == {(m, TRAINED, s) for m in source.models for s in SHARES}
        assert heads.milliseconds == dict.fromkeys(source.models)
    alone, pooled = model_predictions(source, "good")
    for head, expected in pooled.items():
        mine = found["d2"].candidates[head]
        np.testing.assert_array_equal(mine.test, expected["d2"].test)
    mine = found["d2"].alone["good"]
    np.testing.assert_array_equal(mine.out_of_fold[1], alone["d2"].out_of_fold[1])


def test_progress_and_times() -> None:
    features, y, domains = zoo(n=9, n_domains=3)
    times = {"best": 2.0, "poor": None}
    calls: list[tuple[int, int]] = []
    source = Costly(features, y, domains, times)
    heads = predict_with_heads(source, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert heads[None].milliseconds == dict.fromkeys(features) | times


@pytest.mark.parametrize("test", [None, "d1"])
def test_a_pool_is_what_the_chooser_chooses(
    found: dict[str | None, Heads], test: str | None
) -> None:
    """It predicts the weighted geometric mean of its members."""
    heads = found[test]
    pool = choose_pool(heads)
    weights = PoolChooser(heads.candidates, heads.labels, heads.milliseconds).choose()
    assert pool.members == tuple(weights)
    assert pool.weights == tuple(weights.values())
    assert pool.models == tuple(dict.fromkeys(head.model for head in weights))
    members = [heads.candidates[head] for head in pool.members]
    for at, part in enumerate(pool.out_of_fold):
        expected = oracle.pool([each.out_of_fold[at] for each in members], pool.weights)
        np.testing.assert_allclose(part, expected, atol=1e-5)
    if test is None:
        assert pool.test is None
    else:
        expected = oracle.pool([present(each.test) for each in members], pool.weights)
        np.testing.assert_allclose(present(pool.test), expected, atol=1e-5)


def test_a_left_out_pool_is_chosen_without_the_domain(found: dict[str | None, Heads]) -> None:
    """By predictions of left-out domains and within the others; it predicts both of the domain."""
    heads = found[None]
    pools = left_out_pools(heads)
    assert pools.within is not None
    assert len(pools.out_of_fold) == len(pools.within) == 4
    for at in range(4):
        others = [other for other in range(4) if other != at]

        def part(each: HeadPredictions, kept: list[int] = others) -> HeadPredictions:
            within = [each.within[other] for other in kept] if each.within is not None else None
            return HeadPredictions(each.setting, [each.out_of_fold[o] for o in kept], within)

        chosen = choose_pool(
            Heads(
                tuple(heads.domains[other] for other in others),
                [heads.labels[other] for other in others],
                heads.alone,
                {head: part(each) for head, each in heads.candidates.items()},
                heads.milliseconds,
            )
        )
        members = [heads.candidates[head] for head in chosen.members]
        expected = oracle.pool([each.out_of_fold[at] for each in members], chosen.weights)
        np.testing.assert_allclose(pools.out_of_fold[at], expected, atol=1e-5)
        inside = [each.within[at] for each in members if each.within is not None]
        np.testing.assert_allclose(pools.within[at], oracle.pool(inside, chosen.weights), atol=1e-5)


def test_labels_of_a_left_out_domain_do_not_choose_its_pool(
    found: dict[str | None, Heads],
) -> None:
    heads = found[None]
    rng = np.random.default_rng(0)
    expected = left_out_pools(heads)
    for at in range(4):
        labels = list(heads.labels)
        labels[at] = rng.integers(0, 3, len(labels[at]))
        scrambled = left_out_pools(replace(heads, labels=labels))
        for one, two in zip(scrambled, expected, strict=True):
            assert one is not None
            assert two is not None
            np.testing.assert_array_equal(one[at], two[at])


def test_pools_of_heads_without_predictions_within(found: dict[str | None, Heads]) -> None:
    heads = found[None]
    candidates = {head: replace(each, within=None) for head, each in heads.candidates.items()}
    without = replace(heads, candidates=candidates)
    assert left_out_pools(without).within is None
    assert {head.share for head in choose_pool(without).members} == {1.0}


def test_pools_are_within_the_limits(found: dict[str | None, Heads]) -> None:
    heads = found["d0"]
    assert len(choose_pool(heads).models) > 1
    one = choose_pool(heads, Limits(max_models=1))
    assert len(one.models) == 1
    assert one.models[0] == choose_pool(heads).models[0]
    times: dict[str, float | None] = {"poor": 1.0, "best": 3.0, "fair": 1.0, "good": None}
    cheap = replace(heads, milliseconds=times)
    assert set(choose_pool(cheap, Limits(max_ms=2)).models) <= {"poor", "fair"}
    limited, free = left_out_pools(cheap, Limits(max_ms=2)), left_out_pools(cheap)
    assert not np.allclose(limited.out_of_fold[0], free.out_of_fold[0])


def test_the_order_of_the_models_does_not_matter() -> None:
    features, y, domains = zoo(n=12, n_domains=3)
    one = predict_with_heads(ArraySource(features, y, domains))
    other = {name: features[name] for name in reversed(features)}
    two = predict_with_heads(ArraySource(other, y, domains))
    for test, heads in one.items():
        mine, theirs = (choose_pool(each) for each in (heads, two[test]))
        expected = dict(zip(theirs.members, theirs.weights, strict=True))
        assert dict(zip(mine.members, mine.weights, strict=True)) == pytest.approx(
            expected, abs=1e-4
        )


@pytest.mark.parametrize("missing", [False, True])
def test_a_pool_of_linear_heads_is_a_linear_head(source: ArraySource, missing: bool) -> None:
    """Of the concatenated features; also if a class has no training samples."""
    parts, heads, each = [], [], []
    shares = [0.2, 0.5, 0.3]
    for model, setting in (("best", 4), ("good", 12), ("good", 5)):
        samples = Columns.all_of(source, [model]).samples(source, source.domains)
        known = samples.labels != 2 if missing else np.ones(len(samples.labels), bool)
        training = Samples(*(array[known] for array in samples))
        head = fit_kind("classification", TRAINED, training, 3, setting)
        parts.append(samples.features)
        heads.append(head)
        each.append(log_softmax(head.logits(samples.features), axis=1))
    weights = [share * head.weights for share, head in zip(shares, heads, strict=True)]
    bias = sum(share * head.bias for share, head in zip(shares, heads, strict=True))
    folded = LinearHead(np.concatenate(weights, axis=1), np.asarray(bias), 1.0)
    found: Any = folded.probabilities(np.concatenate(parts, axis=1))
    np.testing.assert_allclose(found, np.exp(oracle.pool(each, shares)), atol=1e-9)
    assert (found[:, 2] == 0).all() == missing
