"""Rows of a ranking: what to expect of each model, and which models are ranked and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.oracles import folds as regressions
from tests.oracles import unseen as scores_oracle
from tests.oracles.intervals import new_domain_interval, pareto_optimal
from tests.ranking.data import Arrays, saved, simulate_models

import oodzoo
from oodzoo.ranking.ranker import rank_for_test_domains
from oodzoo.store.local import update_local

Sample = tuple[Arrays, NDArray[np.int64], NDArray[Any]]
NAMES = ("d0", "d1", "d2", "d3")
SEEDS = (0, 2)
"""With these, no two models have the same accuracy without a domain."""


def close(seed: int) -> Sample:
    """Models that differ so little that held-out domains prefer different ones."""
    noise = {"a": 1.0, "b": 1.05, "c": 1.1, "d": 1.15}
    features, y, domains = simulate_models(noise, n=24, seed=seed)
    y = np.where((domains == "d1") & (y == 2) & (np.arange(len(y)) % 2 == 0), 1, y)
    return features, y, domains


def shares(weights: Mapping[str, float] | None) -> dict[str, float]:
    given = {d: (weights or {}).get(d, 1.0) for d in NAMES}
    return {d: w / sum(given.values()) for d, w in given.items()}


def data_of(sample: Sample) -> dict[str, dict[str, Any]]:
    features, y, domains = sample
    return {
        model: {d: (X[domains == d], y[domains == d]) for d in NAMES}
        for model, X in features.items()
    }


def results_of(sample: Sample) -> dict[str, dict[str, regressions.Result]]:
    return {model: regressions.leave_one_out(each, 3) for model, each in data_of(sample).items()}


def without_each(
    sample: Sample, score: str, weights: dict[str, float]
) -> dict[str, dict[str, float]]:
    """The score of each model without the results on each domain."""
    if score == "unseen":
        data = data_of(sample)
        return {d: scores_oracle.unseen(data, 3, weights, without=d) for d in NAMES}
    results = results_of(sample)
    rest: dict[str, dict[str, float]] = {}
    for d in NAMES:
        others = {k: w for k, w in weights.items() if k != d}
        if not sum(others.values()):
            others = dict.fromkeys(others, 1.0)
        rest[d] = {
            model: sum(w * getattr(each[k], score) for k, w in others.items())
            / sum(others.values())
            for model, each in results.items()
        }
    return rest


WEIGHTS: list[dict[str, float] | None] = [None, {"d0": 3.0, "d2": 0.5}, {"d1": 0.0}]


# --- expected accuracy --------------------------------------------------------------------------


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("score", ["unseen", "accuracy", "balanced_accuracy"])
@pytest.mark.parametrize("seed", SEEDS)
def test_expected_accuracy_is_the_definition(
    seed: int, score: str, weights: dict[str, float] | None
) -> None:
    """Of the first model: that of the models chosen without each domain, on this domain."""
    sample, w = close(seed), shares(weights)
    rows = oodzoo.rank(*sample, score=score, domain_weights=weights).rows
    results = results_of(sample)
    choices = regressions.chosen_without(without_each(sample, score, w))
    for row in rows:
        of = choices if row.rank == 1 else dict.fromkeys(NAMES, row.model)
        accuracies = [results[of[d]][d].accuracy for d in NAMES]
        expected = sum(w[d] * a for d, a in zip(NAMES, accuracies, strict=True))
        assert row.expected_accuracy == pytest.approx(100 * expected)
        variances = []
        for d, accuracy in zip(NAMES, accuracies, strict=True):
            variances.append(accuracy * (1 - accuracy) / (np.sum(sample[2] == d) - 1))
        every = [[each[d].accuracy for d in NAMES] for each in results.values()]
        low, high = new_domain_interval(
            accuracies, variances, [w[d] for d in NAMES], every if row.rank == 1 else ()
        )
        assert row.accuracy_interval == pytest.approx((100 * max(0, low), 100 * min(1, high)))
        for fold in row.folds:
            own = results[row.model][fold.domain]
            assert fold.accuracy == pytest.approx(100 * own.accuracy)
            assert fold.balanced_accuracy == pytest.approx(100 * own.balanced_accuracy)


@pytest.mark.parametrize("score", ["unseen", "accuracy", "balanced_accuracy"])
def test_another_model_is_chosen_without_some_domain(score: str) -> None:
    """So that the test above can fail."""
    changed = []
    for seed in SEEDS:
        first = oodzoo.rank(*close(seed), score=score).rows[0]
        plain = np.mean([fold.accuracy for fold in first.folds])
        changed.append(first.expected_accuracy != pytest.approx(plain))
    assert any(changed)


def test_the_first_of_equal_models_is_flattered_less() -> None:
    """All models guess, so 50 % are to be expected, and the luckiest does better."""
    promised, luckiest = [], []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        y, domains = np.tile([0, 1], 60), np.repeat(["x", "y", "z"], 40)
        features = {str(at): rng.normal(size=(120, 2)) for at in range(12)}
        first = oodzoo.rank(features, y, domains, score="accuracy").rows[0]
        promised.append(first.expected_accuracy)
        luckiest.append(100 * first.score)
    assert abs(np.mean(promised) - 50) < 0.5 * (np.mean(luckiest) - 50)


def test_a_single_model_has_its_mean_accuracy() -> None:
    features, y, domains = close(0)
    (row,) = oodzoo.rank({"a": features["a"]}, y, domains).rows
    assert row.expected_accuracy == pytest.approx(np.mean([f.accuracy for f in row.folds]))
    assert (row.rank_interval, row.tied) == ((1, 1), ())


def test_one_domain_with_all_the_weight() -> None:
    """Nothing is known about how much domains differ."""
    weights = {"d0": 0.0, "d1": 0.0, "d3": 0.0}
    for row in oodzoo.rank(*close(0), domain_weights=weights).rows:
        assert row.accuracy_interval == (0, 100)
        if row.rank > 1:
            assert row.expected_accuracy == pytest.approx(row.folds[2].accuracy)


# --- scores -------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", WEIGHTS)
def test_balanced_accuracy_ranks(weights: dict[str, float] | None) -> None:
    sample, w = close(2), shares(weights)
    means = {
        model: sum(w[d] * each[d].balanced_accuracy for d in NAMES)
        for model, each in results_of(sample).items()
    }
    ranking = oodzoo.rank(*sample, score="balanced_accuracy", domain_weights=weights)
    assert ranking.score == "balanced_accuracy"
    assert {row.model: row.score for row in ranking.rows} == pytest.approx(means)
    assert [row.model for row in ranking.rows] == sorted(means, key=lambda m: (-means[m], m))
    for row in ranking.rows:
        assert [fold.score for fold in row.folds] == pytest.approx(
            [fold.balanced_accuracy / 100 for fold in row.folds]
        )


@pytest.mark.parametrize("score", ["zood", "transfer", "discriminability", "stability", "accuracy"])
def test_weighted_scores_are_means_over_domains(score: str) -> None:
    weights = {"d0": 3.0, "d2": 0.5}
    w = np.array(list(shares(weights).values()))
    for row in oodzoo.rank(*close(0), score=score, domain_weights=weights).rows:
        assert row.score == pytest.approx(w @ [fold.score or 0 for fold in row.folds])
        for name in ("discriminability", "stability"):
            values = [getattr(fold, name) for fold in row.folds]
            assert getattr(row, name) == pytest.approx(w @ values)
        assert row.transfer == pytest.approx(w @ [fold.transfer or 0 for fold in row.folds])


def test_values_of_the_default_score_average_to_it() -> None:
    weights = {"d0": 3.0, "d2": 0.5}
    w = np.array(list(shares(weights).values()))
    for row in oodzoo.rank(*close(0), domain_weights=weights).rows:
        assert row.score == pytest.approx(w @ [fold.score or 0 for fold in row.folds], abs=1e-12)


def test_weights_that_are_equal_change_nothing() -> None:
    sample = close(0)
    assert oodzoo.rank(*sample, domain_weights=dict.fromkeys(NAMES, 7.0)) == oodzoo.rank(*sample)


def test_weights_of_a_test_domain_do_not_matter() -> None:
    sample = close(0)
    rankings = rank_for_test_domains(*sample, domain_weights={"d0": 9.0, "d1": 2.0})
    assert rankings["d0"] == rank_for_test_domains(*sample, domain_weights={"d1": 2.0})["d0"]
    assert rankings["d2"] != rank_for_test_domains(*sample)["d2"]


def spread_of_domains(X: NDArray[Any], y: NDArray[Any], domains: NDArray[Any]) -> float:
    """Domains are names, sorted; rows are in their order."""
    assert domains.tolist() == sorted(domains.tolist())
    assert set(y.tolist()) == {0, 1, 2}
    return -float(np.std([X[domains == d].mean() for d in NAMES]))


def test_a_function_of_domains_is_a_score() -> None:
    features, y, domains = sample = close(0)
    ranking = oodzoo.rank(*sample, score=spread_of_domains)
    expected = {model: spread_of_domains(X, y, domains) for model, X in features.items()}
    assert ranking.score == "spread_of_domains"
    assert {row.model: row.score for row in ranking.rows} == pytest.approx(expected)
    assert [row.model for row in ranking.rows] == sorted(expected, key=lambda m: -expected[m])


def test_a_function_is_a_score() -> None:
    """The rows have everything else, but no intervals of ranks, which need values per domain."""
    sample = close(0)
    ranking = oodzoo.rank(*sample, score=lambda X, y: -float(np.abs(X).sum()))
    sums = {model: -float(np.abs(X).sum()) for model, X in sample[0].items()}
    assert {row.model: row.score for row in ranking.rows} == pytest.approx(sums)
    plain = {row.model: row for row in oodzoo.rank(*sample).rows}
    results = results_of(sample)
    for row in ranking.rows:
        assert (row.rank_interval, row.tied) == (None, ())
        assert all(fold.score is None for fold in row.folds)
        mean = np.mean([results[row.model][d].accuracy for d in NAMES])
        assert row.expected_accuracy == pytest.approx(100 * mean)
        folds = tuple(replace(fold, score=None) for fold in plain[row.model].folds)
        assert row.folds == folds
        assert (row.evidence, row.transfer) == (
            plain[row.model].evidence,
            plain[row.model].transfer,
        )


def test_models_of_equal_scores_are_in_order_of_their_names() -> None:
    ranking = oodzoo.rank(*close(0), score=lambda X, y: 1.0)
    assert [row.model for row in ranking.rows] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("score", "words"),
    [
        (lambda X, y: np.nan, "must be a finite number, got nan"),
        (lambda X, y: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda X, y: X, "must be a finite number, got an array of shape"),
    ],
)
def test_a_function_that_fails_is_one_line(score: Any, words: str) -> None:
    with pytest.raises(oodzoo.InputError, match=words) as caught:
        oodzoo.rank(*close(0), score=score)
    assert "\n" not in str(caught.value)


# --- costs and constraints ----------------------------------------------------------------------

MILLISECONDS = {"a": 9.0, "b": 2.0, "c": 1.0, "d": 12.0}


@pytest.fixture
def store(tmp_path: Path) -> oodzoo.FeatureStore:
    """Four models of different speed."""
    made = saved(tmp_path, *close(0))
    for model, value in MILLISECONDS.items():
        update_local(made.path, model, {"milliseconds_per_image": value})
    return oodzoo.FeatureStore(made.path)


def test_pareto_front_of_expected_accuracy_and_time(store: oodzoo.FeatureStore) -> None:
    ranking = oodzoo.rank(store)
    accuracy = {row.model: row.expected_accuracy for row in ranking.rows}
    expected = pareto_optimal(accuracy, MILLISECONDS)
    assert {row.model for row in ranking.rows if row.pareto_optimal} == expected
    assert 1 < len(expected) < 4
    front = [row.expected_accuracy for row in ranking.pareto_front]
    assert front == sorted(front)
    assert {row.model: row.milliseconds for row in ranking.rows} == MILLISECONDS


def test_models_without_known_costs_are_not_pareto_optimal() -> None:
    ranking = oodzoo.rank(*close(0))
    assert not any(row.pareto_optimal for row in ranking.rows)
    assert ranking.pareto_front == ()


def test_models_that_do_not_meet_a_constraint_are_named(store: oodzoo.FeatureStore) -> None:
    ranking = oodzoo.rank(store, max_ms=9)
    assert {row.model for row in ranking.rows} == {"a", "b", "c"}
    assert [row.rank for row in ranking.rows] == [1, 2, 3]
    assert ranking.left_out == {"d": "more than 9 ms per image"}


def test_left_out_models_have_no_effect_on_the_others(store: oodzoo.FeatureStore) -> None:
    features = {model: np.concatenate([store.features(model, d) for d in NAMES]) for model in "bc"}
    labels = np.concatenate([store.labels(d) for d in NAMES])
    names = np.repeat(NAMES, [len(store.labels(d)) for d in NAMES])
    found, alone = oodzoo.rank(store, max_ms=2), oodzoo.rank(features, labels, names)
    for row, same in zip(found.rows, alone.rows, strict=True):
        assert row.model == same.model
        assert row.score == pytest.approx(same.score)
        assert row.expected_accuracy == pytest.approx(same.expected_accuracy)
        assert row.rank_interval == same.rank_interval


@pytest.mark.parametrize("limits", [{"max_parameters": "25M"}, {"licence": "mit"}])
def test_unknown_costs_meet_no_constraint(
    store: oodzoo.FeatureStore, limits: dict[str, Any]
) -> None:
    with pytest.raises(oodzoo.InputError, match=r"no model meets --.* unknown"):
        oodzoo.rank(store, **limits)


def test_constraints_and_scores_leave_models_out_together(tmp_path: Path) -> None:
    features, y, domains = close(0)
    logits = {f"{model}.logits": 4 * np.eye(3)[y] for model in "ab"}
    made = saved(tmp_path, features, y, domains, **logits)
    for model, value in MILLISECONDS.items():
        update_local(made.path, model, {"milliseconds_per_image": value})
    ranking = oodzoo.rank(oodzoo.FeatureStore(made.path), score="leep", max_ms=9)
    assert {row.model for row in ranking.rows} == {"a", "b"}
    assert list(ranking.left_out) == ["d", "c"]
    assert "classifier head" in ranking.left_out["c"]
    with pytest.raises(oodzoo.InputError, match="'leep' cannot be computed for any model: leep"):
        oodzoo.rank(oodzoo.FeatureStore(made.path), score="leep", max_ms=1)
