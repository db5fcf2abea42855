"""Intervals of ranks and of a new domain: what they say, and how often they are right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.oracles import intervals as oracle
from tests.oracles.intervals import probability_of_largest_t, t_statistics

from oodzoo.extraction.source import Facts
from oodzoo.ranking.intervals import (
    Comparison,
    covariance_of_means,
    largest_t_quantile,
    new_domain_interval,
)
from oodzoo.ranking.rows import costs, pareto_front

Floats = NDArray[np.float64]
seeds = st.integers(0, 10_000)


def true_ranks(means: Floats) -> NDArray[np.int64]:
    return 1 + np.argsort(np.argsort(-means))


def compared(scores: Floats, weights: Floats | None = None) -> Comparison:
    """Compare models without noise of images."""
    n_models, m = scores.shape
    return Comparison.of(scores, [np.zeros((n_models, n_models))] * m, weights)


def simulated(seed: int, n_models: int, m: int) -> tuple[np.random.Generator, Floats]:
    rng = np.random.default_rng(seed)
    return rng, 3 * rng.normal(size=(n_models, 1)) + rng.normal(size=(n_models, m))


# --- ranks: coverage ------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [3, 4, 6])
@pytest.mark.parametrize(("domain_noise", "image_noise"), [(0.3, 2.0), (1.0, 3.0), (0.1, 6.0)])
def test_rank_intervals_hold_the_true_rank(m: int, domain_noise: float, image_noise: float) -> None:
    """Models differ, more so on some domains, and each image says its own."""
    rng = np.random.default_rng(m)
    hits: list[bool] = []
    for _ in range(120):
        means, scores, covariances = rng.normal(size=12), np.empty((12, m)), []
        for domain in range(m):
            effect = rng.normal() + domain_noise * rng.normal(size=12)
            values = means + effect + image_noise * rng.normal(size=(60, 12))
            scores[:, domain] = values.mean(axis=0)
            covariances.append(covariance_of_means(values))
        low, high = np.transpose(Comparison.of(scores, covariances).rank_intervals())
        hits += ((low <= true_ranks(means)) & (true_ranks(means) <= high)).tolist()
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("m", "equal"), [(3, 10), (4, 10), (6, 10), (4, 27)])
def test_intervals_hold_the_truly_best_of_near_ties(kind: str, m: int, equal: int) -> None:
    if equal == 27 and kind in KINDS[3:]:
        return
    rng = np.random.default_rng(m)
    best, all_models, lengths = [], [], []
    for _ in range(120):
        means = 0.1 * rng.normal(size=27)
        means[equal:] -= 3 * rng.uniform(0.2, 1.5, size=27 - equal)
        scores = means[:, None] + rng.normal(size=m) + noise(rng, kind, 27, m)
        low, high = np.transpose(compared(scores).rank_intervals())
        ranks = true_ranks(means)
        hits = (low <= ranks) & (ranks <= high)
        best.append(hits[ranks == 1].item())
        all_models.append(hits.mean())
        lengths.append((high - low + 1).mean())
    assert np.mean(best) >= 0.85
    assert np.mean(all_models) >= 0.9
    assert equal == 27 or np.mean(lengths) <= 22 - m  # of 27; ten models cannot be told apart


@pytest.mark.parametrize("weights", [(4, 2, 1, 1), (1, 1, 1, 0)])
def test_intervals_of_weighted_means_hold_the_truly_best(weights: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    shares, best = np.array(weights) / sum(weights), []
    for _ in range(200):
        means = 0.1 * rng.normal(size=12)
        scores = means[:, None] + noise(rng, "families", 12, 4)
        best.append(compared(scores, shares).rank_intervals()[int(means.argmax())][0] == 1)
    assert np.mean(best) >= 0.85


# --- ranks: formulas ------------------------------------------------------------------------------


def test_quantiles_of_the_largest_t() -> None:
    for k, freedom in [(1, 1.0), (26, 1.0), (2, 2.5), (9, 5.0), (26, 60.0)]:
        q = largest_t_quantile(k, freedom)
        assert probability_of_largest_t(q, k, freedom) == pytest.approx(0.9, abs=2e-5)
    # Dunnett's table: one-sided at 95 %, for 1, 2, 3 and 9 models and 5, 10 and 20 degrees
    table = {5: [2.02, 2.44, 2.68, 3.30], 10: [1.81, 2.15, 2.34, 2.81], 20: [1.72, 2.03, 2.19, 2.6]}
    for degrees, values in table.items():
        found = [largest_t_quantile(k, degrees, 0.95) for k in (1, 2, 3, 9)]
        np.testing.assert_allclose(found, values, atol=0.006)


@given(
    seed=seeds,
    n_models=st.integers(3, 8),
    m=st.integers(2, 5),
    weighted=st.booleans(),
    image_noise=st.sampled_from([0.0, 0.3, 2.0]),
)
def test_comparison_is_the_definition(
    seed: int, n_models: int, m: int, weighted: bool, image_noise: float
) -> None:
    rng, scores = simulated(seed, n_models, m)
    roots = image_noise * rng.normal(size=(m, n_models, n_models))
    covariances = list(roots @ roots.transpose(0, 2, 1))
    weights = rng.dirichlet(np.ones(m)) if weighted else None
    shares = None if weights is None else weights.tolist()
    statistics, freedom = t_statistics(scores.tolist(), [c.tolist() for c in covariances], shares)
    quantile = largest_t_quantile(n_models - 1, freedom)
    found = Comparison.of(scores, covariances, weights).better
    certain = ~np.isclose(statistics, quantile, rtol=1e-6)
    assert np.array_equal(found[certain], (np.array(statistics) > quantile)[certain])


@given(seed=seeds, n_models=st.integers(2, 8), m=st.integers(2, 5))
def test_what_does_not_matter_to_a_comparison(seed: int, n_models: int, m: int) -> None:
    """Scale and order, the difficulty of domains, and domains of no weight."""
    rng, scores = simulated(seed, n_models, m)
    comparison = compared(scores)
    better, ranks = comparison.better, true_ranks(scores.mean(axis=1))
    for model, (low, high) in enumerate(comparison.rank_intervals()):
        assert 1 <= low <= ranks[model] <= high <= n_models
        assert len(comparison.ties(model)) == high - low
        assert all(model in comparison.ties(other) for other in comparison.ties(model))
    assert np.array_equal(compared(8 * scores + rng.normal(size=m)).better, better)
    order = rng.permutation(n_models)
    assert np.array_equal(compared(scores[order]).better, better[np.ix_(order, order)])
    assert np.array_equal(compared(-scores).better, better.T)
    more = np.hstack([scores, rng.normal(size=(n_models, 1))])
    assert np.array_equal(compared(more, np.append(np.full(m, 1 / m), 0.0)).better, better)


def test_what_tells_models_apart() -> None:
    one_domain = np.array([[9.0, 8.0, 9.0], [1.0, 2.0, 1.0]])
    for found in (compared(one_domain[:, :1]), compared(one_domain, np.array([0.0, 1.0, 0.0]))):
        assert found.rank_intervals() == [(1, 2), (1, 2)]  # one domain decides nothing
    far = np.array([[3.0, 3.1, 2.9], [2.0, 2.1, 1.9], [1.0, 1.1, 0.9]])
    assert compared(far).rank_intervals() == [(1, 1), (2, 2), (3, 3)]
    twice = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [0.0, 1.1, 2.0]])
    assert compared(twice).ties(0) == [1]
    assert compared(twice).rank_intervals() == [(1, 2), (1, 2), (3, 3)]
    # two models alone are tied; among others that vary as little, one is clearly better
    pair = np.array([[1.0, 1.2, 1.1], [0.6, 0.75, 1.15]])
    others = 0.15 * np.random.default_rng(0).normal(size=(10, 3)) - 2 * np.arange(1, 11)[:, None]
    assert not compared(pair).better.any()
    assert compared(np.vstack([pair, others])).better[0, 1]
    # images bound the error where domains agree by chance
    by_chance = np.array([[1.0, 1.0, 1.0], [0.9, 0.9, 0.9]])
    assert Comparison.of(by_chance, [np.zeros((2, 2))] * 3).better[0, 1]
    assert not Comparison.of(by_chance, [np.eye(2)] * 3).better[0, 1]


def test_covariances_of_means() -> None:
    """The textbook's; images of a group that say the same thing five times say it once."""
    few = np.random.default_rng(1).normal(size=(30, 2))
    np.testing.assert_allclose(covariance_of_means(few), np.cov(few.T) / 30)
    many, groups = np.repeat(few, 5, axis=0), [str(g) for g in np.repeat(np.arange(30), 5)]
    np.testing.assert_allclose(covariance_of_means(many, groups), covariance_of_means(few))
    assert covariance_of_means(many)[0, 0] < covariance_of_means(few)[0, 0] / 4
    assert covariance_of_means(many, ["g"] * 150).tolist() == [[0, 0], [0, 0]]
    own = [None, *groups[1:]]
    assert not np.allclose(covariance_of_means(many, own), covariance_of_means(many, groups))


# --- a new domain ---------------------------------------------------------------------------------


@given(
    seed=seeds,
    m=st.integers(2, 6),
    weighted=st.booleans(),
    image_noise=st.sampled_from([0.0, 0.1, 2.0]),
)
def test_interval_of_a_new_domain_is_the_formula(
    seed: int, m: int, weighted: bool, image_noise: float
) -> None:
    rng = np.random.default_rng(seed)
    models, variances = rng.normal(size=(4, m)), image_noise * rng.random(m)
    weights = rng.dirichlet(np.ones(m)) if weighted else None
    shares, values = None if weights is None else weights.tolist(), models[0]
    expected = oracle.new_domain_interval(values.tolist(), variances.tolist(), shares)
    found = new_domain_interval(values, variances, weights)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    chosen = new_domain_interval(values, variances, weights, chosen_from=models)
    shares = [1 / m] * m if shares is None else shares
    expected = oracle.new_domain_interval(
        values.tolist(), variances.tolist(), shares, models.tolist()
    )
    np.testing.assert_allclose(chosen, expected, rtol=1e-6)
    assert chosen[0] <= found[0] < found[1] <= chosen[1]
    more = np.append(values, 9.0), np.append(variances, 0.01)  # a domain of no weight
    weights = np.append(np.full(m, 1 / m) if weights is None else weights, 0.0)
    np.testing.assert_allclose(new_domain_interval(*more, weights), found, rtol=1e-6)


def test_one_domain_says_nothing_about_a_new_one() -> None:
    nothing = (-np.inf, np.inf)
    assert new_domain_interval(np.array([0.7]), np.zeros(1)) == nothing
    two = np.array([0.7, 0.9])
    assert new_domain_interval(two, np.zeros(2), np.array([0.0, 1.0])) == nothing


@pytest.mark.parametrize(
    "weights",
    [[1 / 3] * 3, [1 / 4] * 4, [1 / 6] * 6, [0.4, 0.3, 0.3], [0.5, 0.3, 0.1, 0.1],
     [0.5, 0.25, 0.25, 0]],
)  # fmt: skip
def test_interval_of_a_new_domain_holds_it(weights: list[float]) -> None:
    """Degrees of freedom of a weighted variance are an approximation."""
    m, hits = len(weights), []
    rng = np.random.default_rng(m)
    for _ in range(4000):
        values = 3 + 2 * rng.normal(size=m + 1)
        low, high = new_domain_interval(values[:m], np.zeros(m), np.array(weights))
        hits.append(low <= values[m] <= high)
    equal = len(set(weights)) == 1
    error = 3.5 * np.sqrt(0.9 * 0.1 / 4000) if equal else 0.025
    assert np.mean(hits) == pytest.approx(0.9, abs=error)


def test_interval_of_a_new_domain_holds_it_where_images_are_few() -> None:
    """Domains do not differ; what is measured on each differs by its images alone."""
    rng, hits = np.random.default_rng(0), []
    for _ in range(4000):
        correct = rng.random((5, 30)) < 0.7
        values, variances = correct.mean(axis=1), correct.var(axis=1, ddof=1) / 30
        low, high = new_domain_interval(values[:4], variances[:4])
        hits.append(low <= values[4] <= high)
    assert np.mean(hits) >= 0.9


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


# --- the Pareto front -----------------------------------------------------------------------------


@given(
    st.dictionaries(
        st.text("abcdefgh", min_size=1, max_size=2),
        st.tuples(st.integers(0, 6), st.none() | st.integers(0, 6)),
    )
)
def test_pareto_front(values: dict[str, tuple[int, int | None]]) -> None:
    accuracy = {model: float(a) for model, (a, _) in values.items()}
    cost = {model: None if c is None else float(c) for model, (_, c) in values.items()}
    front = pareto_front(accuracy, cost)
    assert len(front) == len(set(front))
    assert set(front) == oracle.pareto_optimal(accuracy, cost)
    assert [cost[model] for model in front] == sorted(cost[model] or 0.0 for model in front)
    known = {model: c for model, c in cost.items() if c is not None}
    assert front == pareto_front(accuracy, dict(known))


def test_cost_is_what_is_known_for_most_models() -> None:
    both = {"a": Facts(8, 100, 1.5), "b": Facts(8, 200, 2.5)}
    assert costs(both) == {"a": 1.5, "b": 2.5}
    assert costs({**both, "c": Facts(8, 300, None)}) == {"a": 100, "b": 200, "c": 300}
    assert costs({"a": Facts(8, None, 1.5), "b": Facts(8)}) == {"a": 1.5, "b": None}
