"""Everything that is decided about the combination of models on some training domains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.combination.data import Costly, small
from tests.evaluation.data import zoo
from tests.oracles import combination as oracle
from tests.oracles.contributions import contributions
from tests.oracles.paths import left_out_path

from oodzoo.combination.decision import Decision, decide, require_choice
from oodzoo.combination.heads import Heads, choose_pool, left_out_pools, predict_with_heads
from oodzoo.combination.pool import Limits
from oodzoo.combination.verdict import CHOICES, recommend
from oodzoo.errors import InputError
from oodzoo.features.columns import Columns
from oodzoo.features.source import ArraySource
from oodzoo.heads.paths import C_GRID
from oodzoo.selection.select import select_features

ORDER = ["good", "best", "fair", "poor"]
TIMES = {"poor": 1.0, "best": 8.0, "fair": 2.0, "good": 4.0}


@pytest.fixture(scope="module")
def source() -> ArraySource:
    return small()


@pytest.fixture(scope="module")
def heads(source: ArraySource) -> Heads:
    return predict_with_heads(source)[None]


@pytest.fixture(scope="module")
def decision(source: ArraySource, heads: Heads) -> Decision:
    return decide(source, ORDER, heads, top_k=2)


def costly(milliseconds: Any, parameters: Any = None) -> tuple[Costly, Heads]:
    source = Costly(*zoo(n=18, n_domains=3), milliseconds, parameters)
    return source, predict_with_heads(source)[None]


def test_what_is_decided(source: ArraySource, heads: Heads, decision: Decision) -> None:
    assert decision.best == "good"
    assert decision.pool.members == choose_pool(heads).members
    assert decision.ensemble.models == ("good", "best")
    assert len(decision.ensemble) == 12
    expected = select_features(source).columns
    assert decision.selection.models == expected.models
    for model, columns in expected.by_model.items():
        np.testing.assert_array_equal(decision.selection.by_model[model], columns)
    assert tuple(decision.estimates) == CHOICES
    assert decision.recommended == recommend(decision.estimates)
    assert decision.models("single") == ("good",)
    assert decision.models("pool") == decision.pool.models
    assert decision.models("ensemble") == ("good", "best")
    assert decision.models("selection") == decision.selection.models


# --- estimates ----------------------------------------------------------------------------------


def literal_accuracy(paths: list[Any], labels: list[Any]) -> float:
    """With the setting that the rule for heads used alone chooses."""
    at = oracle.most_accurate(paths, labels)
    return 100 * float(
        np.mean([np.mean(p[at].argmax(axis=1) == y) for p, y in zip(paths, labels, strict=True)])
    )


def test_the_estimate_of_an_ensemble_is_of_heads_trained_without_the_domain(
    source: ArraySource, decision: Decision
) -> None:
    X, y, d = decision.ensemble.samples(source, source.domains)
    paths = [left_out_path(X, y, d, {at}, C_GRID, 3) for at in range(3)]
    labels = [y[d == at] for at in range(3)]
    assert decision.estimates["ensemble"].accuracy == pytest.approx(literal_accuracy(paths, labels))


def test_the_estimate_of_a_selection_is_of_features_chosen_without_the_domain(
    source: ArraySource, decision: Decision
) -> None:
    """As many as are selected, of the features of all models in alphabetical order."""
    X, y, d = Columns.all_of(source, sorted(source.models)).samples(source, source.domains)
    number = len(decision.selection)
    whole = set(np.argsort(-contributions(X.astype(np.float64), y, d, 3)[0])[:number])
    paths, differ = [], False
    for at in range(3):
        rest = d != at
        total, _ = contributions(X[rest].astype(np.float64), y[rest], d[rest], 3)
        chosen = np.sort(np.argsort(-total, kind="stable")[:number])
        differ |= set(chosen) != whole
        paths.append(left_out_path(X[:, chosen], y, d, {at}, C_GRID, 3))
    labels = [y[d == at] for at in range(3)]
    assert differ
    assert decision.estimates["selection"].accuracy == pytest.approx(
        literal_accuracy(paths, labels)
    )


def test_the_estimate_of_a_pool_is_of_pools_chosen_without_the_domain(
    heads: Heads, decision: Decision
) -> None:
    found = [
        p.argmax(axis=1) == y for p, y in zip(left_out_pools(heads), heads.labels, strict=True)
    ]
    np.testing.assert_array_equal(
        np.stack(decision.estimates["pool"].contributions), np.stack(found)
    )


def test_the_estimate_of_a_single_model_is_of_the_best_in_the_other_domains(
    heads: Heads, decision: Decision
) -> None:
    for at, correct in enumerate(decision.estimates["single"].contributions):
        others = [other for other in range(3) if other != at]
        likelihoods = {
            model: sum(oracle.likelihood(each.out_of_fold[o], heads.labels[o]) for o in others)
            for model, each in heads.alone.items()
        }
        best = max(likelihoods, key=lambda model: likelihoods[model])
        expected = heads.alone[best].out_of_fold[at].argmax(axis=1) == heads.labels[at]
        np.testing.assert_array_equal(correct, expected)


# --- cost ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("milliseconds", "parameters", "of_ensemble"),
    [
        (TIMES, None, 12.0),
        (TIMES, dict.fromkeys(TIMES, 7), 12.0),
        (TIMES | {"poor": None}, dict.fromkeys(TIMES, 7), 14.0),
        (TIMES | {"poor": None}, {"best": 7, "good": 7, "fair": 7}, 2.0),
    ],
)
def test_cost_is_time_or_size_or_the_number_of_models(
    milliseconds: Any, parameters: Any, of_ensemble: float
) -> None:
    source, heads = costly(milliseconds, parameters)
    found = decide(source, ORDER, heads, top_k=2).estimates
    assert found["ensemble"].cost == of_ensemble
    assert found["single"].cost == of_ensemble / {12: 3, 14: 2, 2: 2}[int(of_ensemble)]


# --- limits -------------------------------------------------------------------------------------


def test_a_limit_of_models_excludes_the_ensemble_and_the_selection(
    source: ArraySource, heads: Heads
) -> None:
    one = decide(source, ORDER, heads, top_k=2, limits=Limits(max_models=1))
    assert set(one.estimates) == {"single", "pool"}
    assert len(one.pool.models) == 1
    assert one.recommended in one.estimates
    assert one.ensemble.models == ("good", "best")  # still a row of an evaluation
    two = decide(source, ORDER, heads, top_k=2, limits=Limits(max_models=2))
    assert "ensemble" in two.estimates
    assert ("selection" in two.estimates) == (len(two.selection.models) <= 2)


def test_a_limit_of_time() -> None:
    source, heads = costly(TIMES)
    found = decide(source, ORDER, heads, top_k=2, limits=Limits(max_ms=3.0))
    assert found.best == "fair"  # the first of the ranking that is fast enough
    assert set(found.estimates) == {"single", "pool"}
    assert set(found.pool.models) <= {"fair", "poor"}
    allowed = {"fair": heads.alone["fair"], "poor": heads.alone["poor"]}
    for at, correct in enumerate(found.estimates["single"].contributions):
        assert any(
            np.array_equal(correct, each.out_of_fold[at].argmax(axis=1) == heads.labels[at])
            for each in allowed.values()
        )
    with pytest.raises(InputError, match=r"none of the 4 models .* \(the fastest takes 1 ms\)"):
        decide(source, ORDER, heads, top_k=2, limits=Limits(max_ms=0.5))


def test_of_two_domains_nothing_is_estimated() -> None:
    source = small(n_domains=2)
    heads = predict_with_heads(source)[None]
    found = decide(source, ORDER, heads, top_k=2)
    assert found.estimates == {}
    assert found.recommended == "pool"
    assert found.pool.members == choose_pool(heads).members
    assert len(found.selection)


def test_a_pool_is_recommended_without_a_comparison(source: ArraySource, heads: Heads) -> None:
    found = decide(source, ORDER, heads, top_k=2, compare=False)
    assert (found.recommended, found.estimates) == ("pool", {})
    assert found.pool.members == choose_pool(heads).members


def test_a_class_that_only_one_domain_has() -> None:
    features, y, domains = zoo(n=18, n_domains=3)
    y[np.flatnonzero(domains == "d1")[:4]] = 3
    source = ArraySource(features, y, domains)
    found = decide(source, ORDER, predict_with_heads(source)[None], top_k=2)
    for each in found.estimates.values():
        assert not each.contributions[1][:4].any()
        assert each.contributions[0].mean() > 0.5


@pytest.mark.parametrize("choice", ["auto", *CHOICES])
def test_choices(choice: str) -> None:
    require_choice(choice)


@pytest.mark.parametrize("choice", ["", "best", "Pool"])
def test_unknown_choices(choice: str) -> None:
    with pytest.raises(InputError) as raised:
        require_choice(choice)
    assert str(raised.value) == (
        f"the choice must be one of auto, single, pool, ensemble, selection, got {choice!r}"
    )
