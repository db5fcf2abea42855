from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from tests.oracles import scores as oracle
from tests.scores.data import problem

from oodzoo import scores


@pytest.mark.parametrize(("n", "d", "n_classes"), [(80, 10, 3), (60, 90, 2)])
@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_agrees_with_scikit_learn_and_the_oracle(
    n: int, d: int, n_classes: int, covariance: Any
) -> None:
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


def test_one_cluster_gives_the_negative_entropy() -> None:
    X, y, _ = problem(60, 10, 3)
    shares = np.bincount(y) / 60
    assert scores.nleep(X, y, n_components=1) == pytest.approx(float(shares @ np.log(shares)))


def test_distant_clusters_score_zero(rng: np.random.Generator) -> None:
    y = np.repeat([0, 1, 2], 20)
    X = 50 * np.eye(3)[y] + rng.normal(size=(60, 3))
    assert scores.nleep(X, y, energy=1.0) == pytest.approx(0, abs=1e-9)
