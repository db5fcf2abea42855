from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oodzoo import scores
from oodzoo.errors import InputError
from oodzoo.features.source import ArraySource
from oodzoo.scores.compute import MissingHeadError, compute_score, compute_scores, is_own

Y = np.arange(12) % 3
DOMAINS = np.repeat(["a", "b", "c"], 4)


class HeadSource(ArraySource):
    """Arrays in which the model "head" has logits: twice the features."""

    def logits(self, model: str, domain: str) -> Any:
        (part,) = (features for features, _ in self.shards(model, domain))
        return 2 * part if model == "head" else None


@pytest.fixture
def source(rng: np.random.Generator) -> HeadSource:
    features = {name: np.eye(3)[Y] + rng.normal(size=(12, 3)) for name in ("head", "bare")}
    return HeadSource(features, Y, DOMAINS)


def features_of(source: HeadSource, domains: Any) -> Any:
    return np.concatenate([f for d in domains for f, _ in source.shards("head", d)])


def test_features_labels_and_domains_are_passed(source: HeadSource) -> None:
    X = features_of(source, "abc")
    assert compute_score(source, scores.get("logme"), "head") == scores.logme(X, Y)
    assert compute_score(source, scores.get("lda"), "head") == scores.lda(X, Y, DOMAINS)


def test_some_domains_only(source: HeadSource) -> None:
    X = features_of(source, "ac")
    rows = DOMAINS != "b"
    assert compute_score(source, scores.get("logme"), "head", ["a", "c"]) == scores.logme(
        X, Y[rows]
    )


def test_outputs_of_the_head_are_passed(source: HeadSource) -> None:
    logits = 2 * features_of(source, "abc")
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    found = compute_score(source, scores.get("leep"), "head")
    assert found == pytest.approx(scores.leep(probabilities, Y))
    assert compute_score(source, scores.get("nce"), "head") == scores.nce(logits.argmax(1), Y)


def test_models_without_a_head_are_skipped_with_a_reason(source: HeadSource) -> None:
    with pytest.raises(MissingHeadError, match="nce needs a classifier head"):
        compute_score(source, scores.get("nce"), "bare")
    totals, skipped = compute_scores(source, "nce", "abc")
    assert list(totals) == ["head"]
    assert skipped == {"bare": "nce needs a classifier head, and the model has none"}


def test_a_failing_score_of_another_package(source: HeadSource) -> None:
    def broken(X: Any, y: Any) -> float:
        raise ZeroDivisionError("no samples")

    score = scores.Score("broken", broken)
    with pytest.raises(
        InputError, match="score 'broken' of model 'head' failed: ZeroDivisionError: no samples"
    ):
        compute_score(source, score, "head")


def test_a_score_that_is_not_finite(source: HeadSource) -> None:
    score = scores.Score("empty", lambda X, y: float("nan"))
    with pytest.raises(
        InputError, match="'empty' of model 'head' must be a finite number, got nan"
    ):
        compute_score(source, score, "head")


def test_is_own() -> None:
    assert is_own(scores.get("logme"))
    assert not is_own(scores.Score("other", lambda X, y: 0.0))
