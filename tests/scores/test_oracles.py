"""Every score against its literal twin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.covariance import ledoit_wolf_shrinkage
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from tests.oracles import scores as oracle
from tests.scores.data import SHAPES, problem

from oodzoo import scores

every_shape = pytest.mark.parametrize(("n", "d", "n_classes"), SHAPES)


@every_shape
def test_leep(n: int, d: int, n_classes: int) -> None:
    y = problem(n, d, n_classes).y
    theta = np.random.default_rng(n).dirichlet(np.full(d, 0.3), size=n)
    assert scores.leep(theta, y) == pytest.approx(oracle.leep(theta, y), rel=1e-10, abs=1e-12)


@every_shape
def test_nce(n: int, d: int, n_classes: int) -> None:
    y = problem(n, d, n_classes).y
    source = np.random.default_rng(n).integers(d, size=n)
    assert scores.nce(source, y) == pytest.approx(oracle.nce(source, y), rel=1e-12, abs=1e-14)


@every_shape
def test_h_score(n: int, d: int, n_classes: int) -> None:
    X, y, _ = problem(n, d, n_classes)
    assert scores.h_score(X, y) == pytest.approx(oracle.h_score(X, y), rel=1e-8)


@every_shape
def test_regularized_h_score(n: int, d: int, n_classes: int) -> None:
    X, y, _ = problem(n, d, n_classes)
    assert scores.regularized_h_score(X, y) == pytest.approx(
        oracle.regularized_h_score(X, y), rel=1e-9
    )


def test_the_shrinkage_is_scikit_learns_too() -> None:
    X = problem(30, 80, 4).X
    assert oracle.ledoit_wolf_shrinkage(X) == pytest.approx(ledoit_wolf_shrinkage(X), rel=1e-10)


@every_shape
def test_logme(n: int, d: int, n_classes: int) -> None:
    X, y, _ = problem(n, d, n_classes, separation=0.3)
    assert scores.logme(X, y) == pytest.approx(oracle.logme(X, y), rel=1e-8)


@every_shape
def test_published_logme(n: int, d: int, n_classes: int) -> None:
    X, y, _ = problem(n, d, n_classes)
    assert scores.logme(X, y, variant="published") == pytest.approx(
        oracle.published_logme(X, y), rel=1e-8
    )


def test_published_logme_counts_the_zeros_among_min_n_d_singular_values() -> None:
    X, y, _ = problem(20, 50, 2)
    X[1::2] = X[::2]  # rank 10
    assert scores.logme(X, y, variant="published") == pytest.approx(
        oracle.published_logme(X, y), rel=1e-8
    )


@every_shape
@pytest.mark.parametrize("k", [1, 5, 200])
def test_knn(n: int, d: int, n_classes: int, k: int) -> None:
    X, y, domains = problem(n, d + 1, n_classes)  # with one feature all similarities tie
    assert scores.knn(X, y, domains, k=k) == pytest.approx(oracle.knn(X, y, domains, k=k))


def test_knn_in_many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, domains = problem(60, 10, 5)
    monkeypatch.setattr("oodzoo.scores._knn._BLOCK", 100)
    assert scores.knn(X, y, domains, k=7) == pytest.approx(oracle.knn(X, y, domains, k=7))


@every_shape
@pytest.mark.parametrize("eps", [1e-4, 0.5])
def test_transrate(n: int, d: int, n_classes: int, eps: float) -> None:
    X, y, _ = problem(n, d, n_classes)
    assert scores.transrate(X, y, eps=eps) == pytest.approx(
        oracle.transrate(X, y, eps=eps), rel=1e-9
    )


@every_shape
@pytest.mark.parametrize("covariance", ["spherical", "diagonal"])
@pytest.mark.parametrize("n_components", [None, 2, 64])
def test_gbc(n: int, d: int, n_classes: int, covariance: Any, n_components: int | None) -> None:
    X, y, _ = problem(n, d, n_classes, separation=0.2)
    value = scores.gbc(X, y, covariance=covariance, n_components=n_components, floor=0.1)
    expected = oracle.gbc(X, y, covariance, n_components, floor=0.1)
    assert value == pytest.approx(expected, rel=1e-7, abs=1e-300)


@every_shape
@pytest.mark.parametrize("scale", [0.05, 0.5])  # of shrinkage near one, and near none
def test_sfda(n: int, d: int, n_classes: int, scale: float) -> None:
    X, y, _ = problem(n, d, n_classes, separation=0.5)
    X = scale * X
    assert scores.sfda(X, y) == pytest.approx(oracle.sfda(X, y), rel=1e-6, abs=1e-10)


def test_sfda_with_the_least_shrinkage() -> None:
    """Far more spread than makes exp(-a σ) vanish; a direction of small spread then counts."""
    X, y, _ = problem(60, 3, 3, separation=0.5)
    X = X @ np.diag([5.0, 5.0, 5e-3])
    assert scores.sfda(X, y) == pytest.approx(oracle.sfda(X, y), rel=1e-9)


@pytest.mark.parametrize(("n", "d", "n_classes"), SHAPES[1:])
def test_parc(n: int, d: int, n_classes: int) -> None:
    X, y, _ = problem(n, d, n_classes)
    assert scores.parc(X, y) == pytest.approx(oracle.parc(X, y), rel=1e-9)


@every_shape
def test_lda(n: int, d: int, n_classes: int) -> None:
    X, y, domains = problem(n, d, n_classes, separation=0.7)
    assert scores.lda(X, y, domains) == pytest.approx(oracle.lda(X, y, domains), rel=1e-12)


@pytest.mark.parametrize(("n", "d", "n_classes"), [(80, 10, 3), (60, 90, 2)])
@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_nleep(n: int, d: int, n_classes: int, covariance: Any) -> None:
    """scikit-learn's own way from features to posteriors, then LEEP with the logarithm."""
    X, y, _ = problem(n, d, n_classes)
    Z = PCA(n_components=0.8, svd_solver="full").fit_transform(X)
    Z = Z / np.sqrt(np.mean(Z * Z))
    mixture = GaussianMixture(
        6, covariance_type="diag" if covariance == "diagonal" else "full", random_state=3
    )
    expected = oracle.leep(mixture.fit(Z).predict_proba(Z), y)
    value = scores.nleep(X, y, n_components=6, covariance=covariance, random_state=3)
    assert value == pytest.approx(expected, rel=1e-6)
