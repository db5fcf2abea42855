"""What would be recommended with less time per image."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from tests.combination.data import Costly
from tests.evaluation.data import zoo

import oodzoo
from oodzoo.combining.decision import decide
from oodzoo.combining.evaluation import Evaluation
from oodzoo.combining.evaluation.judge import (
    Judge,
    Limited,
    Rankings,
    budgets_of,
    limited_final,
    limited_fold,
)
from oodzoo.combining.evaluation.settings import Settings, resolve_trials
from oodzoo.combining.heads import predict_with_heads
from oodzoo.extraction.source import ArraySource
from oodzoo.ranking.constraints import Limits
from oodzoo.ranking.ranker import orders_for_test_domains

SAME = dict.fromkeys(["poor", "best", "fair", "good"], 1.0)


def costly(milliseconds: Mapping[str, float | None], *, scrambled: str = "") -> Costly:
    features, y, domains = zoo(n=18)
    if scrambled:
        mine = domains == scrambled
        y[mine] = np.random.default_rng(0).permutation(y[mine])
    return Costly(features, y, domains, milliseconds)


def settings() -> Settings:
    return Settings(
        top_k=[2],
        protocol="fast",
        score="unseen",
        trials=resolve_trials("fast"),
        draws=1,
        steps=1,
        search_space="default",
        selection="leave-one-domain-out",
        seed=0,
        peers=None,
        with_target=False,
        max_models=None,
        max_ms=None,
    )


def judge_of(source: ArraySource) -> Judge:
    rankings = Rankings.of(source, settings(), None)
    return Judge(source, settings(), predict_with_heads(source), rankings, None)


def within(source: ArraySource, max_ms: float) -> Evaluation:
    return oodzoo.evaluate(source, top_k=2, baselines=False, max_ms=max_ms)


@pytest.mark.parametrize("max_ms", [1.0, 2.0])
def test_it_is_what_an_evaluation_within_the_limit_finds(max_ms: float) -> None:
    source = costly(SAME)
    expected = within(source, max_ms)
    judge = judge_of(source)
    for test in source.domains:
        found = judge.limited(test, judge.fold(test), max_ms)
        assert found.choice == expected.recommended.choices[test]
        assert found.metric == pytest.approx(expected.recommended.domains[test])
        assert found.models == expected.recommended_row.cells[test].models
    final = judge.limited_final(judge.final(), max_ms)
    assert final == Limited(expected.recommended.choice, expected.recommended.models)


def test_concatenated_features_are_candidates_within_the_limit() -> None:
    source = costly(SAME)
    order, heads = ["best", "good", "fair", "poor"], predict_with_heads(source)
    final = decide(source, order, heads[None], top_k=2)
    for max_ms in (1.5, 2.5, 9.0):
        found = limited_final(source, order, heads[None], Limits(None, max_ms), final)
        assert (
            found.choice
            == decide(source, order, heads[None], top_k=2, limits=Limits(None, max_ms)).recommended
        )
        assert len(found.models) <= max_ms


def test_the_labels_of_the_test_domain_do_not_matter() -> None:
    def chosen(source: ArraySource) -> tuple[str, tuple[str, ...]]:
        judge = judge_of(source)
        heads = predict_with_heads(source)["d1"]
        order = orders_for_test_domains(source)["d1"]
        limits, fold = Limits(None, 2.0), judge.fold("d1")
        found = limited_fold(source, "d1", order, heads, limits, fold)
        return found.choice, found.models

    assert chosen(costly(SAME)) == chosen(costly(SAME, scrambled="d1"))


def test_half_and_a_tenth_of_the_time() -> None:
    times: dict[str, float | None] = {"poor": 1.0, "best": 8.0, "fair": 2.0, "good": 34.5}
    assert budgets_of(costly(times), ["best", "good"]) == [21.0, 4.2]
    assert budgets_of(costly(times), ["best", "fair"]) == [5.0, 1.0]
    assert budgets_of(costly(times), ["fair"]) == [1.0]  # nothing is faster than 1 ms
    assert budgets_of(costly(times | {"poor": None}), ["best"]) == []
    assert budgets_of(ArraySource(*zoo(n=6)), ["best"]) == []


def test_rows_beyond_the_limit_are_named() -> None:
    result = within(costly(SAME), 1.0)
    assert result.beyond_limits == ("ensemble", "selection")
    assert result.to_dict()["beyond_limits"] == ["ensemble", "selection"]
    expected = "Ensemble and Selection exceed --max-ms 1: shown for comparison"
    assert any(line.startswith(expected) for line in result.findings())
    free = oodzoo.evaluate(costly(SAME), top_k=2, baselines=False)
    assert free.beyond_limits == ()
