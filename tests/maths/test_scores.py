"""All scores: one conformance suite, properties, odd features, and the literal formula of each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_diabetes, load_iris
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import PolynomialFeatures
from tests.maths.score_problems import (
    FEATURES,
    ORACLES,
    SHAPES,
    Problem,
    direct,
    few,
    probabilities,
    problem,
    problems,
)
from tests.oracles import scores as oracle
from tests.oracles import zero_shot as zero_shot_oracle

from oodzoo import InputError, scores
from oodzoo.extraction.features import ArraySource
from oodzoo.linear.moments import domain_moments
from oodzoo.ranking.scores.catalogue import compute_score
from oodzoo.ranking.scores.statistics import (
    as_classes,
    generator,
    stratified_folds,
    stratified_order,
)


def close(value: float, rel: float = 1e-6) -> Any:
    return pytest.approx(value, rel=rel, abs=1e-8)


every_score = pytest.mark.parametrize("name", sorted(FEATURES))


def read_only(X: Any) -> Any:
    X = X.copy()
    X.flags.writeable = False
    return X


KINDS: list[Callable[[Any], Any]] = [
    np.asarray,
    lambda X: X.astype(np.float16),
    lambda X: X.astype(np.float32),
    lambda X: np.round(8 * X).astype(np.int32),
    lambda X: X.tolist(),
    read_only,
    lambda X: X.astype(">f8"),
]
LABELS: list[Callable[[Any], Any]] = [
    np.asarray,
    lambda y: y.tolist(),
    lambda y: y.astype(np.uint8),
    lambda y: y.astype(float),
    lambda y: np.array(["ant", "bee", "cow", "dog", "eel"])[y].astype(object),
    lambda y: np.array(["ant", "bee", "cow", "dog", "eel"])[y].tolist(),
    lambda y: np.array(["ant", "bee", "cow", "dog", "eel"])[y].astype(bytes),
]


def on(backend: str, values: Any) -> Any:
    """A tensor of PyTorch, if it has this type."""
    array = np.asarray(values)
    if backend == "numpy" or array.dtype.kind not in "fi" or array.dtype.byteorder == ">":
        return values
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    return torch.tensor(array)


@every_score
@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_equals_its_literal_formula(name: str, backend: str) -> None:
    if backend == "torch":
        pytest.importorskip("torch", reason="PyTorch is not installed")
    number = sorted(FEATURES).index(name) + (backend == "torch")
    for at, shape in enumerate(SHAPES):
        p = problem(*shape, separation=0.5)
        kind = KINDS[(at + number) % 7]
        if (
            name == "sfda"
        ):  # where it hardly shrinks, rounding is all that an inverse has for n <= d
            p = p._replace(X=0.3 * p.X)
            kind = KINDS[0] if (at + number) % 7 == 3 else kind
        X, y = kind(p.X), LABELS[(at + 2 * number) % 7](p.y)
        exact = p._replace(X=np.asarray(X, np.float64))
        expected = ORACLES[name](exact)
        before = [np.array(part) for part in (X, y, p.domains)]
        found = FEATURES[name](Problem(on(backend, X), on(backend, y), p.domains))
        assert found == pytest.approx(expected, rel=1e-6, abs=1e-9), (shape, X, y)
        for part, copy in zip((X, y, p.domains), before, strict=True):
            assert np.array_equal(part, copy)
        if name in scores.names():  # from moments for n > d, from arrays for n <= d
            source = ArraySource({"net": np.asarray(X)}, p.y, p.domains)
            device = None if backend == "numpy" else "cpu"
            found = compute_score(source, scores.get(name), "net", device=device)
            assert found == close(direct(name, exact)), shape


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_scores_of_a_head(backend: str) -> None:
    for shape in SHAPES:
        p = problem(*shape)
        theta = probabilities(p)
        source = theta.argmax(axis=1)
        found = scores.leep(on(backend, theta), on(backend, p.y))
        assert found == pytest.approx(oracle.leep(theta, p.y), rel=1e-10, abs=1e-12)
        found = scores.nce(on(backend, source), p.y)
        assert found == pytest.approx(oracle.nce(source, p.y), rel=1e-12, abs=1e-14)
        half = scores.leep(theta.astype(np.float16), p.y)  # of which the sums are not one
        assert half == pytest.approx(scores.leep(theta, p.y), rel=1e-2)


def test_values_of_the_authors() -> None:
    iris = load_iris(return_X_y=True)
    published = {"logme": -0.1600602, "h_score": 1.1918988, "regularized_h_score": 1.1778425,
                 "transrate": 0.5894054}  # fmt: skip
    for name, value in published.items():
        assert getattr(scores, name)(*iris) == pytest.approx(value, abs=5e-8)


@few
@given(problems, st.integers(1, 5))
def test_bounds_and_directions(p: Problem, more: int) -> None:
    n_classes, rng = len(set(p.y)), np.random.default_rng(0)
    shares = np.bincount(p.y) / len(p.y)
    entropy = -float(shares @ np.log(shares))
    bounds = {
        "h_score": (0, min(n_classes - 1, p.X.shape[1])), "regularized_h_score": (0, math.inf),
        "transrate": (0, math.inf), "gbc": (-n_classes * (n_classes - 1), 0), "parc": (-100, 100),
        "knn": (0, 1), "lda": (0, 1), "sfda": (-math.inf, 0), "nleep": (-entropy, 0),
    }  # fmt: skip
    for name, (low, high) in bounds.items():
        assert low - 1e-9 <= FEATURES[name](p) <= high + 1e-9, name
    wider = np.hstack([p.X, rng.normal(size=(len(p.y), more))])
    assert scores.h_score(wider, p.y) >= scores.h_score(p.X, p.y) - 1e-7
    theta = rng.dirichlet(np.full(more, 0.5), size=len(p.y))
    assert -entropy - 1e-9 <= scores.leep(theta, p.y) <= 0
    source = theta.argmax(axis=1)
    assert scores.leep(np.eye(more)[source], p.y) == close(scores.nce(source, p.y))
    finer = 3 * source + rng.integers(3, size=len(source))
    assert scores.nce(source, p.y) <= scores.nce(finer, p.y) + 1e-12 <= 2e-12


CONSTANT = {"gbc": -6.0, "gbc diagonal": -6.0, "h_score": 0.0, "nleep": -math.log(3), "parc": 0.0,
            "regularized_h_score": 0.0, "sfda": -math.log(3), "transrate": 0.0}  # fmt: skip
COLLAPSED = {"knn": 1, "lda": 1, "sfda": 0, "h_score": 2}
"""Of classes that are single points, as after neural collapse: nothing is better than this."""


@every_score
def test_features_that_do_not_vary(name: str) -> None:
    score = FEATURES[name]
    for d, constant in [(5, 0.0), (5, 0.1), (90, -1e6), (90, 0.0)]:
        p = problem(45, d, 3)
        value = score(p._replace(X=np.insert(p.X, 2, constant, axis=1)))
        assert math.isfinite(value)
        no_effect = {"h_score", "transrate", "nleep", *(() if constant else ("knn", "logme"))}
        assert name not in no_effect or value == close(score(p))
    for d, constant in [(1, 0.0), (4, 0.1), (50, 3.0)]:
        p = problem(30, d, 3)._replace(y=np.arange(30) % 3)
        value = score(p._replace(X=np.full((30, d), constant)))
        assert math.isfinite(value)
        assert value == pytest.approx(CONSTANT.get(name, value), abs=1e-9)
    for d in (3, 60):
        p = problem(30, d, 3)
        value = score(p._replace(X=np.random.default_rng(0).normal(size=(3, d))[p.y]))
        assert math.isfinite(value)
        assert value == pytest.approx(COLLAPSED.get(name, value), abs=1e-6)
        if name == "gbc":
            assert direct("gbc", p._replace(X=np.eye(3, d)[p.y])) == pytest.approx(0, abs=1e-6)


@every_score
def test_sizes_offsets_and_rare_classes(name: str) -> None:
    score, p = FEATURES[name], problem(40, 8, 3)
    for size in (1e-12, 1e12):
        assert math.isfinite(score(p._replace(X=size * p.X)))
    assert math.isfinite(score(p._replace(y=np.where(np.arange(40) == 11, 3, p.y))))
    if name != "parc":  # two samples have one pair, and no correlation
        pair = Problem(p.X[:2], np.array([0, 1]), np.array([0, 1]))
        assert math.isfinite(score(pair))
    if name not in ("knn", "logme", "logme published"):  # a mean far from zero costs few digits
        p = problem(60, 6, 3, separation=0.5)
        assert score(p._replace(X=p.X + 1e7)) == pytest.approx(score(p), rel=1e-5)
    for large, shown in ((1e300, "[+]300"), (1e-160, "-160")):
        with pytest.raises(InputError, match=f"^X: the largest value is 1e{shown}; rescale"):
            score(p._replace(X=large * p.X / np.abs(p.X).max()))


@pytest.mark.parametrize("block", [None, (4, 3), (7, 11), (100, 5)])
@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_knn_in_blocks(monkeypatch: pytest.MonkeyPatch, backend: str, block: Any) -> None:
    """Also where most neighbours tie, and some samples are zero."""
    if block:
        monkeypatch.setattr("oodzoo.ranking.scores._knn._block_shape", lambda *_: block)
    p = problem(60, 10, 5)
    for k in (1, 4, 25, 200):
        expected = oracle.knn(*p, k=k)
        assert scores.knn(on(backend, p.X), p.y, p.domains, k=k) == expected
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = rng.integers(-1, 2, size=(40, 2)) * rng.choice([1.0, 2.0], size=(40, 1))
        y, domains = rng.integers(0, 3, size=40), rng.integers(0, 2, size=40)
        for k in (1, 3, 8, 40):
            expected = oracle.knn(X, y, domains, k, temperature=1, with_ties=True)
            assert scores.knn(on(backend, X), y, domains, k, temperature=1) == expected


def test_lda_without_domains() -> None:
    """Folds are drawn at random; groups of copies, which would be recognised, stay whole."""
    rng = np.random.default_rng(7)
    X, y = rng.normal(size=(100, 200)), np.arange(100) % 2
    assert 0.25 < scores.lda(X, y) < 0.75  # on noise, only what is held out tells the truth
    assert scores.lda(X, y, random_state=1) != scores.lda(X, y, random_state=2)
    X, y = X[:40, :39], y[:40]
    copies, labels = np.repeat(X, 5, axis=0), np.repeat(y, 5)
    groups = np.repeat(np.arange(40), 5).tolist()
    assert scores.lda(copies, labels) > 0.9 > 0.8 > scores.lda(copies, labels, groups=groups)
    assert scores.lda(X, y, groups=[None] * 40) == scores.lda(X, y)
    with pytest.raises(InputError, match="all samples are of one group"):
        scores.lda(X, y, groups=["a"] * 40)


@pytest.mark.parametrize(("n", "d"), [(80, 10), (60, 90)])
@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_nleep(n: int, d: int, covariance: Any) -> None:
    """scikit-learn's own way from features to posteriors, then LEEP with the logarithm."""
    X, y, _ = problem(n, d, 3)
    Z = PCA(n_components=0.8, svd_solver="full").fit_transform(X)
    Z = Z / np.sqrt(np.mean(Z * Z))
    kind = "diag" if covariance == "diagonal" else "full"
    mixture = GaussianMixture(6, covariance_type=kind, random_state=3)
    expected = oracle.leep(mixture.fit(Z).predict_proba(Z), y)
    value = scores.nleep(X, y, n_components=6, covariance=covariance, random_state=3)
    assert value == close(expected)
    shares = np.bincount(y) / n
    assert scores.nleep(X, y, n_components=1) == pytest.approx(float(shares @ np.log(shares)))


def test_parc_of_a_sample_and_of_two_points() -> None:
    X, y, _ = problem(300, 10, 3)
    assert scores.parc(X, y, max_samples=300) == scores.parc(X, y, random_state=5)
    drawn = scores.parc(X, y, max_samples=100)
    assert drawn == scores.parc(X, y, max_samples=100)
    assert drawn != scores.parc(X, y, max_samples=100, random_state=1)
    assert drawn == pytest.approx(scores.parc(X, y), abs=10)
    points = np.array([[1.0, 2.0, 0.0], [3.0, 0.0, 5.0]])[[0, 0, 0, 1, 1]]
    assert scores.parc(points, [0, 0, 0, 1, 1]) == pytest.approx(100)


@pytest.mark.parametrize("scale", [0.05, 0.5])  # of shrinkage near one, and near none
def test_sfda_of_more_or_less_shrinkage(scale: float) -> None:
    for shape in SHAPES:
        X, y, _ = problem(*shape, separation=0.5)
        expected = oracle.sfda(scale * X, y)
        assert scores.sfda(scale * X, y) == pytest.approx(expected, rel=1e-6, abs=1e-10)
    # far more spread than makes exp(-a σ) vanish; a direction of small spread then counts
    X, y, _ = problem(60, 3, 3, separation=0.5)
    X = X @ np.diag([5.0, 5.0, 5e-3])
    assert scores.sfda(X, y) == pytest.approx(oracle.sfda(X, y), rel=1e-9)


@pytest.mark.parametrize("eps", [1e-4, 0.5])
def test_transrate_of_any_distortion(eps: float) -> None:
    for shape in SHAPES:
        X, y, _ = problem(*shape)
        assert scores.transrate(X, y, eps=eps) == close(oracle.transrate(X, y, eps=eps), 1e-9)


@few
@given(st.integers(0, 10**6))
def test_zero_shot(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, texts = rng.normal(size=(30, 5)), rng.normal(size=(4, 5))
    texts /= np.linalg.norm(texts, axis=1, keepdims=True)
    y, domains = rng.integers(4, size=30), rng.integers(3, size=30)
    expected = zero_shot_oracle.accuracy(X, texts, y, domains)
    assert scores.zero_shot(X, texts, y, domains) == close(expected, 1e-12)
    assert scores.zero_shot(X, texts, y) == close(zero_shot_oracle.accuracy(X, texts, y), 1e-12)
    longer = X * 10 ** rng.uniform(-3, 3, (30, 1))
    assert scores.zero_shot(on("torch", longer), on("torch", 7 * texts), y, domains) == close(
        expected
    )


def numbers(case: str) -> tuple[Any, Any]:
    """Features and numbers to predict, one or several, with n > d or n < d."""
    if case.startswith("diabetes"):
        X, y = load_diabetes(return_X_y=True)
        return (X, y[:, None]) if case == "diabetes" else (
            PolynomialFeatures(2).fit_transform(X[:40]), y[:40, None])  # fmt: skip
    n, d = (80, 12) if case == "n > d" else (30, 70)
    rng = np.random.default_rng(4)
    X = rng.normal(size=(n, d)) * rng.uniform(0.1, 3, d)
    Y = X[:, :4] @ rng.normal(size=(4, 3)) + rng.normal(size=(n, 3)) * [0.2, 3, 1]
    return X, Y * [1, 50, 0.01] + [0, 300, 7]


@pytest.mark.parametrize("case", ["diabetes", "diabetes, n < d", "n > d", "n < d"])
def test_logme_of_numbers(case: str) -> None:
    X, Y = numbers(case)
    assert scores.logme(X, Y) == pytest.approx(oracle.logme_of_columns(X, Y), rel=1e-9)
    assert scores.logme(X, Y, variant="published") == pytest.approx(
        oracle.published_logme_of_columns(X, Y), rel=1e-9, abs=1e-9
    )
    if Y.shape[1] == 1:  # one column is the same as a vector
        assert scores.logme(X, Y[:, 0], task="regression") == scores.logme(X, Y)
    # the unit adds a constant: the order of models does not depend on it
    assert scores.logme(X, 100 * Y) == close(scores.logme(X, Y) - np.log(100), 1e-7)


def test_logme_of_several_labels() -> None:
    rng = np.random.default_rng(1)
    X, Y, y = rng.normal(size=(50, 6)), (rng.random((50, 4)) < 0.4).astype(int), np.arange(50) % 3
    assert scores.logme(X, Y) == pytest.approx(oracle.logme_of_columns(X, Y.astype(float)))
    assert scores.logme(X, np.eye(3)[y]) == pytest.approx(scores.logme(X, y), rel=1e-12)


every_score_from_moments = pytest.mark.parametrize(
    "name", [name for name in scores.names() if scores.get(name).from_moments is not None]
)


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


@every_score_from_moments
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


@every_score_from_moments
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
    monkeypatch.setattr("oodzoo.extraction.features.BLOCK_ROWS", 7)
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


@pytest.mark.parametrize("n_components", [None, 2, 64])
@pytest.mark.parametrize("covariance", ["spherical", "diagonal"])
def test_gbc_of_components(n_components: int | None, covariance: Any) -> None:
    for shape in SHAPES:
        X, y, *_ = problem(*shape, separation=0.2)
        value = scores.gbc(X, y, covariance, n_components, floor=0.1)
        expected = oracle.gbc(X, y, covariance, n_components, floor=0.1)
        assert value == pytest.approx(expected, rel=1e-7, abs=1e-300)
