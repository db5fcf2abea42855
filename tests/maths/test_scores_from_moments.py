"""Scores computed from moments, block by block, and the statistics behind scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.maths.score_problems import SHAPES, Problem, direct, few, problem, problems
from tests.oracles import scores as oracle

from oodzoo import InputError, scores
from oodzoo.extraction.source import ArraySource
from oodzoo.linear.moments import domain_moments
from oodzoo.ranking.scores.compute import compute_score
from oodzoo.ranking.scores.inputs import as_classes, generator, stratified_folds, stratified_order

NAMES = [name for name in scores.names() if scores.get(name).from_moments is not None]
every_score = pytest.mark.parametrize("name", NAMES)


def from_moments(name: str, p: Problem, device: str | None) -> float:
    source = ArraySource({"net": p.X}, p.y, p.domains)
    moments = {d: m.to(device) for d, m in domain_moments(source, "net", device).items()}
    compute = scores.get(name).from_moments
    assert compute is not None
    return compute(moments, lambda domain: source.shards("net", domain))


CHANGES: dict[str, Callable[[Any], Any]] = {
    "none": lambda X: X,
    "a feature that is zero": lambda X: np.insert(X, 1, 0.0, axis=1),
    "a constant feature": lambda X: np.insert(X, 1, 0.1, axis=1),
    "a large constant feature": lambda X: np.insert(X, 1, -1e6, axis=1),
    "a huge constant feature": lambda X: np.insert(X, 1, 1e30, axis=1),
    "a repeated feature": lambda X: np.insert(X, 1, X[:, 0], axis=1),
    "an offset": lambda X: X + 20,
    "a large offset": lambda X: X + 1e4,
    "a large offset of one feature": lambda X: (
        X * np.where(np.arange(X.shape[1]), 1, 1e-5) + (np.arange(X.shape[1]) == 0)
    ),
    "large features": lambda X: 1e12 * X,
    "only constant features": lambda X: np.full_like(X, 0.1),
    "only zeros": np.zeros_like,
}


@every_score
@given(p=problems, change=st.sampled_from(sorted(CHANGES)), torch=st.booleans())
@few
def test_agrees_with_arrays(name: str, p: Problem, change: str, torch: bool) -> None:
    if torch:
        pytest.importorskip("torch", reason="PyTorch is not installed")
    if name == "sfda":  # where it hardly shrinks, rounding is all that an inverse has for n <= d
        p = p._replace(X=0.3 * p.X)
    if name == "lda" and change == "a huge constant feature":
        return  # the mean variance, which it shrinks to, is rounding error
    p = p._replace(X=CHANGES[change](p.X))
    # LogME of n = d features that fit any labels depends on the smallest of their eigenvalues
    rel = 1e-6 if len(p.X) > p.X.shape[1] else 1e-4
    found = from_moments(name, p, "cpu" if torch else None)
    assert found == pytest.approx(direct(name, p), rel=rel, abs=1e-8)


@every_score
def test_offsets_blocks_and_classes(
    name: str, device: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for offset in (1e7, -1e9):
        p = problem(300, 8, 3)
        p = p._replace(X=offset + np.round(p.X, 3))
        assert from_moments(name, p, device) == pytest.approx(direct(name, p), rel=1e-5)
    if name in ("h_score", "logme", "regularized_h_score"):
        for shape in SHAPES:
            p = problem(*shape)
            expected = getattr(oracle, name)(p.X, p.y)
            assert from_moments(name, p, device) == pytest.approx(expected, rel=1e-6, abs=1e-8)
    p = problem(90, 4, 3)  # a class of one domain only is left out with its domain
    p = p._replace(y=np.where((p.domains == 0) & (p.y == 2), 3, p.y))
    rest = Problem(*(column[p.domains != 0] for column in p))
    source = ArraySource({"net": p.X}, p.y, p.domains)
    found = compute_score(source, scores.get(name), "net", ["1", "2"], device)
    assert found == pytest.approx(direct(name, rest), rel=1e-9)
    expected = from_moments(name, problem(300, 6, 3), device)
    monkeypatch.setattr("oodzoo.extraction.source.BLOCK_ROWS", 7)
    assert from_moments(name, problem(300, 6, 3), device) == pytest.approx(expected, rel=1e-9)


def test_what_cannot_be_computed() -> None:
    p = problem(60, 4, 3)
    source = ArraySource({"net": p.X}, p.y, p.domains)
    with pytest.raises(InputError, match="lda needs at least two domains, got 1"):
        compute_score(source, scores.get("lda"), "net", ["1"])
    one_class = ArraySource({"net": p.X}, np.zeros(60, dtype=int), p.domains)
    with pytest.raises(InputError, match="all labels are of one class, 0"):
        compute_score(one_class, scores.get("logme"), "net")
    p.X[7, 2] = np.nan
    source = ArraySource({"net": p.X}, p.y, p.domains)
    said = r"^model 'net', domain '\d', shard 0: feature 2 of .* NaN"
    with pytest.raises(InputError, match=said):
        compute_score(source, scores.get("h_score"), "net")


# --- statistics -----------------------------------------------------------------------------------


def test_stratified_samples_and_folds() -> None:
    y, _ = as_classes(np.repeat(["a", "b", "c"], [600, 300, 100]), "y")
    order = stratified_order(y, generator(0))
    assert sorted(order) == list(range(1000))
    for size in (50, 200, 500):  # every prefix
        counts = np.bincount(y[order[:size]])
        assert counts == pytest.approx(size * np.array([0.6, 0.3, 0.1]), abs=2)
    y, _ = as_classes(np.repeat([0, 1, 2], [103, 51, 9]), "y")
    folds = stratified_folds(y, 5, generator(0))
    for c, size in enumerate((103, 51, 9)):
        assert np.bincount(folds[y == c], minlength=5) == pytest.approx(size / 5, abs=1)
