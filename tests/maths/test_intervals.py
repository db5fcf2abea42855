"""Intervals of ranks and of a new domain: what they say, and how often they are right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.oracles import intervals as oracle
from tests.oracles.intervals import probability_of_largest_t, t_statistics

from oodzoo.ranking.intervals import (
    PairwiseComparison,
    covariance_of_means,
    largest_t_quantile,
    new_domain_interval,
)
from oodzoo.ranking.terms import pareto_front

Floats = NDArray[np.float64]
seeds = st.integers(0, 10_000)


def compared(scores: Floats, weights: Floats | None = None) -> PairwiseComparison:
    """Compare models without noise of images."""
    n_models, m = scores.shape
    return PairwiseComparison.of(scores, [np.zeros((n_models, n_models))] * m, weights)


def simulated(seed: int, n_models: int, m: int) -> tuple[np.random.Generator, Floats]:
    rng = np.random.default_rng(seed)
    return rng, 3 * rng.normal(size=(n_models, 1)) + rng.normal(size=(n_models, m))


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
    found = PairwiseComparison.of(scores, covariances, weights).better
    certain = ~np.isclose(statistics, quantile, rtol=1e-6)
    assert np.array_equal(found[certain], (np.array(statistics) > quantile)[certain])


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
    assert PairwiseComparison.of(by_chance, [np.zeros((2, 2))] * 3).better[0, 1]
    assert not PairwiseComparison.of(by_chance, [np.eye(2)] * 3).better[0, 1]


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
