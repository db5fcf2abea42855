"""Intervals of ranks: what they say, and how often they are right."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from oodzoo.ranking.intervals import Comparison, covariance_of_means, mean_interval

Floats = NDArray[np.float64]


def true_ranks(means: Floats) -> NDArray[np.int64]:
    return 1 + np.argsort(np.argsort(-means))


@pytest.mark.parametrize("m", [3, 4, 6])
@pytest.mark.parametrize(("domain_noise", "image_noise"), [(0.3, 2.0), (1.0, 3.0), (0.1, 6.0)])
def test_rank_intervals_hold_the_true_rank(m: int, domain_noise: float, image_noise: float) -> None:
    """Models differ, more so on some domains, and each image says its own."""
    rng = np.random.default_rng(m)
    n_models, n_images, hits = 12, 60, []
    for _ in range(120):
        means = rng.normal(size=n_models)
        scores = np.empty((n_models, m))
        covariances = []
        for domain in range(m):
            effect = rng.normal() + domain_noise * rng.normal(size=n_models)
            values = means + effect + image_noise * rng.normal(size=(n_images, n_models))
            scores[:, domain] = values.mean(axis=0)
            covariances.append(covariance_of_means(values))
        intervals = Comparison.of(scores, covariances).rank_intervals()
        hits += [
            low <= rank <= high
            for rank, (low, high) in zip(true_ranks(means), intervals, strict=True)
        ]
    assert np.mean(hits) >= 0.9


@pytest.mark.parametrize("m", [3, 4, 6])
def test_rank_intervals_where_many_models_are_nearly_equal(m: int) -> None:
    """On average over the models still nine in ten; the truly best one fares worse."""
    rng = np.random.default_rng(m)
    hits = []
    for _ in range(150):
        means = 0.1 * rng.normal(size=27)
        scores = means[:, None] + rng.normal(size=m) + 0.5 * rng.normal(size=(27, m))
        intervals = Comparison.of(scores, [np.zeros((27, 27))] * m).rank_intervals()
        ranks = true_ranks(means)
        hits += [low <= r <= high for r, (low, high) in zip(ranks, intervals, strict=True)]
    assert np.mean(hits) >= 0.89


def test_intervals_are_narrow_when_models_differ_much() -> None:
    scores = np.array([[3.0, 3.1, 2.9], [2.0, 2.1, 1.9], [1.0, 1.1, 0.9]])
    comparison = Comparison.of(scores, [np.zeros((3, 3))] * 3)
    assert comparison.rank_intervals() == [(1, 1), (2, 2), (3, 3)]
    assert comparison.ties(0) == []


def test_the_same_model_twice_is_tied() -> None:
    scores = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [0.0, 1.0, 2.0]])
    comparison = Comparison.of(scores, [np.zeros((3, 3))] * 3)
    assert comparison.ties(0) == [1]
    assert comparison.rank_intervals() == [(1, 2), (1, 2), (3, 3)]


def test_images_bound_the_error_where_domains_agree_by_chance() -> None:
    scores = np.array([[1.0, 1.0, 1.0], [0.9, 0.9, 0.9]])
    certain = Comparison.of(scores, [np.zeros((2, 2))] * 3)
    noisy = Comparison.of(scores, [np.eye(2)] * 3)
    assert certain.better[0, 1]
    assert not noisy.better[0, 1]


def test_covariance_of_means_is_the_textbook_one() -> None:
    values = np.random.default_rng(0).normal(size=(40, 3))
    np.testing.assert_allclose(covariance_of_means(values), np.cov(values.T) / 40)


def test_groups_count_as_one() -> None:
    """Images that say the same thing five times say it once."""
    few = np.random.default_rng(1).normal(size=(30, 2))
    many = np.repeat(few, 5, axis=0)
    groups = [str(g) for g in np.repeat(np.arange(30), 5)]
    np.testing.assert_allclose(covariance_of_means(many, groups), covariance_of_means(few))
    assert covariance_of_means(many)[0, 0] < covariance_of_means(few)[0, 0] / 4


def test_interval_of_a_mean_is_student_s() -> None:
    from scipy import stats

    values = np.array([0.5, 0.7, 0.6, 0.9])
    expected = stats.t.interval(0.9, 3, values.mean(), stats.sem(values))
    np.testing.assert_allclose(mean_interval(values, np.zeros(4)), expected)
