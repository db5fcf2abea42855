"""Everything that is decided about the combination of models on some training domains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.evaluation.data import zoo
from tests.maths.combinations import Costly, small
from tests.oracles import combination as oracle
from tests.oracles.contributions import contributions
from tests.oracles.outputs import best_setting
from tests.oracles.ridge import left_out_ridge, split_classes

from oodzoo.combining.decision import (
    Decision,
    decide,
)
from oodzoo.combining.heads import Heads, left_out_pools, predict_with_heads
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.source import ArraySource
from oodzoo.linear.heads.kinds import folds_within
from oodzoo.linear.heads.ridge import SETTINGS

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


# --- estimates ----------------------------------------------------------------------------------


def literal(
    source: ArraySource, columns: Columns, parts: list[Any] | None = None
) -> tuple[list[Any], list[Any], list[Any]]:
    """Predictions (settings, n, 3) of left-out domains and within the domains, and the labels.

    `parts` are the features that are used where each domain is left out, if these differ.
    """
    X, y, d = columns.samples(source, source.domains)
    within, _ = split_classes(X, y, folds_within("classification", y, d), SETTINGS, 3)
    if parts is None:
        together, _ = split_classes(X, y, d, SETTINGS, 3)
        left_out = [together[:, d == at] for at in range(3)]
    else:
        left_out = [left_out_ridge(part, y, d, {at}, SETTINGS, 3) for at, part in enumerate(parts)]
    return left_out, [within[:, d == at] for at in range(3)], [y[d == at] for at in range(3)]


def require_estimate(found: Any, paths: Any, at: int, labels: Any) -> None:
    """What a setting predicts right."""
    for mine, path, y in zip(found, paths, labels, strict=True):
        np.testing.assert_array_equal(mine, path[at].argmax(axis=1) == y)


def test_the_estimate_of_an_ensemble_is_of_heads_trained_without_the_samples(
    source: ArraySource, decision: Decision
) -> None:
    left_out, within, labels = literal(source, decision.ensemble)
    at = best_setting("classification", left_out, within, labels, 0.5)
    found = decision.estimates["ensemble"]
    require_estimate(found.contributions, left_out, at, labels)
    require_estimate(found.within, within, at, labels)


def test_the_estimate_of_a_selection_is_of_features_chosen_without_the_domain(
    source: ArraySource, decision: Decision
) -> None:
    """As many as are selected, of the features of all models in alphabetical order."""
    X, y, d = Columns.all_of(source, sorted(source.models)).samples(source, source.domains)
    number = len(decision.selection)
    whole = set(np.argsort(-contributions(X.astype(np.float64), y, d, 3)[0])[:number])
    parts, differ = [], False
    for at in range(3):
        rest = d != at
        total, _ = contributions(X[rest].astype(np.float64), y[rest], d[rest], 3)
        chosen = np.sort(np.argsort(-total, kind="stable")[:number])
        differ |= set(chosen) != whole
        parts.append(X[:, chosen])
    assert differ
    left_out, within, labels = literal(source, decision.selection, parts)
    at = best_setting("classification", left_out, within, labels, 0.5)
    found = decision.estimates["selection"]
    require_estimate(found.contributions, left_out, at, labels)
    assert found.within is None  # the labels of all folds selected the features


def test_the_estimate_of_a_pool_is_of_pools_chosen_without_the_domain(
    heads: Heads, decision: Decision
) -> None:
    pools, found = left_out_pools(heads), decision.estimates["pool"]
    for hits, outputs in zip((found.contributions, found.within), pools, strict=True):
        for mine, each, y in zip(hits or (), outputs or (), heads.labels, strict=True):
            np.testing.assert_array_equal(mine, each.argmax(axis=1) == y)


def test_the_estimate_of_a_single_model_is_of_the_best_in_the_other_domains() -> None:
    """Not always the best in all domains."""
    source = small(seed=5)
    heads = predict_with_heads(source)[None]
    found = decide(source, ORDER, heads, top_k=2).estimates["single"]
    chosen = []
    for at in range(3):
        others = [other for other in range(3) if other != at]
        likelihoods = {
            model: sum(
                oracle.likelihood(outputs[o], heads.labels[o])
                for o in others
                for outputs in (each.out_of_fold, each.within or [])
            )
            for model, each in heads.alone.items()
        }
        chosen.append(max(likelihoods, key=lambda model: likelihoods[model]))
        best = heads.alone[chosen[-1]]
        for hits, outputs in (
            (found.contributions, best.out_of_fold),
            (found.within or [], best.within or []),
        ):
            expected = outputs[at].argmax(axis=1) == heads.labels[at]
            np.testing.assert_array_equal(hits[at], expected)
    assert len(set(chosen)) > 1


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
