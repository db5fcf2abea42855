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
    assert compute_score(source, scores.get("knn"), "head") == scores.knn(X, Y, DOMAINS)
    assert compute_score(source, scores.get("parc"), "head") == scores.parc(X, Y)


def test_some_domains_only(source: HeadSource) -> None:
    X = features_of(source, "ac")
    rows = DOMAINS != "b"
    assert compute_score(source, scores.get("parc"), "head", ["a", "c"]) == scores.parc(X, Y[rows])


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
    assert compute_scores(source, "nce", "abc", models=["head"]) == (totals, {})


def test_a_failing_score_of_another_package(source: HeadSource) -> None:
    def broken(X: Any, y: Any) -> float:
        raise ZeroDivisionError("no samples")

    score = scores.Score("broken", broken)
    with pytest.raises(
        InputError, match="score 'broken' of model 'head' failed: ZeroDivisionError: no samples"
    ):
        compute_score(source, score, "head")


def test_an_error_without_a_message_or_of_many_lines(source: HeadSource) -> None:
    def silent(X: Any, y: Any) -> float:
        raise AssertionError

    def loud(X: Any, y: Any) -> float:
        raise InputError("first\nsecond")

    with pytest.raises(InputError, match=r"of model 'head' failed: AssertionError$"):
        compute_score(source, scores.Score.of_function(silent), "head")
    with pytest.raises(InputError, match=r"of model 'head' failed: InputError: first second$") as e:
        compute_score(source, scores.Score.of_function(loud), "head")
    assert isinstance(e.value.__cause__, InputError)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (None, "None"),
        ("0.5", "'0.5'"),
        (1j, "1j"),
        ([0.5], r"\[0.5\]"),
        (np.zeros(3), r"an array of shape \(3,\)"),
        (np.zeros((1, 1)), r"an array of shape \(1, 1\)"),
        (np.float32("nan"), "nan"),
    ],
)
def test_a_value_that_is_not_a_finite_number(source: HeadSource, value: Any, shown: str) -> None:
    score = scores.Score("odd", lambda X, y: value)
    with pytest.raises(
        InputError, match=f"^score 'odd' of model 'head' must be a finite number, got {shown}$"
    ):
        compute_score(source, score, "head")


@pytest.mark.parametrize("value", [2, np.float32(2), np.int64(2), np.array(2.0)])
def test_numbers_of_other_types(source: HeadSource, value: Any) -> None:
    found = compute_score(source, scores.Score("two", lambda X, y: value), "head")
    assert (found, type(found)) == (2.0, float)


def test_a_tensor_without_dimensions(source: HeadSource, torch: Any) -> None:
    score = scores.Score("tensor", lambda X, y: torch.tensor(2.0, requires_grad=True))
    assert compute_score(source, score, "head") == 2.0


@pytest.mark.parametrize(("d", "expected"), [(11, "moments"), (12, "arrays"), (13, "arrays")])
def test_moments_where_there_are_more_samples_than_features(
    rng: np.random.Generator, d: int, expected: str
) -> None:
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
    source = ArraySource({"net": rng.normal(size=(15, d))}, y, domains)
    score = scores.Score("mine", from_arrays, from_moments=from_moments)
    assert compute_score(source, score, "net", ["a", "c"]) == 1.0
    assert called == [expected]


def test_functions_of_others_get_numpy_arrays(source: HeadSource, torch: Any) -> None:
    seen = []
    score = scores.Score.of_function(lambda X, y: float(seen.append(type(X)) or 1))  # type: ignore[func-returns-value]
    assert compute_score(source, score, "head", device="cpu") == 1.0
    assert seen == [np.ndarray]


@pytest.mark.parametrize("name", ["knn", "parc", "transrate", "logme", "lda"])
def test_on_a_device(source: HeadSource, torch: Any, name: str) -> None:
    on_cpu, _ = compute_scores(source, name, "abc", device="cpu")
    expected, _ = compute_scores(source, scores.get(name), "abc")
    assert on_cpu == pytest.approx(expected, rel=1e-9)


def test_is_own() -> None:
    assert is_own(scores.get("logme"))
    assert not is_own(scores.Score("other", lambda X, y: 0.0))
