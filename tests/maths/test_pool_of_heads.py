"""All heads of all models, and pools of them."""

from __future__ import annotations

import numpy as np
import pytest
from tests.maths.combinations import present, small
from tests.oracles import combination as oracle

from oodzoo.combining.heads import Heads, choose_pool, left_out_pools, predict_with_heads
from oodzoo.combining.pool import PoolChooser
from oodzoo.combining.predictions import (
    HeadPredictions,
)
from oodzoo.extraction.source import ArraySource


@pytest.fixture(scope="module")
def source() -> ArraySource:
    return small(n_domains=4)


@pytest.fixture(scope="module")
def found(source: ArraySource) -> dict[str | None, Heads]:
    return predict_with_heads(source)


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
