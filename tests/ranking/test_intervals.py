"""Intervals of ranks: what they say, and how often they are right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from tests.oracles import intervals as oracle
from tests.oracles.intervals import probability_of_largest_t, t_statistics

from oodzoo.ranking.intervals import (
    Comparison,
    covariance_of_means,
    largest_t_quantile,
    mean_interval,
    new_domain_interval,
)

Floats = NDArray[np.float64]


def true_ranks(means: Floats) -> NDArray[np.int64]:
    return 1 + np.argsort(np.argsort(-means))


def compared(scores: Floats, weights: Floats | None = None) -> Comparison:
    """Compare models without noise of images."""
    n_models, m = scores.shape
    return Comparison.of(scores, [np.zeros((n_models, n_models))] * m, weights)


# --- coverage ----------------------------------------------------------------------------------


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


def noise(rng: np.random.Generator, kind: str, n_models: int, m: int) -> Floats:
    """How models depart from their true score on each domain, as real models do.

    In four stores of real models, models of the same family react alike, most of the variance is
    along one direction, and the standard deviations of models differ by a factor of about two.
    """
    own: Floats = rng.normal(size=(n_models, m))
    if kind == "families":
        family = rng.integers(5, size=n_models)
        own = np.sqrt(0.6) * rng.normal(size=(5, m))[family] + np.sqrt(0.4) * own
    if kind == "one direction":
        own = 0.9 * rng.normal(size=(n_models, 1)) * rng.normal(size=m) + 0.45 * own
    if kind == "unequal":
        own = np.exp(0.4 * rng.normal(size=(n_models, 1))) * own
    if kind == "heavy tails":
        own = rng.standard_t(4, size=(n_models, m)) / np.sqrt(2)
    return own


KINDS = ["independent", "families", "one direction", "unequal", "heavy tails"]


def coverage(kind: str, m: int, equal: int, repeats: int = 120) -> tuple[float, float, float]:
    """Coverage for the truly best model and over all models, and the mean length."""
    rng = np.random.default_rng(m)
    n_models, best, all_models, lengths = 27, [], [], []
    for _ in range(repeats):
        means = 0.1 * rng.normal(size=n_models)
        means[equal:] -= 3 * rng.uniform(0.2, 1.5, size=n_models - equal)
        scores = means[:, None] + rng.normal(size=m) + noise(rng, kind, n_models, m)
        low, high = np.transpose(compared(scores).rank_intervals())
        ranks = true_ranks(means)
        hits = (low <= ranks) & (ranks <= high)
        best.append(hits[ranks == 1].item())
        all_models.append(hits.mean())
        lengths.append((high - low + 1).mean())
    return float(np.mean(best)), float(np.mean(all_models)), float(np.mean(lengths))


@pytest.mark.parametrize("m", [3, 4, 6])
@pytest.mark.parametrize("kind", KINDS)
def test_intervals_hold_the_truly_best_of_near_ties(kind: str, m: int) -> None:
    best, all_models, length = coverage(kind, m, equal=10)
    assert best >= 0.85
    assert all_models >= 0.9
    assert length <= 22 - m  # of 27; ten models cannot be told apart


@pytest.mark.parametrize("kind", ["independent", "families", "one direction"])
def test_intervals_hold_the_truly_best_if_all_models_are_near_ties(kind: str) -> None:
    best, all_models, _ = coverage(kind, m=4, equal=27)
    assert best >= 0.85
    assert all_models >= 0.9


@pytest.mark.parametrize("weights", [(4, 2, 1, 1), (1, 1, 1, 0)])
def test_intervals_of_weighted_means_hold_the_truly_best(weights: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    shares = np.array(weights) / sum(weights)
    best = []
    for _ in range(200):
        means = 0.1 * rng.normal(size=12)
        scores = means[:, None] + noise(rng, "families", 12, 4)
        best.append(compared(scores, shares).rank_intervals()[int(means.argmax())][0] == 1)
    assert np.mean(best) >= 0.85


# --- formulas ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "freedom"), [(1, 1.0), (26, 1.0), (2, 2.5), (9, 5.0), (26, 60.0)])
def test_quantile_of_the_largest_t(k: int, freedom: float) -> None:
    q = largest_t_quantile(k, freedom)
    assert probability_of_largest_t(q, k, freedom) == pytest.approx(0.9, abs=2e-5)


def test_quantiles_of_dunnett_s_table() -> None:
    """One-sided comparisons at 95 %, for 1, 2, 3 and 9 models and 5, 10 and 20 degrees."""
    table = {
        5: [2.02, 2.44, 2.68, 3.30],
        10: [1.81, 2.15, 2.34, 2.81],
        20: [1.72, 2.03, 2.19, 2.60],
    }
    for freedom, values in table.items():
        found = [largest_t_quantile(k, freedom, 0.95) for k in (1, 2, 3, 9)]
        np.testing.assert_allclose(found, values, atol=0.006)


@given(
    seed=st.integers(0, 10_000),
    n_models=st.integers(3, 8),
    m=st.integers(2, 5),
    weighted=st.booleans(),
    image_noise=st.sampled_from([0.0, 0.3, 2.0]),
)
def test_comparison_is_the_definition(
    seed: int, n_models: int, m: int, weighted: bool, image_noise: float
) -> None:
    rng = np.random.default_rng(seed)
    scores = 3 * rng.normal(size=(n_models, 1)) + rng.normal(size=(n_models, m))
    roots = image_noise * rng.normal(size=(m, n_models, n_models))
    covariances = list(roots @ roots.transpose(0, 2, 1))
    weights = rng.dirichlet(np.ones(m)) if weighted else None
    statistics, freedom = t_statistics(
        scores.tolist(),
        [c.tolist() for c in covariances],
        None if weights is None else weights.tolist(),
    )
    quantile = largest_t_quantile(n_models - 1, freedom)
    found = Comparison.of(scores, covariances, weights).better
    certain = ~np.isclose(statistics, quantile, rtol=1e-6)
    assert np.array_equal(found[certain], (np.array(statistics) > quantile)[certain])


@given(seed=st.integers(0, 10_000), n_models=st.integers(1, 8), m=st.integers(1, 5))
def test_intervals_and_ties_agree(seed: int, n_models: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    scores = 3 * rng.normal(size=(n_models, 1)) + rng.normal(size=(n_models, m))
    comparison = compared(scores)
    ranks = true_ranks(scores.mean(axis=1))
    for model, (low, high) in enumerate(comparison.rank_intervals()):
        assert 1 <= low <= ranks[model] <= high <= n_models
        assert len(comparison.ties(model)) == high - low
        assert all(model in comparison.ties(other) for other in comparison.ties(model))


@given(seed=st.integers(0, 10_000), n_models=st.integers(2, 8), m=st.integers(2, 5))
def test_comparison_ignores_scale_order_and_difficulty_of_domains(
    seed: int, n_models: int, m: int
) -> None:
    rng = np.random.default_rng(seed)
    scores = 3 * rng.normal(size=(n_models, 1)) + rng.normal(size=(n_models, m))
    better = compared(scores).better
    assert np.array_equal(compared(8 * scores + rng.normal(size=m)).better, better)
    order = rng.permutation(n_models)
    assert np.array_equal(compared(scores[order]).better, better[np.ix_(order, order)])
    assert np.array_equal(compared(-scores).better, better.T)
    assert np.array_equal(compared(scores, np.full(m, 1 / m)).better, better)


@given(seed=st.integers(0, 10_000), n_models=st.integers(2, 6), m=st.integers(2, 4))
def test_a_domain_of_no_weight_does_not_count(seed: int, n_models: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    scores = 3 * rng.normal(size=(n_models, 1)) + rng.normal(size=(n_models, m + 1))
    weights = np.append(np.full(m, 1 / m), 0.0)
    assert np.array_equal(compared(scores, weights).better, compared(scores[:, :m]).better)
    variances = np.full(m + 1, 0.1)
    np.testing.assert_allclose(
        mean_interval(scores[0], variances, weights), mean_interval(scores[0, :m], variances[:m])
    )


def test_one_domain_decides_nothing() -> None:
    scores = np.array([[9.0, 8.0, 9.0], [1.0, 2.0, 1.0]])
    for comparison in (compared(scores[:, :1]), compared(scores, np.array([0.0, 1.0, 0.0]))):
        assert comparison.rank_intervals() == [(1, 2), (1, 2)]
    assert mean_interval(scores[0, :1], np.zeros(1)) == (-np.inf, np.inf)


# --- examples ----------------------------------------------------------------------------------


def test_intervals_are_narrow_when_models_differ_much() -> None:
    scores = np.array([[3.0, 3.1, 2.9], [2.0, 2.1, 1.9], [1.0, 1.1, 0.9]])
    assert compared(scores).rank_intervals() == [(1, 1), (2, 2), (3, 3)]
    assert compared(scores).ties(0) == []


def test_pairs_tell_about_each_other() -> None:
    """Two models alone are tied; among others that vary as little, one is clearly better."""
    rng = np.random.default_rng(0)
    pair = np.array([[1.0, 1.2, 1.1], [0.6, 0.75, 1.15]])
    others = -2 * np.arange(1.0, 11.0)[:, None] + 0.15 * rng.normal(size=(10, 3))
    assert not compared(pair).better.any()
    assert compared(np.vstack([pair, others])).better[0, 1]


def test_the_same_model_twice_is_tied() -> None:
    scores = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [0.0, 1.1, 2.0]])
    comparison = compared(scores)
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
    values = np.array([0.5, 0.7, 0.6, 0.9])
    expected = stats.t.interval(0.9, 3, values.mean(), stats.sem(values))
    np.testing.assert_allclose(mean_interval(values, np.zeros(4)), expected)
    np.testing.assert_allclose(mean_interval(values, np.zeros(4), np.full(4, 0.25)), expected)


def test_interval_of_a_weighted_mean_holds_it() -> None:
    rng = np.random.default_rng(0)
    weights = np.array([0.5, 0.3, 0.1, 0.1])
    intervals = [mean_interval(rng.normal(size=4), np.zeros(4), weights) for _ in range(2000)]
    assert np.mean([low <= 0 <= high for low, high in intervals]) == pytest.approx(0.9, abs=0.03)


# --- a new domain ------------------------------------------------------------------------------


@given(
    seed=st.integers(0, 10_000),
    m=st.integers(2, 6),
    weighted=st.booleans(),
    image_noise=st.sampled_from([0.0, 0.1, 2.0]),
)
def test_interval_of_a_new_domain_is_the_formula(
    seed: int, m: int, weighted: bool, image_noise: float
) -> None:
    rng = np.random.default_rng(seed)
    values, variances = rng.normal(size=m), image_noise * rng.random(m)
    weights = rng.dirichlet(np.ones(m)) if weighted else None
    shares = None if weights is None else weights.tolist()
    expected = oracle.new_domain_interval(values.tolist(), variances.tolist(), shares)
    found = new_domain_interval(values, variances, weights)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def covered(m: int, weights: Floats | None = None, repeats: int = 4000) -> float:
    """How often the value on one more domain of the same normal distribution is inside."""
    rng = np.random.default_rng(m)
    hits = []
    for _ in range(repeats):
        values = 3 + 2 * rng.normal(size=m + 1)
        low, high = new_domain_interval(values[:m], np.zeros(m), weights)
        hits.append(low <= values[m] <= high)
    return float(np.mean(hits))


ERROR = 3.5 * np.sqrt(0.9 * 0.1 / 4000)
"""Of a share of 0.9 in 4000 repeats."""


@pytest.mark.parametrize("m", [3, 4, 6])
def test_interval_of_a_new_domain_holds_it(m: int) -> None:
    assert covered(m) == pytest.approx(0.9, abs=ERROR)


@pytest.mark.parametrize("weights", [(0.4, 0.3, 0.3), (0.5, 0.3, 0.1, 0.1), (0.5, 0.25, 0.25, 0)])
def test_interval_of_a_new_domain_holds_it_with_weights(weights: tuple[float, ...]) -> None:
    """Degrees of freedom of a weighted variance are an approximation."""
    assert covered(len(weights), np.array(weights)) == pytest.approx(0.9, abs=0.025)


def test_interval_of_a_new_domain_holds_it_where_images_are_few() -> None:
    """Domains do not differ; what is measured on each differs by its images alone."""
    rng = np.random.default_rng(0)
    hits = []
    for _ in range(4000):
        correct = rng.random((5, 30)) < 0.7
        values, variances = correct.mean(axis=1), correct.var(axis=1, ddof=1) / 30
        low, high = new_domain_interval(values[:4], variances[:4])
        hits.append(low <= values[4] <= high)
    assert np.mean(hits) >= 0.9


@given(seed=st.integers(0, 10_000), m=st.integers(2, 5))
def test_a_new_domain_is_less_certain_than_the_mean(seed: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    values, variances, weights = rng.normal(size=m), rng.random(m), rng.dirichlet(np.ones(m))
    low, high = mean_interval(values, variances, weights)
    lowest, highest = new_domain_interval(values, variances, weights)
    assert lowest < low < high < highest
    assert lowest + highest == pytest.approx(2 * values @ weights, abs=1e-6 * (highest - lowest))


def test_a_domain_of_no_weight_says_nothing_about_a_new_one() -> None:
    values, variances = np.array([0.5, 0.7, 0.6, 9.0]), np.full(4, 0.01)
    weights = np.array([1.0, 1.0, 1.0, 0.0]) / 3
    np.testing.assert_allclose(
        new_domain_interval(values, variances, weights),
        new_domain_interval(values[:3], variances[:3]),
    )


def test_the_best_of_models_is_given_half_of_the_variance_that_it_lacks() -> None:
    rng = np.random.default_rng(0)
    models, weights = rng.normal(size=(5, 4)), rng.dirichlet(np.ones(4))
    variances = np.full(4, 0.01)
    for values in models:
        expected = oracle.new_domain_interval(
            values.tolist(), variances.tolist(), weights.tolist(), models.tolist()
        )
        found = new_domain_interval(values, variances, weights, chosen_from=models)
        np.testing.assert_allclose(found, expected)
        alone = new_domain_interval(values, variances, weights)
        assert found[0] <= alone[0] < alone[1] <= found[1]


@pytest.mark.parametrize("m", [3, 4, 6])
def test_interval_of_a_new_domain_holds_that_of_the_best_model(m: int) -> None:
    """The difficulty of domains is lognormal; each model has its own, better and worse domains."""
    rng = np.random.default_rng(m)
    alone, chosen = [], []
    for _ in range(2000):
        difficulty = np.exp(0.4 * rng.normal(size=m + 1) + 0.2 * rng.normal(size=(20, m + 1)))
        right = 1 - np.minimum(0.25 * np.exp(0.15 * rng.normal(size=(20, 1))) * difficulty, 1)
        models = rng.binomial(200, right) / 200
        known, new = models[:, :m], models[:, m]
        first = int(known.mean(axis=1).argmax())
        images = known[first] * (1 - known[first]) / 199
        low, high = new_domain_interval(known[first], images)
        alone.append(low <= new[first] <= high)
        low, high = new_domain_interval(known[first], images, chosen_from=known)
        chosen.append(low <= new[first] <= high)
    assert np.mean(alone) < 0.87
    assert 0.88 <= np.mean(chosen) <= 0.94


def test_one_domain_says_nothing_about_a_new_one() -> None:
    nothing = (-np.inf, np.inf)
    assert new_domain_interval(np.array([0.7]), np.zeros(1)) == nothing
    weights = np.array([0.0, 1.0])
    assert new_domain_interval(np.array([0.7, 0.9]), np.zeros(2), weights) == nothing
