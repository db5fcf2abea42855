"""The default score against its literal formula, from terms and from features."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import spearmanr
from tests.oracles import scores as score_oracle
from tests.oracles import unseen as oracle
from tests.ranking.data import (
    Data,
    folds_of,
    moments_of,
    saved,
    simulate_domains,
    simulate_models,
)
from tests.ranking.odd_domains import ODD_CASES, moved

import oodzoo
from oodzoo.ranking import ranker
from oodzoo.ranking.folds import leave_one_domain_out, leave_two_domains_out
from oodzoo.ranking.ranker import rank_for_test_domains
from oodzoo.ranking.ridge import Transfer
from oodzoo.ranking.terms import reliability, standardised, unseen_scores

quick = settings(max_examples=60, deadline=None)
seeds = st.integers(0, 10_000)

Floats = NDArray[np.float64]
Features = tuple[dict[str, Any], NDArray[np.int64], NDArray[Any]]


def simulate_terms(
    seed: int, n_models: int, n_pairs: int, agreement: float = 1.0
) -> tuple[Floats, Floats]:
    """Evidence and skills that agree more or less; some skills are tied."""
    rng = np.random.default_rng(seed)
    quality = agreement * rng.normal(size=n_models)
    evidence = -0.4 + 0.1 * (quality + rng.normal(size=n_models))
    skills = 0.3 + 0.2 * (quality[:, None] + rng.normal(size=(n_models, n_pairs)))
    return evidence, np.clip(skills, 0, 1).round(2)


# --- the formula --------------------------------------------------------------------------------


@given(
    seed=seeds,
    n_models=st.integers(1, 12),
    n_pairs=st.integers(0, 12),
    agreement=st.sampled_from([0.0, 1.0, 5.0]),
    weighted=st.booleans(),
)
@quick
def test_equals_its_formula(
    seed: int, n_models: int, n_pairs: int, agreement: float, weighted: bool
) -> None:
    evidence, skills = simulate_terms(seed, n_models, n_pairs, agreement)
    weights = np.random.default_rng(seed).uniform(size=n_pairs) if weighted else None
    expected = oracle.combined(
        evidence.tolist(), skills.tolist(), None if weights is None else weights.tolist()
    )
    assert unseen_scores(evidence, skills, weights) == pytest.approx(expected, abs=1e-9)


def test_pairs_that_agree_count_as_much_as_the_evidence() -> None:
    evidence = np.array([-0.3, -0.2, -0.1])
    skills = np.tile(np.array([[0.2], [0.9], [0.5]]), (1, 4))
    assert reliability(np.tile(np.array([[1.0], [3.0], [2.0]]), (1, 4))) == 1
    z = np.sqrt(1.5)
    assert unseen_scores(evidence, skills) == pytest.approx([-z, z / 2, z / 2])


def test_pairs_that_disagree_count_nothing() -> None:
    evidence = np.array([-0.3, -0.2, -0.1])
    skills = np.array([[0.1, 0.3], [0.2, 0.2], [0.3, 0.1]])
    assert unseen_scores(evidence, skills) == pytest.approx(standardised(evidence))


def test_without_pairs_the_score_is_the_evidence() -> None:
    evidence = np.array([-0.3, -0.2, -0.1, 0.4])
    expected = standardised(evidence)
    assert unseen_scores(evidence, np.zeros((4, 0))) == pytest.approx(expected)
    assert unseen_scores(evidence, np.zeros((4, 3))) == pytest.approx(expected)  # all tied
    one_pair = np.array([[0.4], [0.3], [0.2], [0.1]])  # its reliability is not known
    assert unseen_scores(evidence, one_pair) == pytest.approx(expected)


def test_a_single_model_is_the_average() -> None:
    assert unseen_scores(np.array([-0.3]), np.array([[0.2, 0.5]])).tolist() == [0]


@given(correlation=st.floats(0.05, 0.95), n_pairs=st.integers(3, 12), seed=st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_reliability_is_the_correlation_of_one_pair_with_another(
    correlation: float, n_pairs: int, seed: int
) -> None:
    """Of many models, whose ranks are as correlated as the values are, up to 0.02."""
    rng = np.random.default_rng(seed)
    common, own = rng.normal(size=(4000, 1)), rng.normal(size=(4000, n_pairs))
    values = math.sqrt(correlation) * common + math.sqrt(1 - correlation) * own
    ranks = (values.argsort(axis=0).argsort(axis=0) + 1).astype(np.float64)
    between_pairs = spearmanr(values).statistic[np.triu_indices(n_pairs, 1)].mean()
    assert reliability(ranks) == pytest.approx(between_pairs, abs=1e-3)
    assert reliability(ranks) == pytest.approx(correlation, abs=0.05)


# --- properties ---------------------------------------------------------------------------------


@given(seed=seeds, n_models=st.integers(1, 12), n_pairs=st.integers(0, 12))
@quick
def test_scores_are_centred_and_bounded(seed: int, n_models: int, n_pairs: int) -> None:
    """A mean of values of mean 0 and variance 1, of which none exceeds the root of M - 1."""
    found = unseen_scores(*simulate_terms(seed, n_models, n_pairs))
    assert found.mean() == pytest.approx(0, abs=1e-9)
    assert np.abs(found).max() <= math.sqrt(n_models - 1) + 1e-9
    assert found.var() <= 1 + 1e-9


@given(seed=seeds, size=st.floats(-1e6, 1e6), far=st.floats(0, 1))
@quick
def test_a_model_that_is_better_in_all_terms_scores_higher(
    seed: int, size: float, far: float
) -> None:
    """Whatever the terms of the other models are."""
    evidence, skills = simulate_terms(seed, 6, 6)
    evidence[2], skills[2] = size, far
    evidence[0], skills[0] = evidence[1] + 1e-3 * (1 + abs(size)), skills[1] + 0.01
    found = unseen_scores(evidence, skills)
    assert found[0] > found[1]


@given(seed=seeds, garbage=seeds, n_models=st.integers(3, 10))
@quick
def test_one_model_moves_the_ranks_of_others_by_at_most_one(
    seed: int, garbage: int, n_models: int
) -> None:
    """So it does not reorder two others whose mean ranks differ by more than one."""
    evidence, skills = np.zeros(n_models), simulate_terms(seed, n_models, 6, agreement=3.0)[1]
    changed = skills.copy()
    changed[-1] = np.random.default_rng(garbage).uniform(size=6)
    before = np.mean([oracle.ranks(column) for column in skills.T.tolist()], axis=0)
    scores = unseen_scores(evidence, changed)
    if not scores.any():  # the pairs do not agree
        return
    for one in range(n_models - 1):
        for other in range(n_models - 1):
            if before[one] - before[other] > 1:
                assert scores[one] > scores[other]


@given(seed=seeds)
@quick
def test_order_of_models_and_pairs_does_not_matter(seed: int) -> None:
    rng = np.random.default_rng(seed)
    evidence, skills = simulate_terms(seed, 7, 6)
    weights = rng.uniform(size=6)
    models, pairs = rng.permutation(7), rng.permutation(6)
    expected = unseen_scores(evidence, skills, weights)[models]
    found = unseen_scores(evidence[models], skills[np.ix_(models, pairs)], weights[pairs])
    assert found == pytest.approx(expected, abs=1e-10)


@given(seed=seeds, scale=st.floats(1e-3, 1e3), shift=st.floats(-5, 5))
@quick
def test_units_of_the_terms_do_not_matter(seed: int, scale: float, shift: float) -> None:
    """Evidence is used up to its units, skills up to their order."""
    evidence, skills = simulate_terms(seed, 7, 6)
    expected = unseen_scores(evidence, skills)
    found = unseen_scores(scale * evidence + shift, np.exp(3 * skills))
    assert found == pytest.approx(expected, abs=1e-6)


def test_rounding_breaks_no_tie() -> None:
    rng = np.random.default_rng(0)
    evidence, skills = np.full(5, -0.4), np.full((5, 6), 0.3)
    noise = 1e-14 * rng.normal(size=(5, 7))
    found = unseen_scores(evidence + noise[:, 0], skills + noise[:, 1:])
    np.testing.assert_array_equal(found, 0)


# --- evidence -----------------------------------------------------------------------------------


def without(data: Data, name: str) -> Data:
    return {domain: part for domain, part in data.items() if domain != name}


@pytest.mark.parametrize("case", sorted(set(ODD_CASES) - {"an exploding feature"}))
def test_evidence_equals_its_formula(case: str) -> None:
    data = ODD_CASES[case]()
    expected = oracle.evidence(data)
    for fold in folds_of(data):
        assert fold.evidence == pytest.approx(expected, rel=1e-8)
        alone = oracle.evidence(without(data, fold.domain))
        assert fold.training_evidence == pytest.approx(alone, rel=1e-7)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_evidence_is_logme_of_all_domains(n_classes: int) -> None:
    data = simulate_domains([12, 9, 10], 4, n_classes)
    X = np.vstack([Phi for Phi, _ in data.values()])
    y = np.concatenate([labels for _, labels in data.values()])
    expected = score_oracle.logme(X, y.tolist())
    assert oracle.evidence(data) == pytest.approx(expected, rel=1e-9)
    for fold in folds_of(data, n_classes):
        assert fold.evidence == pytest.approx(expected, rel=1e-8)
    assert oodzoo.scores.logme(X, y) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("case", ["n > d", "n < d"])
def test_evidence_with_a_large_offset(case: str) -> None:
    data = moved(ODD_CASES[case](), 1e5)
    for fold in folds_of(data):
        assert fold.evidence == pytest.approx(oracle.evidence(data), rel=1e-6)
        alone = oracle.evidence(without(data, fold.domain))
        assert fold.training_evidence == pytest.approx(alone, rel=1e-6)


def test_evidence_does_not_see_a_class_of_a_test_domain() -> None:
    data = simulate_domains([30, 20, 40], 5, n_classes=2)
    data["d"] = (data["a"][0] + 1, np.full(30, 2))
    found = leave_two_domains_out(moments_of(data, 3), lambda name: [data[name]])["d"]
    expected = folds_of(without(data, "d"), n_classes=2)
    for fold, same in zip(found, expected, strict=True):
        assert fold.evidence == pytest.approx(same.evidence, rel=1e-9)
        assert fold.training_evidence == pytest.approx(same.training_evidence, rel=1e-9)


# --- from features ------------------------------------------------------------------------------

NOISE = {"a": 0.5, "b": 1.0, "c": 1.4, "d": 2.0, "e": 4.0}


def by_domain(data: Features) -> dict[str, Data]:
    features, y, domains = data
    return {
        model: {
            domain: (X[domains == domain], y[domains == domain])
            for domain in np.unique(domains).tolist()
        }
        for model, X in features.items()
    }


def assert_ranked(ranking: oodzoo.Ranking, expected: dict[str, float]) -> None:
    assert ranking.score == "unseen"
    assert {row.model: row.score for row in ranking.rows} == pytest.approx(expected, abs=1e-6)
    order = sorted(expected, key=lambda model: (-round(expected[model], 6), model))
    assert [row.model for row in ranking.rows] == order


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("d", [6, 150])
def test_ranks_as_its_formula(d: int, device: str | None) -> None:
    if device is not None:
        pytest.importorskip("torch", reason="PyTorch is not installed")
    data = simulate_models(NOISE, n=20, d=d, seed=1)
    models = by_domain(data)
    ranking = oodzoo.rank(*data, device=device)
    assert_ranked(ranking, oracle.unseen(models, 3))
    for row in ranking.rows:
        assert row.evidence == pytest.approx(oracle.evidence(models[row.model]), rel=1e-8)
        assert row.transfer == pytest.approx(100 * oracle.transfer(models[row.model], 3), abs=1e-7)
        means = oracle.into(oracle.pairs(models[row.model], 3), [fold.domain for fold in row.folds])
        assert [fold.transfer for fold in row.folds] == pytest.approx(
            [100 * value for value in means.values()], abs=1e-7
        )


def test_ranks_as_its_formula_with_odd_classes() -> None:
    """A domain with one class, a class that one domain lacks and one that only one has."""
    features, y, domains = simulate_models(NOISE, n=20, seed=2)
    y = y.copy()
    y[domains == "d0"] = 2
    y[(domains == "d1") & (y == 1)] = 0
    y[np.flatnonzero(domains == "d2")[:4]] = 3
    data = features, y, domains
    assert_ranked(oodzoo.rank(*data), oracle.unseen(by_domain(data), 4))


@pytest.mark.parametrize(
    "weights",
    [
        {"d0": 3.0, "d2": 0.5},
        {"d1": 0.0},
        {"d0": 0.0, "d1": 0.0, "d2": 0.0},
        {"d0": 1e-300, "d1": 0.0, "d2": 0.0},
    ],
)
def test_ranks_as_its_formula_with_weights(weights: dict[str, float]) -> None:
    data = simulate_models(NOISE, n=20, seed=1)
    whole = dict.fromkeys(np.unique(data[2]).tolist(), 1.0) | weights
    expected = oracle.unseen(by_domain(data), 3, whole)
    assert_ranked(oodzoo.rank(*data, domain_weights=weights), expected)


def test_a_store_is_ranked_as_its_formula_and_read_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    features, y, domains = simulate_models(NOISE, n=20, seed=1)
    stored = {model: X.astype(np.float32) for model, X in features.items()}
    store = saved(tmp_path, stored, y, domains)
    expected = oracle.unseen(by_domain((stored, y, domains)), 3)
    first = oodzoo.rank(store)
    assert_ranked(first, expected)
    by_test = rank_for_test_domains(store)
    calls = []

    def counted(function: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            calls.append(function)
            return function(*arguments, **options)

        return call

    monkeypatch.setattr(ranker, "leave_one_domain_out", counted(leave_one_domain_out))
    monkeypatch.setattr(ranker, "leave_two_domains_out", counted(leave_two_domains_out))
    monkeypatch.setattr(Transfer, "of", counted(Transfer.of))
    assert oodzoo.rank(oodzoo.FeatureStore(store.path)) == first
    assert rank_for_test_domains(oodzoo.FeatureStore(store.path)) == by_test
    assert calls == []
    for file in (store.path / "cache").rglob("*.npz"):
        file.unlink()
    assert oodzoo.rank(oodzoo.FeatureStore(store.path)) == first
    assert len(calls) == 2 * len(features)  # the counters count


def test_without_a_test_domain_as_if_it_did_not_exist() -> None:
    features, y, domains = simulate_models(NOISE, n=20, seed=3)
    y = y.copy()
    y[np.flatnonzero(domains == "d1")[:4]] = 3  # a class of that domain alone
    for test, ranking in rank_for_test_domains(features, y, domains).items():
        keep = domains != test
        rest = {model: X[keep] for model, X in features.items()}, y[keep], domains[keep]
        alone = oodzoo.rank(*rest)
        assert [row.model for row in ranking.rows] == [row.model for row in alone.rows]
        for row, same in zip(ranking.rows, alone.rows, strict=True):
            for name in ("score", "evidence", "transfer", "expected_accuracy"):
                assert getattr(row, name) == pytest.approx(getattr(same, name), abs=1e-9), name
            assert row.rank_interval == same.rank_interval
        assert_ranked(ranking, oracle.unseen(by_domain(rest), 4))


def test_a_test_domain_has_no_effect_on_its_ranking() -> None:
    features, y, domains = simulate_models(NOISE, n=20, seed=3)
    rng = np.random.default_rng(0)
    there = domains == "d1"
    changed = {
        model: np.where(there[:, None], 7 * rng.normal(size=X.shape), X)
        for model, X in features.items()
    }
    one = rank_for_test_domains(features, y, domains)
    two = rank_for_test_domains(changed, np.where(there, (y + 1) % 3, y), domains)
    scores = [{row.model: row.score for row in found["d1"].rows} for found in (one, two)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-9)
    scores = [{row.model: row.score for row in found["d0"].rows} for found in (one, two)]
    assert scores[0] != pytest.approx(scores[1], abs=1e-3)


@pytest.mark.parametrize("noise", [0.0, 1e-15])
def test_constant_features_are_ranked(noise: float) -> None:
    """Also if they vary by rounding. They have no skill."""
    for seed in range(10, 40):
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(3, 30)), int(rng.integers(1, 12))
        y, domains = np.arange(3 * n) % 3, np.repeat(["a", "b", "c"], n)
        constant = rng.normal(size=d) * (1 + noise * rng.normal(size=(3 * n, d)))
        good = np.eye(3)[y] + 0.3 * rng.normal(size=(3 * n, 3))
        ranking = oodzoo.rank({"constant": constant, "good": good}, y, domains)
        assert ranking.best == "good"
        assert ranking.rows[1].transfer == 0


# --- one bad fold -------------------------------------------------------------------------------


def mixed(X: Floats) -> Floats:
    return 5 * X[:, ::-1]


def larger(X: Floats) -> Floats:
    return 30 * X


def flipped(X: Floats) -> Floats:
    return -3 * X


@pytest.mark.parametrize("damage", [mixed, larger, flipped])
@pytest.mark.parametrize("seed", [0, 1])
def test_one_bad_fold_does_not_put_a_good_model_last(damage: Any, seed: int) -> None:
    """Its log-density there is so low that the ZooD score, a mean, puts the model last."""
    features, y, domains = simulate_models(
        {f"m{number:02d}": 1.2**number for number in range(12)}, n=30, d=40, seed=seed
    )
    assert oodzoo.rank(features, y, domains).best == "m00"
    there = domains == "d2"
    features["m00"][there] = damage(features["m00"][there])
    zood = oodzoo.rank(features, y, domains, score="zood")
    (before,) = (row for row in zood.rows if row.model == "m00")
    assert before.rank == 12
    assert min(fold.discriminability for fold in before.folds) < -2.5
    ranking = oodzoo.rank(features, y, domains)
    (after,) = (row for row in ranking.rows if row.model == "m00")
    assert after.rank <= 9
    order = [row.model for row in ranking.rows if row.model != "m00"]
    swaps = np.abs(np.argsort([int(model[1:]) for model in order]) - np.arange(11))
    assert swaps.max() <= 2  # the other models stay in their order


@pytest.mark.parametrize("size", [1e2, 1e6])
def test_one_bad_sample_does_not_put_a_good_model_last(size: float) -> None:
    features, y, domains = simulate_models(
        {f"m{number:02d}": 1.2**number for number in range(12)}, n=30, d=40
    )
    features["m00"][75] *= size
    ranks = {row.model: row.rank for row in oodzoo.rank(features, y, domains).rows}
    assert ranks["m00"] <= 9
