"""Scores computed from moments, block by block, and the statistics behind scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal
from tests.maths.score_problems import SHAPES, Problem, direct, few, problem, problems
from tests.oracles import scores as oracle

from oodzoo import InputError, scores
from oodzoo.core.backend import backend
from oodzoo.extraction.source import ArraySource
from oodzoo.linear.moments import domain_moments
from oodzoo.ranking.scores.compute import compute_score
from oodzoo.ranking.scores.inputs import as_classes, generator, stratified_folds, stratified_order
from oodzoo.ranking.scores.statistics import (
    Discriminant,
    log_softmax,
    principal_components,
    shrink,
    spectrum,
    standardise,
)
from oodzoo.ranking.scores.stream import LARGEST_OFFSET, Stream

NAMES = [name for name in scores.names() if scores.get(name).from_moments is not None]
NUMPY = backend()
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


# --- features minus their mean --------------------------------------------------------------------


def stream_of(X: Any, y: Any, domains: Any) -> tuple[Stream, list[str]]:
    """A stream, and the domains of which shards were read to make it."""
    source = ArraySource({"net": X}, y, domains)
    read: list[str] = []

    def shards(domain: str) -> Any:
        read.append(domain)
        return source.shards("net", domain)

    stream = Stream.of(domain_moments(source, "net"), shards)
    return stream, list(read)


@pytest.mark.parametrize(("offset", "reads"), [(0.0, 0), (20.0, 0), (1e3, 4), (1e7, 4)])
def test_moments_about_the_mean(offset: float, reads: int) -> None:
    p = problem(80, 5, 3)
    X = (p.X - p.X.mean(axis=0)) / p.X.std(axis=0) + offset
    stream, read = stream_of(X, p.y, p.domains)
    assert len(read) == reads  # the first block, for constant features, and all domains
    Z = X.astype(np.longdouble) - X.astype(np.longdouble).mean(axis=0)
    gram, products = (Z.T @ each for each in (Z, np.eye(3)[p.y]))
    np.testing.assert_allclose(stream.centred.gram, gram.astype(float), rtol=0, atol=1e-10)
    np.testing.assert_allclose(stream.centred.products, products.astype(float), rtol=0, atol=1e-10)
    order = np.argsort(p.domains, kind="stable")
    parts = list(stream.centred_blocks())
    blocks = np.concatenate([block for block, _ in parts])
    np.testing.assert_allclose(blocks, Z[order].astype(float), atol=1e-8)
    assert np.array_equal(np.concatenate([labels for _, labels in parts]), p.y[order])


def test_constant_features_and_rounding_of_the_gram_matrix() -> None:
    p = problem(77, 3, 3)
    for constant in (0.1, 1e6, -1e40):
        stream, _ = stream_of(np.insert(p.X, 1, constant, axis=1), p.y, p.domains)
        assert (stream.centred.gram[1] == 0).all()
        assert all((X[:, 1] == 0).all() for domain in "012" for X, _ in stream.blocks(domain))
    p = problem(200, 6, 3)
    for offset in (0.0, 0.9 * LARGEST_OFFSET):
        X = (p.X - p.X.mean(axis=0)) / p.X.std(axis=0) + offset
        stream, read = stream_of(X, p.y, p.domains)
        assert read == []
        Z = X.astype(np.longdouble) - X.astype(np.longdouble).mean(axis=0)
        error = np.abs(stream.centred.gram - (Z.T @ Z)).max() / len(X)
        assert error < stream.rounding < (1 + offset**2) * 1e-13


# --- statistics -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d", "rank"), [(30, 8, 8), (8, 30, 8), (20, 20, 4), (30, 8, 3)])
def test_spectrum_and_principal_components(n: int, d: int, rank: int) -> None:
    rng = np.random.default_rng(7)
    X = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, d))
    Y = rng.normal(size=(n, 2))
    U, singular, _ = np.linalg.svd(X, full_matrices=False)
    eigenvalues, projected = spectrum(NUMPY, X, Y)
    assert len(eigenvalues) == rank
    np.testing.assert_allclose(eigenvalues[::-1], singular[:rank] ** 2, rtol=1e-9)
    np.testing.assert_allclose(projected[::-1] ** 2, (U[:, :rank].T @ Y) ** 2, atol=1e-9)
    X = X - X.mean(axis=0)
    variances, coordinates = principal_components(NUMPY, X)
    assert (np.diff(variances) <= 0).all()
    np.testing.assert_allclose((coordinates**2).mean(axis=0), variances, rtol=1e-9)
    np.testing.assert_allclose(coordinates @ coordinates.T, X @ X.T, atol=1e-9)
    eigenvalues, projected = spectrum(NUMPY, np.zeros((5, 3)), np.ones((5, 1)))
    assert (eigenvalues.shape, projected.shape) == ((0,), (0, 1))


def test_standardised_features() -> None:
    rng = np.random.default_rng(7)
    rounding = 0.1 * (1 + np.finfo(float).eps * (np.arange(50) % 2))
    found = standardise(NUMPY, np.column_stack([rng.normal(5, 3, size=50), rounding]))
    np.testing.assert_allclose(found.std(axis=0), [1, 0])
    assert not found[:, 1].any()


def test_gaussian_classes() -> None:
    rng = np.random.default_rng(7)
    S = np.cov(rng.normal(size=(3, 20)))
    expected = 0.7 * S + 0.3 * np.trace(S) / 3 * np.eye(3)
    np.testing.assert_allclose(shrink(NUMPY, S, 0.3, spread=1.0), expected)
    for spread, value in ((2.0, 2e-12), (0.0, 1.0)):  # classes that are single points
        found = shrink(NUMPY, np.zeros((2, 2)), 0.1, spread)
        np.testing.assert_allclose(found, value * np.eye(2))
    X, means, priors = rng.normal(size=(5, 2)), rng.normal(size=(3, 2)), np.array([0.2, 0.3, 0.5])
    S = np.array([[2.0, 0.4], [0.4, 1.0]])
    density = np.column_stack([multivariate_normal(m, S).logpdf(X) for m in means]) + np.log(priors)
    difference = density - Discriminant.of(NUMPY, means, S, np.log(priors)).log_joint(X)
    np.testing.assert_allclose(difference - difference[:, :1], 0, atol=1e-12)
    found = log_softmax(NUMPY, np.array([[1000.0, 1000.0], [0.0, -2000.0]]))
    np.testing.assert_allclose(found, [[-np.log(2), -np.log(2)], [0, -2000]])


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
