"""Scores computed from moments, block by block, agree with those of arrays."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles import scores as oracle
from tests.scores.data import Problem, every_shape, few, problem, problems

from oodzoo import scores
from oodzoo.backend import Backend
from oodzoo.errors import InputError
from oodzoo.features.source import ArraySource, StoreSource
from oodzoo.moments import domain_moments
from oodzoo.scores.compute import compute_score

NAMES = ("gbc", "h_score", "lda", "logme", "nleep", "regularized_h_score", "sfda")
ON_ARRAYS = ("knn", "parc", "transrate")

every_score = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(params=["numpy", "torch"])
def device(request: pytest.FixtureRequest) -> str | None:
    if request.param == "numpy":
        return None
    pytest.importorskip("torch", reason="PyTorch is not installed")
    return "cpu"


def from_moments(name: str, p: Problem, device: str | None) -> float:
    source = ArraySource({"net": p.X}, p.y, p.domains)
    moments = {d: m.to(device) for d, m in domain_moments(source, "net", device).items()}
    compute = scores.get(name).from_moments
    assert compute is not None
    return compute(moments, lambda domain: source.shards("net", domain))


def from_arrays(name: str, p: Problem) -> float:
    score = scores.get(name)
    order = np.argsort(p.domains, kind="stable")
    arguments = [p.X[order], p.y[order], p.domains[order]]
    return score.function(*arguments[: 3 if score.uses_domains else 2])


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


def test_scores_with_a_form_from_moments() -> None:
    own = [name for name in scores.names() if scores.get(name).needs == "features"]
    assert {n for n in own if scores.get(n).from_moments} == set(NAMES)
    assert set(NAMES) | set(ON_ARRAYS) <= set(own)


@every_score
@given(
    p=problems,
    change=st.sampled_from(sorted(CHANGES)),
    device=st.sampled_from(["numpy", "torch"]),
)
@few
def test_agrees_with_arrays(name: str, p: Problem, change: str, device: str) -> None:
    if device == "torch":
        pytest.importorskip("torch", reason="PyTorch is not installed")
    if name == "sfda":  # where it hardly shrinks, rounding is all that an inverse has for n <= d
        p = p._replace(X=0.3 * p.X)
    if name == "lda" and change == "a huge constant feature":
        return  # the mean variance, which it shrinks to, is rounding error
    p = p._replace(X=CHANGES[change](p.X))
    found = from_moments(name, p, "cpu" if device == "torch" else None)
    # LogME of n = d features that fit any labels depends on the smallest of their eigenvalues
    rel = 1e-6 if len(p.X) > p.X.shape[1] else 1e-4
    assert found == pytest.approx(from_arrays(name, p), rel=rel, abs=1e-8)


@every_score
@pytest.mark.parametrize("offset", [1e7, -1e9])
def test_agrees_at_a_very_large_offset(name: str, offset: float, device: str | None) -> None:
    p = problem(300, 8, 3)
    p = p._replace(X=offset + np.round(p.X, 3))
    assert from_moments(name, p, device) == pytest.approx(from_arrays(name, p), rel=1e-5)


@every_shape
@pytest.mark.parametrize("name", ["h_score", "logme", "regularized_h_score"])
def test_agrees_with_the_oracle(
    name: str, n: int, d: int, n_classes: int, device: str | None
) -> None:
    p = problem(n, d, n_classes)
    expected = getattr(oracle, name)(p.X, p.y)
    assert from_moments(name, p, device) == pytest.approx(expected, rel=1e-6, abs=1e-8)


@every_score
def test_many_blocks(name: str, monkeypatch: pytest.MonkeyPatch, device: str | None) -> None:
    p = problem(300, 6, 3)
    expected = from_moments(name, p, device)
    monkeypatch.setattr("oodzoo.features.source.BLOCK_ROWS", 7)
    assert from_moments(name, p, device) == pytest.approx(expected, rel=1e-9)


@every_score
def test_a_class_of_one_domain_only(name: str, device: str | None) -> None:
    """It is left out with its domain."""
    p = problem(90, 4, 3)
    p = p._replace(y=np.where((p.domains == 0) & (p.y == 2), 3, p.y))
    source = ArraySource({"net": p.X}, p.y, p.domains)
    rest = Problem(*(column[p.domains != 0] for column in p))
    found = compute_score(source, scores.get(name), "net", ["1", "2"], device)
    assert found == pytest.approx(from_arrays(name, rest), rel=1e-9)


@pytest.mark.parametrize("name", [*NAMES, *ON_ARRAYS])
@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_number_types(name: str, kind: Any, device: str | None) -> None:
    p = problem(90, 4, 3)
    p = p._replace(X=p.X.astype(kind))
    source = ArraySource({"net": p.X}, p.y, p.domains)
    expected = from_arrays(name, p._replace(X=p.X.astype(np.float64)))
    found = compute_score(source, scores.get(name), "net", device=device)
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", [*NAMES, *ON_ARRAYS])
def test_features_are_held_at_most_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the number type of the source; from moments, not at all."""
    monkeypatch.setattr(Backend, "block_bytes", 2**16)
    monkeypatch.setattr("oodzoo.features.source.BLOCK_ROWS", 256)
    monkeypatch.setattr("oodzoo.moments._MIN_ROWS", 256)
    n, d = (3_000, 200) if name == "knn" else (12_000, 40)  # O(n²)
    X = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)
    y, domains = np.arange(n) % 20, np.arange(n) // (n // 3)
    if name == "nleep":  # the leading components are kept, which are few here
        X[:, 4:] *= 0.01
    score = scores.get(name)
    source = ArraySource({"net": X}, y, domains)
    compute_score(ArraySource({"net": X[::7]}, y[::7], domains[::7]), score, "net")  # imports
    tracemalloc.start()
    if name == "nleep":
        # the mixture is scikit-learn's
        monkeypatch.setattr("oodzoo.scores._nleep._score", lambda *_: 0.0)
    if name == "parc":
        score = scores.Score("parc", lambda X, y: scores.parc(X, y, max_samples=100))
    if name == "knn":
        score = scores.Score("knn", lambda X, y, d: scores.knn(X, y, d, k=3), uses_domains=True)
    compute_score(source, score, "net")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    labels = 6 * y.nbytes
    assert peak < labels + (1.5 if name in ON_ARRAYS else 0.6) * X.nbytes


def test_moments_of_a_store_are_read_from_its_cache(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from oodzoo.features.importing import import_features

    p = problem(90, 4, 3)
    np.savez(tmp_path / "f.npz", labels=p.y, domains=p.domains, net=p.X)
    source = StoreSource(import_features([tmp_path / "f.npz"], tmp_path / "store"))
    first = compute_score(source, scores.get("logme"), "net")

    def read(*_: Any) -> Any:
        raise AssertionError("the features are read again")

    monkeypatch.setattr(StoreSource, "shards", read)
    assert compute_score(source, scores.get("logme"), "net") == first


def test_one_domain() -> None:
    p = problem(60, 4, 3)
    source = ArraySource({"net": p.X}, p.y, p.domains)
    with pytest.raises(InputError, match="lda needs at least two domains, got 1"):
        compute_score(source, scores.get("lda"), "net", ["1"])


def test_one_class() -> None:
    p = problem(60, 4, 3)
    source = ArraySource({"net": p.X}, np.zeros(60, dtype=int), p.domains)
    with pytest.raises(InputError, match="all labels are of one class, 0"):
        compute_score(source, scores.get("logme"), "net")


def test_features_that_are_not_finite() -> None:
    p = problem(60, 4, 3)
    p.X[7, 2] = np.nan
    source = ArraySource({"net": p.X}, p.y, p.domains)
    with pytest.raises(
        InputError, match=r"^model 'net', domain '\d', shard 0: feature 2 of .* NaN"
    ):
        compute_score(source, scores.get("h_score"), "net")
