"""Rankings for numbers to predict and for several labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.maths.test_folds import simulate, skill_of, stacked
from tests.oracles import unseen as oracle

import oodzoo
from oodzoo.ranking.transfer import RIDGES
from oodzoo.tasks import Kind

KINDS: tuple[Kind, ...] = ("regression", "multilabel")


def models(kind: Kind, seed: int = 0, d: int = 6) -> tuple[dict[str, Any], Any, Any]:
    data = simulate(kind, d, (40, 40, 40), seed)
    X, Y = stacked(data)
    rng = np.random.default_rng(seed)
    fair = X + 1.5 * rng.normal(size=X.shape)
    return (
        {"good": X, "fair": fair, "noise": rng.normal(size=X.shape)},
        Y,
        np.repeat(list(data), 40),
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [6, 150])
def test_models_are_ranked_by_the_formula(kind: Kind, d: int) -> None:
    features, Y, domains = models(kind, d=d)
    ranking = oodzoo.rank(features, Y, domains, task=kind)
    assert [row.model for row in ranking] == ["good", "fair", "noise"]
    assert ranking.task == kind
    evidences, skills = [], []
    shifted = Y - Y.mean(axis=0) if kind == "regression" else Y
    for X in features.values():
        data = {k: (X[domains == k], Y[domains == k]) for k in "abc"}
        evidence = [oracle.highest_log_evidence(X, shifted[:, c]) for c in range(3)]
        evidences.append(float(np.mean(evidence)) / 120)
        tables = [
            [skill_of(data[e], data[k], kind, ridge) for e in data for k in data if e != k]
            for ridge in RIDGES
        ]
        skills.append(max(tables, key=sum))
    expected = dict(zip(features, oracle.combined(evidences, skills), strict=True))
    assert {row.model: row.score for row in ranking} == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_other_scores_documents_and_groups(kind: Kind) -> None:
    features, Y, domains = models(kind)
    for score in ("zood", "transfer", "discriminability", "stability", "logme"):
        ranking = oodzoo.rank(features, Y, domains, task=kind, score=score)
        assert score == "stability" or ranking.best == "good"
    value = oodzoo.scores.logme(features["good"], Y)
    assert ranking["good"].score == pytest.approx(value)
    first, second = {
        "regression": ("explained_variance", "absolute_error"),
        "multilabel": ("average_precision", "exact_match"),
    }[kind]
    ranking = oodzoo.rank(features, Y, domains, task=kind)
    document = ranking.to_dict()
    row = document["ranking"][0]
    low, high = row[f"{first}_interval"]
    assert low < row[f"expected_{first}"] == ranking[0].expected_accuracy < high <= 100
    assert {first, second} <= set(row["folds"][0])
    assert "accuracy" not in str(document)
    assert oodzoo.Ranking.from_dict(document) == ranking
    groups = [f"g{i % 40}" if i % 40 < 5 else None for i in range(120)]
    shared = oodzoo.rank(features, Y, domains, task=kind, groups=groups)
    assert shared[0].folds[0].accuracy != ranking[0].folds[0].accuracy
    seen: list[Any] = []

    def own(X: Any, y: Any) -> float:
        seen.append(y)
        return float(X.std())

    oodzoo.rank(features, Y, domains, task=kind, score=own)
    np.testing.assert_array_equal(seen[0], Y[np.argsort(domains, kind="stable")])


@pytest.mark.parametrize("value", [0.1, 1e6 + 0.1])
def test_an_output_that_varies_in_one_domain_only_is_skipped_there(value: float) -> None:
    """The mean of equal numbers differs from them by rounding, differently in each domain."""
    rng = np.random.default_rng(0)
    domains = np.repeat(["a", "b", "c"], [30, 37, 41])
    X = rng.normal(size=(108, 4))
    Y = np.stack([X[:, 0], np.where(domains == "a", X[:, 1], value)], axis=1)
    row = oodzoo.rank({"m": X}, Y, domains)[0]
    assert np.isfinite(row.score)
    first, *others = row.folds
    assert first.skipped == ("y1",)
    assert first.discriminability > -10
    assert all(fold.skipped == () for fold in others)
    with pytest.raises(oodzoo.InputError, match="do not vary in the domains other than 'a'; add"):
        oodzoo.rank({"m": X}, Y[:, 1], domains)
