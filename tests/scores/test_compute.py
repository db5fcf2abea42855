"""Scores of the models of a source: what functions get, and what becomes of their values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.joint_space import joint_space, stored_space
from tests.oracles import zero_shot as oracle

import oodzoo
from oodzoo import scores
from oodzoo.core.errors import InputError
from oodzoo.extraction.importing import import_features
from oodzoo.extraction.source import ArraySource, StoreSource
from oodzoo.ranking.scores.compute import MissingHeadError, compute_score, compute_scores, is_own

Y = np.arange(12) % 3
DOMAINS = np.repeat(["a", "b", "c"], 4)


class HeadSource(ArraySource):
    """Arrays in which the model "head" has logits: twice the features."""

    def logits(self, model: str, domain: str) -> Any:
        (part,) = (features for features, _ in self.shards(model, domain))
        return 2 * part if model == "head" else None


@pytest.fixture
def source() -> HeadSource:
    rng = np.random.default_rng(7)
    features = {name: np.eye(3)[Y] + rng.normal(size=(12, 3)) for name in ("head", "bare")}
    return HeadSource(features, Y, DOMAINS)


def features_of(source: HeadSource, domains: Any) -> Any:
    return np.concatenate([f for d in domains for f, _ in source.shards("head", d)])


def test_features_labels_domains_and_outputs_are_passed(source: HeadSource) -> None:
    X, rows = features_of(source, "abc"), DOMAINS != "b"
    assert compute_score(source, scores.get("knn"), "head") == scores.knn(X, Y, DOMAINS)
    found = compute_score(source, scores.get("parc"), "head", ["a", "c"])
    assert found == scores.parc(X[rows], Y[rows])
    logits = 2 * X
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
    assert compute_scores(source, "nce", "abc", models=["head"]) == (totals, {})


def failing(error: Exception) -> Any:
    def broken(X: Any, y: Any) -> float:
        raise error

    return broken


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (failing(ZeroDivisionError("no samples")), "failed: ZeroDivisionError: no samples"),
        (failing(AssertionError()), "failed: AssertionError"),
        (failing(InputError("first\nsecond")), "failed: InputError: first second"),
        *(
            (lambda X, y, value=value: value, rf"must be a finite number, got {shown}")
            for value, shown in [
                (float("nan"), "nan"),
                (float("-inf"), "-inf"),
                (None, "None"),
                ("0.5", "'0.5'"),
                (1j, "1j"),
                ([0.5], r"\[0.5\]"),
                (np.zeros(3), r"an array of shape \(3,\)"),
                (np.zeros((1, 1)), r"an array of shape \(1, 1\)"),
                (np.float32("nan"), "nan"),
            ]
        ),
    ],
)
def test_a_score_that_fails_is_one_line(source: HeadSource, function: Any, says: str) -> None:
    with pytest.raises(InputError, match=f"^score 'odd' of model 'head' {says}$"):
        compute_score(source, scores.Score("odd", function), "head")


@pytest.mark.parametrize("value", [2, np.float32(2), np.int64(2), np.array(2.0)])
def test_numbers_of_other_types(source: HeadSource, value: Any) -> None:
    found = compute_score(source, scores.Score("two", lambda X, y: value), "head")
    assert (found, type(found)) == (2.0, float)


@pytest.mark.parametrize(("d", "expected"), [(11, "moments"), (12, "arrays"), (13, "arrays")])
def test_moments_where_there_are_more_samples_than_features(d: int, expected: str) -> None:
    called: list[Any] = []

    def from_moments(moments: Any, shards: Any) -> float:
        called.append("moments")
        assert list(moments) == ["a", "c"]
        features, labels = next(iter(shards("c")))
        assert (features.shape, labels.tolist()) == ((6, d), [1, 0] * 3)
        assert moments["c"].label_sum.tolist() == [3, 3]
        return 1.0

    def from_arrays(X: Any, y: Any) -> float:
        called.append("arrays")
        assert (type(X), X.shape, y.tolist()) == (np.ndarray, (12, d), [0, 1] * 3 + [1, 0] * 3)
        return 1.0

    y = np.array(["x", "z"] * 3 + ["y"] * 3 + ["z", "x"] * 3)
    domains = np.array(["a"] * 6 + ["b"] * 3 + ["c"] * 6)
    features = np.random.default_rng(7).normal(size=(15, d))
    source = ArraySource({"net": features}, y, domains)
    score = scores.Score("mine", from_arrays, from_moments=from_moments)
    assert compute_score(source, score, "net", ["a", "c"]) == 1.0
    assert called == [expected]


def test_functions_of_others_get_numpy_arrays_and_may_return_tensors(source: HeadSource) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    seen = []

    def mine(X: Any, y: Any) -> Any:
        seen.append(type(X))
        return torch.tensor(2.0, requires_grad=True)

    score = scores.Score.of_function(mine)
    assert compute_score(source, score, "head", device="cpu") == 2.0
    assert seen == [np.ndarray]
    assert is_own(scores.get("logme"))
    assert not is_own(score)


def test_moments_of_a_store_are_read_from_its_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = np.random.default_rng(0).normal(size=(90, 4))
    y, domains = np.arange(90) % 3, np.arange(90) // 30
    np.savez(tmp_path / "f.npz", labels=y, domains=domains, net=features)
    source = StoreSource(import_features([tmp_path / "f.npz"], tmp_path / "store"))
    first = compute_score(source, scores.get("logme"), "net")

    def read(*_: Any) -> Any:
        raise AssertionError("the features are read again")

    monkeypatch.setattr(StoreSource, "shards", read)
    assert compute_score(source, scores.get("logme"), "net") == first


# --- embeddings of the classes --------------------------------------------------------------------


def test_zero_shot_scores_of_a_store(tmp_path: Path) -> None:
    space = joint_space()
    source = StoreSource(stored_space(tmp_path, space))
    score, X, domains = scores.get("zero_shot"), space.features["clip"], space.domains
    codes = np.unique(space.y, return_inverse=True)[1]
    expected = oracle.accuracy(X, space.texts, codes, domains)
    assert compute_score(source, score, "clip") == pytest.approx(expected, rel=1e-12)
    here = domains == "d1"
    one = oracle.accuracy(X[here], space.texts, codes[here])
    assert compute_score(source, score, "clip", ["d1"]) == pytest.approx(one, rel=1e-12)
    with pytest.raises(MissingHeadError, match="needs embeddings of the classes by a text tower"):
        compute_score(source, score, "plain")
    ranking = oodzoo.rank(source, score="zero_shot")
    assert [row.model for row in ranking.rows] == ["clip"]
    assert "plain" in ranking.left_out
    seen: list[tuple[int, ...]] = []

    def nearest(X: Any, texts: Any, y: Any) -> float:
        seen.extend([X.shape, texts.shape, y.shape])
        return 1.0

    mine = scores.Score("nearest", nearest, needs="class_embeddings")
    assert compute_score(source, mine, "clip") == 1.0
    assert seen == [(len(codes), X.shape[1]), space.texts.shape, codes.shape]


def test_a_store_without_texts(tmp_path: Path) -> None:
    store = stored_space(tmp_path, joint_space(n=8, n_domains=2), texts=False)
    message = "the score 'zero_shot' cannot be computed for any model: .*rerun oodzoo extract"
    with pytest.raises(InputError, match=message):
        oodzoo.rank(store, score="zero_shot")
