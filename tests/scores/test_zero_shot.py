from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.joint_space import joint_space, stored_space
from tests.oracles import zero_shot as oracle
from tests.scores.data import few

import oodzoo
from oodzoo import InputError, scores
from oodzoo.features.source import StoreSource
from oodzoo.scores.compute import MissingHeadError, compute_score, compute_scores


def _case(seed: int, n: int = 30, d: int = 5, n_classes: int = 4) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    X, texts = rng.normal(size=(n, d)), rng.normal(size=(n_classes, d))
    texts /= np.linalg.norm(texts, axis=1, keepdims=True)
    return X, texts, rng.integers(n_classes, size=n), rng.integers(3, size=n)


@few
@given(st.integers(0, 10**6))
def test_agrees_with_the_oracle(seed: int) -> None:
    X, texts, y, domains = _case(seed)
    found = scores.zero_shot(X, texts, y, domains)
    assert found == pytest.approx(oracle.accuracy(X, texts, y, domains), rel=1e-12)
    assert scores.zero_shot(X, texts, y) == pytest.approx(oracle.accuracy(X, texts, y), rel=1e-12)


@few
@given(st.integers(0, 10**6))
def test_what_must_not_matter(seed: int) -> None:
    X, texts, y, domains = _case(seed)
    rng = np.random.default_rng(seed)
    expected = scores.zero_shot(X, texts, y, domains)
    longer = X * 10 ** rng.uniform(-3, 3, (len(X), 1))
    assert scores.zero_shot(longer, 7 * texts, y, domains) == expected
    order, classes = rng.permutation(len(y)), rng.permutation(len(texts))
    new = np.argsort(classes)[y]
    shuffled = scores.zero_shot(X[order], texts[classes], new[order], domains[order])
    assert shuffled == pytest.approx(expected, rel=1e-12)


def test_domains_weigh_alike() -> None:
    X, texts = np.eye(2)[[0, 0, 0, 1]], np.eye(2)
    assert scores.zero_shot(X, texts, [0, 0, 0, 0 + 1], list("aaab")) == 1
    assert scores.zero_shot(X, texts, [0, 0, 1, 0], list("aaab")) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("texts", "y", "message"),
    [
        (np.eye(2), [0, 1, 2], "y must be rows of class_embeddings, integers from 0 to 1, got 2"),
        (np.eye(2), [0, 1, -1], "got -1"),
        (np.eye(2), ["a", "b", "a"], "got 'a'"),
        (np.eye(3), [0, 1, 0], r"class_embeddings must have shape \(C, 2\), .* got \(3, 3\)"),
        (np.ones(2), [0, 1, 0], r"got \(2,\)"),
    ],
)
def test_bad_input(texts: Any, y: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        scores.zero_shot(np.ones((3, 2)), texts, y)


def test_on_a_device() -> None:
    torch: Any = pytest.importorskip("torch", reason="PyTorch is an extra")
    X, texts, y, domains = _case(0)
    found = scores.zero_shot(torch.tensor(X), torch.tensor(texts), y, domains)
    assert found == scores.zero_shot(X, texts, y, domains)


def test_the_models_of_a_store(tmp_path: Any) -> None:
    space = joint_space()
    source = StoreSource(stored_space(tmp_path, space))
    score, domains = scores.get("zero_shot"), space.domains
    codes = np.unique(space.y, return_inverse=True)[1]
    expected = oracle.accuracy(space.features["clip"], space.texts, codes, domains)
    assert compute_score(source, score, "clip") == pytest.approx(expected, rel=1e-12)
    one = oracle.accuracy(
        space.features["clip"][domains == "d1"], space.texts, codes[domains == "d1"]
    )
    assert compute_score(source, score, "clip", ["d1"]) == pytest.approx(one, rel=1e-12)
    with pytest.raises(MissingHeadError, match="needs embeddings of the classes by a text tower"):
        compute_score(source, score, "plain")
    totals, left_out = compute_scores(source, "zero_shot", source.domains)
    assert (list(totals), list(left_out)) == (["clip"], ["plain"])
    ranking = oodzoo.rank(source, score="zero_shot")
    assert [row.model for row in ranking.rows] == ["clip"]
    assert "plain" in ranking.left_out


def test_a_store_without_texts(tmp_path: Any) -> None:
    store = stored_space(tmp_path, joint_space(n=8, n_domains=2), texts=False)
    message = "the score 'zero_shot' cannot be computed for any model: .*rerun oodzoo extract"
    with pytest.raises(InputError, match=message):
        oodzoo.rank(store, score="zero_shot")


def test_a_score_of_another_package_gets_the_texts_too(tmp_path: Any) -> None:
    space = joint_space(n=8, n_domains=2)
    seen: list[tuple[int, ...]] = []

    def nearest(X: Any, texts: Any, y: Any) -> float:
        seen.extend([X.shape, texts.shape, y.shape])
        return 1.0

    source = StoreSource(stored_space(tmp_path, space))
    score = scores.Score("nearest", nearest, needs="class_embeddings")
    assert compute_score(source, score, "clip") == 1.0
    assert seen == [(16, 32), (4, 32), (16,)]
