"""All heads of all models, and pools of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import log_softmax
from tests.combination.data import Costly, small
from tests.evaluation.data import zoo
from tests.oracles import combination as oracle

from oodzoo.combination.heads import Head, Heads, choose_pool, left_out_pools, predict_with_heads
from oodzoo.combination.pool import Limits
from oodzoo.combination.predictions import ALONE, POOLED, fit_kind, model_predictions
from oodzoo.features.columns import Columns
from oodzoo.features.source import ArraySource
from oodzoo.heads.linear import LinearHead


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
        assert set(heads.candidates) == {(m, kind) for m in source.models for kind in POOLED}
        assert heads.milliseconds == dict.fromkeys(source.models)
    expected = model_predictions(source, "good")["ridge"]["d2"]
    mine = found["d2"].candidates[Head("good", "ridge")]
    np.testing.assert_array_equal(mine.test, expected.test)
    alone = model_predictions(source, "good")[ALONE]["d2"]
    np.testing.assert_array_equal(found["d2"].alone["good"].out_of_fold[1], alone.out_of_fold[1])


def test_progress_and_times() -> None:
    features, y, domains = zoo(n=9, n_domains=3)
    times = {"best": 2.0, "poor": None}
    calls: list[tuple[int, int]] = []
    source = Costly(features, y, domains, times)
    heads = predict_with_heads(source, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert heads[None].milliseconds == dict.fromkeys(features) | times


@pytest.mark.parametrize("test", [None, "d1"])
def test_a_pool_predicts_the_geometric_mean_of_its_members(
    found: dict[str | None, Heads], test: str | None
) -> None:
    heads = found[test]
    pool = choose_pool(heads)
    members = [heads.candidates[head] for head in pool.members]
    assert members
    assert len(set(pool.members)) == len(members)
    assert set(pool.models) == {head.model for head in pool.members}
    assert len(set(pool.models)) == len(pool.models)
    for at, part in enumerate(pool.out_of_fold):
        expected = oracle.pool([each.out_of_fold[at] for each in members])
        np.testing.assert_allclose(part, expected, atol=1e-5)
    if test is None:
        assert pool.test is None
    else:
        assert pool.test is not None
        expected = oracle.pool([each.test for each in members if each.test is not None])
        np.testing.assert_allclose(pool.test, expected, atol=1e-5)


def test_members_are_those_of_the_greedy_selection(found: dict[str | None, Heads]) -> None:
    heads = found["d3"]
    names = list(heads.candidates)
    domains = [
        ([heads.candidates[name].out_of_fold[at].astype(np.float64) for name in names], labels)
        for at, labels in enumerate(heads.labels)
    ]
    shares = dict(zip(names, oracle.greedy_shares(domains), strict=True))
    members = choose_pool(heads).members
    assert set(members) == {head for head, share in shares.items() if share > 0}
    assert all(np.diff([shares[head] for head in members]) < 1e-9)


def test_a_left_out_pool_is_chosen_without_the_domain(found: dict[str | None, Heads]) -> None:
    heads = found[None]
    pools = left_out_pools(heads)
    assert len(pools) == 4
    for at, part in enumerate(pools):
        others = [other for other in range(4) if other != at]
        rest = replace(
            heads,
            domains=tuple(heads.domains[other] for other in others),
            labels=[heads.labels[other] for other in others],
            candidates={
                head: replace(each, out_of_fold=[each.out_of_fold[other] for other in others])
                for head, each in heads.candidates.items()
            },
        )
        chosen = choose_pool(rest).members
        expected = oracle.pool([heads.candidates[head].out_of_fold[at] for head in chosen])
        np.testing.assert_allclose(part, expected, atol=1e-5)


def test_labels_of_a_left_out_domain_do_not_choose_its_pool(
    found: dict[str | None, Heads],
) -> None:
    heads = found[None]
    rng = np.random.default_rng(0)
    for at in range(4):
        labels = list(heads.labels)
        labels[at] = rng.integers(0, 3, len(labels[at]))
        scrambled = left_out_pools(replace(heads, labels=labels))
        np.testing.assert_array_equal(scrambled[at], left_out_pools(heads)[at])


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
    assert not np.allclose(limited[0], free[0])


def test_the_order_of_the_models_does_not_matter() -> None:
    features, y, domains = zoo(n=12, n_domains=3)
    one = predict_with_heads(ArraySource(features, y, domains))
    other = {name: features[name] for name in reversed(features)}
    two = predict_with_heads(ArraySource(other, y, domains))
    for test, heads in one.items():
        assert set(choose_pool(heads).members) == set(choose_pool(two[test]).members)


def folded(heads: list[LinearHead]) -> LinearHead:
    """Means of the biases, and of the weights side by side."""
    weights = np.concatenate([head.weights for head in heads], axis=1) / len(heads)
    return LinearHead(weights, np.mean([head.bias for head in heads], axis=0), 1.0)


@pytest.mark.parametrize("missing", [False, True])
def test_a_pool_of_linear_heads_is_a_linear_head(source: ArraySource, missing: bool) -> None:
    """Of the concatenated features; also if a class has no training samples."""
    parts, heads, each = [], [], []
    for model, kind, setting in (
        ("best", "logistic", 4),
        ("good", "ridge", 12),
        ("good", ALONE, 5),
    ):
        samples = Columns.all_of(source, [model]).samples(source, source.domains)
        known = samples.labels != 2 if missing else np.ones(len(samples.labels), bool)
        training = samples._replace(
            features=samples.features[known],
            labels=samples.labels[known],
            domains=samples.domains[known],
        )
        head = fit_kind(kind, training, 3, setting)
        parts.append(samples.features)
        heads.append(head)
        each.append(log_softmax(head.logits(samples.features), axis=1))
    found: Any = folded(heads).probabilities(np.concatenate(parts, axis=1))
    np.testing.assert_allclose(found, np.exp(oracle.pool(each)), atol=1e-9)
    assert (found[:, 2] == 0).all() == missing
