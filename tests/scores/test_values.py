"""Values known beforehand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.scores.data import problem

from oodzoo import scores
from oodzoo.scores.inputs import as_classes
from oodzoo.scores.sampling import generator, stratified_folds, stratified_order


def test_iris(iris: Any) -> None:
    X, y = iris
    assert scores.logme(X, y) == pytest.approx(-0.1600602, abs=5e-8)
    assert scores.h_score(X, y) == pytest.approx(1.1918988, abs=5e-8)
    assert scores.regularized_h_score(X, y) == pytest.approx(1.1778425, abs=5e-8)
    assert scores.transrate(X, y) == pytest.approx(0.5894054, abs=5e-8)


def test_leep_is_zero_for_perfect_source_classes_and_the_entropy_for_random_ones() -> None:
    y = np.arange(40) % 4
    assert scores.leep(np.eye(4)[y], y) == 0
    assert scores.leep(np.full((40, 7), 1 / 7), y) == pytest.approx(-math.log(4))


def test_nce_of_labels_that_halve_the_doubt() -> None:
    assert scores.nce([0, 0, 1, 1], ["a", "b", "c", "c"]) == pytest.approx(-math.log(2) / 2)


def test_published_logme_goes_wrong_where_features_outnumber_samples(
    rng: np.random.Generator,
) -> None:
    X, y = rng.normal(size=(60, 200)), np.arange(60) % 3
    exact, published = scores.logme(X, y), scores.logme(X, y, variant="published")
    assert exact < 0 < 5 < published


def test_published_logme_is_near_the_exact_one_where_samples_outnumber_features() -> None:
    X, y, _ = problem(400, 8, 3)
    exact, published = scores.logme(X, y), scores.logme(X, y, variant="published")
    assert published == pytest.approx(exact, rel=1e-4)
    assert published != exact


def test_h_score_counts_separable_classes() -> None:
    X = np.repeat(np.eye(3), 5, axis=0)
    assert scores.h_score(X, np.repeat([0, 1, 2], 5)) == pytest.approx(2)


def test_knn_weighs_votes_by_similarity() -> None:
    """One near neighbour of the right class outvotes two far ones of the wrong class."""
    X = np.array([[1.0, 0.0], [0.99, 0.1], [0.1, 1.0], [0.0, 1.0], [1.0, 1.0]])
    y = ["a", "a", "b", "b", "b"]
    domains = [0, 1, 1, 1, 0]
    # Of domain 0, (1, 0) is then right, and (1, 1) right by two against one.
    assert scores.knn(X, y, domains, temperature=0.07) == pytest.approx(
        np.mean([1.0, np.mean([1.0, 1.0, 1.0])])
    )
    # With equal weights the majority is wrong about (1, 0).
    assert scores.knn(X, y, domains, temperature=1e6) < 1


def test_knn_at_a_very_low_temperature_follows_the_nearest_neighbour() -> None:
    X, y, domains = problem(60, 10, 5)
    assert scores.knn(X, y, domains, temperature=1e-4) == scores.knn(X, y, domains, k=1)


def test_knn_lets_all_that_tie_vote() -> None:
    """k = 1, but the nearest are one "a" and two "b" at the same place."""
    X = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    y = np.array(["b", "a", "b", "b", "a"])
    domains = np.array([0, 1, 1, 1, 1])
    order = np.array([0, 2, 3, 1, 4])
    assert scores.knn(X, y, domains, k=1) == scores.knn(X[order], y[order], domains, k=1)


def test_a_class_of_one_domain_alone_cannot_be_predicted() -> None:
    X = np.array([[1.0, 0.1], [0.1, 1.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.1]])
    y, domains = ["a", "b", "a", "b", "c"], [0, 0, 1, 1, 1]
    expected = (1 + 2 / 3) / 2
    assert scores.knn(X, y, domains) == pytest.approx(expected)
    assert scores.lda(X, y, domains) == pytest.approx(expected)


def test_nleep_with_one_cluster_knows_the_shares_only() -> None:
    X, y, _ = problem(60, 10, 3)
    shares = np.bincount(y) / 60
    assert scores.nleep(X, y, n_components=1) == pytest.approx(float(shares @ np.log(shares)))


def test_nleep_of_far_clusters_is_zero(rng: np.random.Generator) -> None:
    y = np.repeat([0, 1, 2], 20)
    X = 50 * np.eye(3)[y] + rng.normal(size=(60, 3))
    assert scores.nleep(X, y, energy=1.0) == pytest.approx(0, abs=1e-9)


def test_gbc_keeps_small_overlaps() -> None:
    """Overlaps far below the precision of one still rank."""
    y = np.repeat([0, 1], 20)
    noise = np.random.default_rng(0).normal(size=(40, 5))
    near, far = (scores.gbc(noise + gap * y[:, None], y) for gap in (8, 10))
    assert -1e-15 < near < far < 0


def test_parc_is_a_hundred_where_classes_are_two_points() -> None:
    X = np.array([[1.0, 2.0, 0.0], [3.0, 0.0, 5.0]])[[0, 0, 0, 1, 1]]
    assert scores.parc(X, [0, 0, 0, 1, 1]) == pytest.approx(100)


def test_parc_draws_a_seeded_sample() -> None:
    X, y, _ = problem(300, 10, 3)
    assert scores.parc(X, y, max_samples=300) == scores.parc(X, y, random_state=5)
    drawn = scores.parc(X, y, max_samples=100)
    assert drawn == scores.parc(X, y, max_samples=100)
    assert drawn != scores.parc(X, y, max_samples=100, random_state=1)
    assert drawn == pytest.approx(scores.parc(X, y), abs=10)


def test_a_drawn_sample_holds_the_classes_in_their_shares() -> None:
    y, _ = as_classes(np.repeat(["a", "b", "c"], [600, 300, 100]), "y")
    order = stratified_order(y, generator(0))
    assert sorted(order) == list(range(1000))
    for size in (50, 200, 500):
        assert np.bincount(y[order[:size]]) == pytest.approx(
            size * np.array([0.6, 0.3, 0.1]), abs=2
        )


def test_folds_hold_the_classes_in_their_shares() -> None:
    y, _ = as_classes(np.repeat([0, 1, 2], [103, 51, 9]), "y")
    folds = stratified_folds(y, 5, generator(0))
    for c, size in enumerate((103, 51, 9)):
        assert np.bincount(folds[y == c], minlength=5) == pytest.approx(size / 5, abs=1)


def test_lda_without_domains_is_cross_validated(rng: np.random.Generator) -> None:
    """On noise with more features than samples only what is held out tells the truth."""
    X, y = rng.normal(size=(100, 200)), np.arange(100) % 2
    assert 0.25 < scores.lda(X, y) < 0.75
    assert scores.lda(X, y, random_state=1) != scores.lda(X, y, random_state=2)
