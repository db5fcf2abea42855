"""Rankings of arrays and stores: order, what to expect, groups, caches, costs, and the result."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.evaluation.data import zoo
from tests.events.heard import Heard
from tests.fixtures import draw_digits
from tests.oracles import folds as regressions
from tests.oracles import unseen as oracle
from tests.oracles.intervals import new_domain_interval, pareto_optimal
from tests.ranking.data import Arrays, Data, moments_of, saved, simulate_models

import oodzoo
from oodzoo.extraction.config import ExtractionConfig
from oodzoo.extraction.extract import open_unlabelled, run_extraction
from oodzoo.extraction.source import ArraySource
from oodzoo.ranking import ranker
from oodzoo.ranking.folds import leave_one_domain_out
from oodzoo.ranking.ranker import normalised_weights, rank_for_test_domains
from oodzoo.ranking.result import Ranking
from oodzoo.ranking.ridge import Transfer
from oodzoo.ranking.top_k import choose_top_k, one_top_k, parse_top_k
from oodzoo.store.local import update_local
from oodzoo.store.table import SampleTable
from oodzoo.store.writer import writing
from oodzoo.zoo import ModelSpec

Sample = tuple[Arrays, NDArray[Any], NDArray[Any]]
NOISE = {"a": 0.5, "b": 1.0, "c": 1.4, "d": 2.0, "e": 4.0}
NAMES = ("d0", "d1", "d2", "d3")


def by_domain(features: Any, y: Any, domains: Any) -> dict[str, Data]:
    names = np.unique(domains).tolist()
    return {m: {d: (X[domains == d], y[domains == d]) for d in names} for m, X in features.items()}


def assert_ranked(ranking: Ranking, expected: dict[str, float]) -> None:
    assert ranking.score == "unseen"
    assert {row.model: row.score for row in ranking} == pytest.approx(expected, abs=1e-6)
    order = sorted(expected, key=lambda model: (-round(expected[model], 6), model))
    assert [row.model for row in ranking] == order


def assert_alike(one: Ranking, two: Ranking) -> None:
    assert [row.model for row in one] == [row.model for row in two]
    for row, same in zip(one, two, strict=True):
        for name in ("score", "evidence", "transfer", "expected_accuracy"):
            assert getattr(row, name) == pytest.approx(getattr(same, name), rel=1e-9, abs=1e-9)
        assert row.rank_interval == same.rank_interval


# --- the default score ----------------------------------------------------------------------------


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("d", [6, 150])
def test_ranks_as_its_formula(d: int, device: str | None) -> None:
    if device is not None:
        pytest.importorskip("torch", reason="PyTorch is not installed")
    data = simulate_models(NOISE, n=20, d=d, seed=1)
    models = by_domain(*data)
    ranking = oodzoo.rank(*data, device=device)
    assert_ranked(ranking, oracle.unseen(models, 3))
    for row in ranking:
        assert row.evidence == pytest.approx(oracle.evidence(models[row.model]), rel=1e-8)
        assert row.transfer == pytest.approx(100 * oracle.transfer(models[row.model], 3), abs=1e-7)
        means = oracle.into(oracle.pairs(models[row.model], 3), [fold.domain for fold in row.folds])
        expected = [100 * value for value in means.values()]
        assert [fold.transfer for fold in row.folds] == pytest.approx(expected, abs=1e-7)


def test_ranks_as_its_formula_with_odd_classes_and_weights() -> None:
    """A domain with one class, a class that one domain lacks and one that only one has."""
    features, y, domains = simulate_models(NOISE, n=20, seed=2)
    odd = y.copy()
    odd[domains == "d0"] = 2
    odd[(domains == "d1") & (odd == 1)] = 0
    odd[np.flatnonzero(domains == "d2")[:4]] = 3
    ranking = oodzoo.rank(features, odd, domains)
    assert_ranked(ranking, oracle.unseen(by_domain(features, odd, domains), 4))
    skipped = {fold.domain: fold.skipped for fold in ranking[0].folds if fold.skipped}
    assert skipped == {"d2": ("3",)}
    assert all(np.isfinite(row.expected_accuracy) for row in ranking)
    for weights in (
        {"d0": 3.0, "d2": 0.5},
        {"d1": 0.0},
        {"d0": 0.0, "d1": 0.0, "d2": 0.0},
        {"d0": 1e-300, "d1": 0.0, "d2": 0.0},
    ):
        whole = dict.fromkeys(NAMES, 1.0) | weights
        expected = oracle.unseen(by_domain(features, y, domains), 3, whole)
        assert_ranked(oodzoo.rank(features, y, domains, domain_weights=weights), expected)


def test_without_a_test_domain_as_if_it_did_not_exist() -> None:
    features, y, domains = simulate_models(NOISE, n=20, seed=3)
    y[np.flatnonzero(domains == "d1")[:4]] = 3  # a class of that domain alone
    rankings = rank_for_test_domains(features, y, domains)
    for test, ranking in rankings.items():
        keep = domains != test
        rest = {model: X[keep] for model, X in features.items()}, y[keep], domains[keep]
        assert_alike(ranking, oodzoo.rank(*rest))
        assert_ranked(ranking, oracle.unseen(by_domain(*rest), 4))
    weighted = rank_for_test_domains(features, y, domains, domain_weights={"d0": 9.0, "d1": 2.0})
    alone = rank_for_test_domains(features, y, domains, domain_weights={"d1": 2.0})
    assert weighted["d0"] == alone["d0"]
    assert weighted["d2"] != rankings["d2"]


@given(seed=st.integers(0, 10**6))
@settings(max_examples=12, deadline=None)
def test_order_of_samples_models_and_names_does_not_matter(seed: int) -> None:
    rng = np.random.default_rng(seed)
    features, y, domains = simulate_models({"a": 0.5, "b": 1.5, "c": 1.0}, n=24, seed=seed)
    order = rng.permutation(len(y))
    shuffled = {name: features[name][order] for name in rng.permutation(list(features))}
    classes = np.array(["z", "x", "y"])  # also another order of the classes
    other = oodzoo.rank(shuffled, classes[y][order], domains[order])
    assert_alike(oodzoo.rank(features, y, domains), other)


def test_lists_frames_and_groups_are_taken_by_position() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is an extra")
    features, y, domains = simulate_models({"a": 1.0}, n=30)
    expected = oodzoo.rank(features, y, domains)
    assert oodzoo.rank({"a": features["a"].tolist()}, y.tolist(), domains.tolist()) == expected
    frame = {"a": pandas.DataFrame(features["a"])}
    assert oodzoo.rank(frame, pandas.Series(y), pandas.Series(domains)) == expected
    groups = np.random.default_rng(0).integers(0, 20, len(y)).astype(str)
    series = pandas.Series(groups, index=np.random.default_rng(1).permutation(len(y)))
    found = oodzoo.rank(features, y, domains, groups=series)
    assert found == oodzoo.rank(features, y, domains, groups=groups.tolist())


@pytest.mark.parametrize("noise", [0.0, 1e-15])
def test_constant_features_have_no_skill(noise: float) -> None:
    """Also if they vary by rounding."""
    for seed in range(10, 30):
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(3, 30)), int(rng.integers(1, 12))
        y, domains = np.arange(3 * n) % 3, np.repeat(["a", "b", "c"], n)
        constant = rng.normal(size=d) * (1 + noise * rng.normal(size=(3 * n, d)))
        good = np.eye(3)[y] + 0.3 * rng.normal(size=(3 * n, 3))
        ranking = oodzoo.rank({"constant": constant, "good": good}, y, domains)
        assert ranking.best == "good"
        assert ranking[1].transfer == 0


@pytest.mark.parametrize("damage", [lambda X: 5 * X[:, ::-1], lambda X: 30 * X, lambda X: -3 * X])
@pytest.mark.parametrize("seed", [0, 1])
def test_one_bad_fold_or_sample_does_not_put_a_good_model_last(damage: Any, seed: int) -> None:
    """Its log-density there is so low that the ZooD score, a mean, puts the model last."""
    noise = {f"m{number:02d}": 1.2**number for number in range(12)}
    features, y, domains = simulate_models(noise, n=30, d=40, seed=seed)
    assert oodzoo.rank(features, y, domains).best == "m00"
    sound = features["m00"].copy()
    there = domains == "d2"
    features["m00"][there] = damage(features["m00"][there])
    before = oodzoo.rank(features, y, domains, score="zood")["m00"]
    assert before.rank == 12
    assert min(fold.discriminability for fold in before.folds) < -2.5
    ranking = oodzoo.rank(features, y, domains)
    assert ranking["m00"].rank <= 9
    order = [int(row.model[1:]) for row in ranking if row.model != "m00"]
    assert np.abs(np.argsort(order) - np.arange(11)).max() <= 2  # the others stay in order
    features["m00"] = sound
    features["m00"][75] *= 10.0 ** (2 + 4 * seed)
    assert oodzoo.rank(features, y, domains)["m00"].rank <= 9


@pytest.mark.parametrize("seed", range(6))
def test_ties(seed: int) -> None:
    """Scores of the same model, turned, differ by rounding alone; ties are listed best first."""
    features, y, domains = simulate_models({"a": 0.5, "far": 8.0}, seed=seed)
    rotation = np.linalg.qr(np.random.default_rng(seed).normal(size=(6, 6)))[0]
    ranking = oodzoo.rank({**features, "turned": features["a"] @ rotation}, y, domains)
    assert ranking["turned"].tied == ("a",)
    assert ranking["a"].rank_interval == ranking["turned"].rank_interval == (1, 2)
    assert ranking["far"].rank_interval == (3, 3)
    close = oodzoo.rank(*simulate_models({name: 1.0 + 0.02 * at for at, name in enumerate("dcba")}))
    order = [row.model for row in close]
    assert max(len(row.tied) for row in close) > 1
    assert all(list(row.tied) == sorted(row.tied, key=order.index) for row in close)


def test_a_large_offset_is_warned_of_each_time_and_hides_nothing(tmp_path: Path) -> None:
    features, y, domains = simulate_models({"far": 0.3, "near": 0.5})
    (expected,) = (row for row in oodzoo.rank(features, y, domains) if row.model == "far")
    features["far"] = features["far"] + 1e5
    store = saved(tmp_path, features, y, domains)
    for _ in range(2):
        for ranked in (oodzoo.rank, rank_for_test_domains):
            words = r"model 'far': the mean of the features is [12]e[+]05 times .*; centre or"
            with pytest.warns(UserWarning, match=words) as said:
                found = ranked(store)
            assert len(said) == 1
            if isinstance(found, Ranking):
                assert found["far"].expected_accuracy > expected.expected_accuracy - 5 > 75


# --- expected accuracy, and other scores ----------------------------------------------------------


def close(seed: int) -> Sample:
    """Models that differ so little that held-out domains prefer different ones.

    With the seeds 0 and 2, no two models have the same accuracy without a domain.
    """
    noise = {"a": 1.0, "b": 1.05, "c": 1.1, "d": 1.15}
    features, y, domains = simulate_models(noise, n=24, seed=seed)
    y = np.where((domains == "d1") & (y == 2) & (np.arange(len(y)) % 2 == 0), 1, y)
    return features, y, domains


def shares(weights: Mapping[str, float] | None) -> dict[str, float]:
    given = {d: (weights or {}).get(d, 1.0) for d in NAMES}
    return {d: w / sum(given.values()) for d, w in given.items()}


def results_of(sample: Sample) -> dict[str, dict[str, regressions.Result]]:
    return {model: regressions.leave_one_out(each, 3) for model, each in by_domain(*sample).items()}


def without_each(
    sample: Sample, score: str, weights: dict[str, float]
) -> dict[str, dict[str, float]]:
    """The score of each model without the results on each domain."""
    if score == "unseen":
        data = by_domain(*sample)
        return {d: oracle.unseen(data, 3, weights, without=d) for d in NAMES}
    rest: dict[str, dict[str, float]] = {}
    for d in NAMES:
        others = {k: w for k, w in weights.items() if k != d}
        if not sum(others.values()):
            others = dict.fromkeys(others, 1.0)
        total = sum(others.values())
        rest[d] = {
            model: sum(w * getattr(each[k], score) for k, w in others.items()) / total
            for model, each in results_of(sample).items()
        }
    return rest


WEIGHTS: list[dict[str, float] | None] = [None, {"d0": 3.0, "d2": 0.5}, {"d1": 0.0}]


@pytest.mark.parametrize("score", ["unseen", "accuracy", "balanced_accuracy"])
def test_expected_accuracy_is_the_definition(score: str) -> None:
    """Of the first model: that of the models chosen without each domain, on this domain."""
    changed = []
    for seed, weights in ((0, WEIGHTS[0]), (2, WEIGHTS[0]), (0, WEIGHTS[1]), (2, WEIGHTS[2])):
        sample, results = close(seed), results_of(close(seed))
        every = [[each[d].accuracy for d in NAMES] for each in results.values()]
        w = shares(weights)
        ranking = oodzoo.rank(*sample, score=score, domain_weights=weights)
        choices = regressions.chosen_without(without_each(sample, score, w))
        for row in ranking:
            of = choices if row.rank == 1 else dict.fromkeys(NAMES, row.model)
            accuracies = [results[of[d]][d].accuracy for d in NAMES]
            expected = 100 * sum(w[d] * a for d, a in zip(NAMES, accuracies, strict=True))
            assert row.expected_accuracy == pytest.approx(expected)
            variances = [
                a * (1 - a) / (np.sum(sample[2] == d) - 1)
                for d, a in zip(NAMES, accuracies, strict=True)
            ]
            low, high = new_domain_interval(
                accuracies, variances, [w[d] for d in NAMES], every if row.rank == 1 else ()
            )
            assert row.accuracy_interval == pytest.approx((100 * max(0, low), 100 * min(1, high)))
            for fold in row.folds:
                own = results[row.model][fold.domain]
                assert fold.accuracy == pytest.approx(100 * own.accuracy)
                assert fold.balanced_accuracy == pytest.approx(100 * own.balanced_accuracy)
            if score != "unseen":
                own_score = sum(w[d] * getattr(results[row.model][d], score) for d in NAMES)
                assert row.score == pytest.approx(own_score)
        plain = sum(w[f.domain] * f.accuracy for f in ranking[0].folds)
        changed.append(ranking[0].expected_accuracy != pytest.approx(plain))
    assert any(changed)  # so that this can fail


def test_the_first_of_equal_models_is_flattered_less() -> None:
    """All models guess, so 50 % are to be expected, and the luckiest does better."""
    promised, luckiest = [], []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        y, domains = np.tile([0, 1], 60), np.repeat(["x", "y", "z"], 40)
        features = {str(at): rng.normal(size=(120, 2)) for at in range(12)}
        first = oodzoo.rank(features, y, domains, score="accuracy")[0]
        promised.append(first.expected_accuracy)
        luckiest.append(100 * first.score)
    assert abs(np.mean(promised) - 50) < 0.5 * (np.mean(luckiest) - 50)


def test_one_model_one_domain_and_equal_weights() -> None:
    features, y, domains = sample = close(0)
    (row,) = oodzoo.rank({"a": features["a"]}, y, domains)
    assert row.expected_accuracy == pytest.approx(np.mean([f.accuracy for f in row.folds]))
    assert (row.score, row.rank_interval, row.tied) == (0, (1, 1), ())
    weights = {"d0": 0.0, "d1": 0.0, "d3": 0.0}  # nothing is known about how domains differ
    for row in oodzoo.rank(*sample, domain_weights=weights):
        assert row.accuracy_interval == (0, 100)
        assert row.rank == 1 or row.expected_accuracy == pytest.approx(row.folds[2].accuracy)
    plain = oodzoo.rank(*sample)
    assert oodzoo.rank(*sample, domain_weights=dict.fromkeys(NAMES, 7.0)) == plain


@pytest.mark.parametrize(
    "score", ["unseen", "zood", "transfer", "discriminability", "stability", "accuracy"]
)
def test_scores_are_weighted_means_over_domains(score: str) -> None:
    weights = {"d0": 3.0, "d2": 0.5}
    w = np.array(list(shares(weights).values()))
    ranking = oodzoo.rank(*close(0), score=score, domain_weights=weights)
    assert [row.score for row in ranking] == sorted((row.score for row in ranking), reverse=True)
    for row in ranking:
        assert row.score == pytest.approx(w @ [fold.score or 0 for fold in row.folds], abs=1e-12)
        for name in ("discriminability", "stability"):
            values = [getattr(fold, name) for fold in row.folds]
            assert getattr(row, name) == pytest.approx(w @ values)
        assert row.transfer == pytest.approx(w @ [fold.transfer or 0 for fold in row.folds])
        if score == "zood":
            assert row.score == pytest.approx(row.discriminability + row.stability / 9)
        if score in ("discriminability", "stability"):
            assert row.score == pytest.approx(getattr(row, score))


def test_the_printed_formula_and_more_models() -> None:
    features, y, domains = simulate_models({"a": 0.5, "b": 1.5})
    paper = oodzoo.rank(features, y, domains, score="zood", stability="paper")
    data = by_domain(features, y, domains)["a"]
    folds = leave_one_domain_out(moments_of(data, 3), lambda d: [data[d]], stability="paper")
    expected = np.mean([f.discriminability + f.spread_ratio * f.stability for f in folds])
    assert paper["a"].score == pytest.approx(expected)
    both = oodzoo.rank(features, y, domains, score="zood")
    alone = oodzoo.rank({"a": features["a"]}, y, domains, score="zood")
    assert alone["a"].score == both["a"].score  # it depends on one model only


def spread_of_domains(X: NDArray[Any], y: NDArray[Any], domains: NDArray[Any]) -> float:
    """Domains are names, sorted; rows are in their order."""
    assert domains.tolist() == sorted(domains.tolist())
    assert set(y.tolist()) == {0, 1, 2}
    return -float(np.std([X[domains == d].mean() for d in NAMES]))


def test_a_function_is_a_score() -> None:
    """The rows have everything else, but no intervals of ranks, which need values per domain."""
    features, y, domains = sample = close(0)
    ranking = oodzoo.rank(*sample, score=spread_of_domains)
    expected = {model: spread_of_domains(X, y, domains) for model, X in features.items()}
    assert ranking.score == "spread_of_domains"
    assert {row.model: row.score for row in ranking} == pytest.approx(expected)
    assert [row.model for row in ranking] == sorted(expected, key=lambda m: -expected[m])
    plain, results = oodzoo.rank(*sample), results_of(sample)
    for row in ranking:
        same = plain[row.model]
        assert (row.rank_interval, row.tied) == (None, ())
        mean = np.mean([results[row.model][d].accuracy for d in NAMES])
        assert row.expected_accuracy == pytest.approx(100 * mean)
        assert row.folds == tuple(replace(fold, score=None) for fold in same.folds)
        assert (row.evidence, row.transfer) == (same.evidence, same.transfer)
    equal = oodzoo.rank(*sample, score=lambda X, y: 1.0)
    assert [row.model for row in equal] == ["a", "b", "c", "d"]


def test_registered_scores_rank_a_store(tmp_path: Path) -> None:
    features, y, domains = simulate_models({"a": 0.5, "b": 3.0})
    store = saved(tmp_path, features, y, domains, **{"a.logits": 4 * np.eye(3)[y]})
    for name in oodzoo.scores.names():
        needs = oodzoo.scores.get(name).needs
        if needs == "class_embeddings":
            continue
        ranking = oodzoo.rank(store, score=name)
        assert len(ranking) == (2 if needs == "features" else 1)
        assert needs == "features" or "classifier head" in ranking.left_out["b"]
        assert ranking[0].rank_interval is None
    X = np.concatenate([store.features("a", d) for d in store.domains])
    labels = np.concatenate([store.labels(d) for d in store.domains])
    row = oodzoo.rank(store, score="logme")["a"]
    assert row.score == pytest.approx(oodzoo.scores.logme(X, labels))


def test_the_events_of_a_ranking() -> None:
    data, heard = simulate_models({"poor": 4.0, "best": 0.3}), Heard()
    ranking = oodzoo.rank(*data, score="zood", listener=heard)
    [(stage, start)] = heard.of("start")
    assert (stage, start["score"], start["models"]) == ("ranking", "zood", ["poor", "best"])
    assert (start["domains"], start["images"]) == (list(NAMES), len(data[1]))
    assert heard.steps() == [(0, 2), (1, 2), (2, 2)]
    assert heard.metrics("ranking") == ranking.metrics
    assert ranking.metrics["best/score"] == ranking["best"].score
    assert ranking.metrics["poor/expected_accuracy"] == ranking["poor"].expected_accuracy
    assert heard.of("end")[0][1]["result"] == ranking
    heard = Heard()

    def refuse(X: Any, y: Any) -> float:
        raise RuntimeError("out of memory")

    with pytest.raises(oodzoo.InputError):
        oodzoo.rank(*data, score=refuse, listener=heard)
    assert heard.outline() == [("ranking", "start"), ("ranking", "failed")]
    assert "out of memory" in heard.of("end")[0][1]["error"]


# --- stores and their caches ----------------------------------------------------------------------


def test_a_store_is_ranked_as_its_formula_and_read_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    features, y, domains = simulate_models(NOISE, n=20, seed=1)
    stored = {model: X.astype(np.float32) for model, X in features.items()}
    store = saved(tmp_path, stored, y, domains)
    first = oodzoo.rank(store)
    assert_ranked(first, oracle.unseen(by_domain(stored, y, domains), 3))
    by_test = rank_for_test_domains(store)
    files = {file: file.stat().st_mtime_ns for file in (store.path / "cache").rglob("*.npz")}
    assert {file.parent.name for file in files} == {"folds", "moments"}
    calls = []

    def counted(function: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            calls.append(function)
            return function(*arguments, **options)

        return call

    for name in ("leave_one_domain_out", "leave_two_domains_out"):
        monkeypatch.setattr(ranker, name, counted(getattr(ranker, name)))
    monkeypatch.setattr(Transfer, "of", counted(Transfer.of))
    assert oodzoo.rank(oodzoo.FeatureStore(store.path)) == first
    assert rank_for_test_domains(oodzoo.FeatureStore(store.path)) == by_test
    assert {file: file.stat().st_mtime_ns for file in files} == files
    assert calls == []
    for file, damage in zip(files, [b"", b"not a zip file"] * len(files), strict=False):
        file.write_bytes(damage)  # and made anew
    assert oodzoo.rank(oodzoo.FeatureStore(store.path)) == first
    assert len(calls) == 2 * len(features)  # the counters count


def changed_table(store: oodzoo.FeatureStore, change: Callable[[Any], Any]) -> oodzoo.FeatureStore:
    """Replace the labels or groups of a store, domain by domain."""
    with writing(store.path) as writer:
        writer.set_table(SampleTable([change(domain) for domain in store.table.domains]))
        writer.finish()
    return oodzoo.FeatureStore(store.path)


def regrouped(store: oodzoo.FeatureStore, groups: Sequence[str | None]) -> oodzoo.FeatureStore:
    left = list(groups)

    def change(domain: Any) -> Any:
        own = [left.pop(0) for _ in domain.images]
        return msgspec.structs.replace(domain, groups=own)

    return changed_table(store, change)


def test_the_cache_does_not_outlive_labels_and_groups(tmp_path: Path) -> None:
    features, y, domains = simulate_models({"a": 0.8, "b": 2.0}, n=30, n_domains=3)
    features = {model: X.astype(np.float32) for model, X in features.items()}
    store = saved(tmp_path, features, y, domains)
    numbers = np.random.default_rng(0).integers(0, 40, len(y))
    groups = [f"g{k}" if k < 15 else None for k in numbers]
    before = [ranked(store) for ranked in (oodzoo.rank, rank_for_test_domains)]
    for each in (groups, groups[::-1], [None] * len(y)):
        again = regrouped(store, each)
        assert_alike(oodzoo.rank(again), oodzoo.rank(features, y, domains, groups=each))
        found = rank_for_test_domains(again)
        expected = rank_for_test_domains(features, y, domains, groups=each)
        for test in expected:
            assert_alike(found[test], expected[test])
    assert [oodzoo.rank(again), found] == before
    flipped = np.concatenate([y[domains == d][::-1] for d in np.unique(domains)])
    again = changed_table(
        store, lambda domain: msgspec.structs.replace(domain, labels=domain.labels[::-1])
    )
    assert_alike(oodzoo.rank(again), oodzoo.rank(features, flipped, domains))


@pytest.fixture(scope="module")
def targeted(
    digits: Path, zoo: list[ModelSpec], tmp_path_factory: pytest.TempPathFactory
) -> oodzoo.FeatureStore:
    """A store of three models with an unlabelled domain of 36 images."""
    folder = tmp_path_factory.mktemp("target")
    new = open_unlabelled(draw_digits(folder / "new", 4, skip=12))
    config, images = ExtractionConfig(device="cpu"), oodzoo.ImageDomains(digits)
    run_extraction(images, zoo, folder / "store", config, unlabelled=new)
    return oodzoo.FeatureStore(folder / "store")


def test_the_unlabelled_domain_of_a_store(targeted: oodzoo.FeatureStore) -> None:
    store = targeted
    new = {model: store.features(model, "new") for model in store.models}
    found = oodzoo.rank(store, target="new")
    assert found == oodzoo.rank(store, target=new) != oodzoo.rank(store)
    cache = store.path / "cache" / "target"
    files = {file: file.stat().st_mtime_ns for file in cache.glob("*.npz")}
    assert oodzoo.rank(oodzoo.FeatureStore(store.path), target="new") == found
    assert {file: file.stat().st_mtime_ns for file in cache.glob("*.npz")} == files
    # other images are not read from the cache
    training = {
        m: np.concatenate([store.features(m, d) for d in store.domains]) for m in store.models
    }
    labels = [store.labels(d) for d in store.domains]
    names = np.repeat(store.domains, [len(part) for part in labels])
    seen = []
    for images in (new, new | {store.models[0]: new[store.models[0]][::-1]},
                   {m: x[5:] for m, x in new.items()}):  # fmt: skip
        ranking = oodzoo.rank(store, target=images)
        again = oodzoo.rank(training, np.concatenate(labels), names, target=images)
        seen.append({row.model: row.agreement for row in ranking})
        assert {row.model: row.agreement for row in again} == seen[-1]
    assert seen[0] != seen[1]


def test_cached_predictions_for_a_target_do_not_outlive_the_groups(tmp_path: Path) -> None:
    """Their ridge is chosen on the held-out domains."""
    rng = np.random.default_rng(0)
    n, d = 30, 60
    y, domains = np.tile(np.arange(n) % 3, 3), np.repeat(["d0", "d1", "d2"], n)
    groups = [f"g{k}" if k < 20 else None for k in np.tile(np.arange(n), 3)]
    features, target = {}, {}
    for model in "abc":
        signal = rng.normal(size=(3, d))
        own = np.tile(5 * rng.normal(size=(n, d)), (3, 1))  # samples of a group resemble each other
        features[model] = (signal[y] + own + 0.1 * rng.normal(size=(3 * n, d))).astype(np.float32)
        target[model] = signal[np.arange(200) % 3] + 5 * rng.normal(size=(200, d))
    store = saved(tmp_path, features, y, domains)
    oodzoo.rank(store, target=target)
    found = oodzoo.rank(regrouped(store, groups), target=target)
    expected = oodzoo.rank(features, y, domains, groups=groups, target=target)
    assert [(r.model, r.agreement) for r in found] == [(r.model, r.agreement) for r in expected]


# --- costs and constraints ------------------------------------------------------------------------

MILLISECONDS = {"a": 9.0, "b": 2.0, "c": 1.0, "d": 12.0}


def test_costs_and_constraints(tmp_path: Path) -> None:
    features, y, domains = close(0)
    logits = {f"{model}.logits": 4 * np.eye(3)[y] for model in "ab"}
    made = saved(tmp_path, features, y, domains, **logits)
    for model, value in MILLISECONDS.items():
        update_local(made.path, model, {"milliseconds_per_image": value})
    store = oodzoo.FeatureStore(made.path)
    ranking = oodzoo.rank(store)
    accuracy = {row.model: row.expected_accuracy for row in ranking}
    expected = pareto_optimal(accuracy, MILLISECONDS)
    assert {row.model for row in ranking if row.pareto_optimal} == expected
    assert 1 < len(expected) < 4
    front = [row.expected_accuracy for row in ranking.pareto_front]
    assert front == sorted(front)
    assert {row.model: row.milliseconds for row in ranking} == MILLISECONDS
    unknown = oodzoo.rank(features, y, domains)
    assert unknown.pareto_front == ()
    ranking = oodzoo.rank(store, max_ms=9)
    assert [row.rank for row in ranking] == [1, 2, 3]
    assert ranking.left_out == {"d": "more than 9 ms per image"}
    # models that are left out have no effect on the others
    some = {m: np.concatenate([store.features(m, d) for d in NAMES]) for m in "bc"}
    labels = np.concatenate([store.labels(d) for d in NAMES])
    names = np.repeat(NAMES, [len(store.labels(d)) for d in NAMES])
    assert_alike(oodzoo.rank(store, max_ms=2), oodzoo.rank(some, labels, names))
    ranking = oodzoo.rank(store, score="leep", max_ms=9)
    assert {row.model for row in ranking} == {"a", "b"}
    assert list(ranking.left_out) == ["d", "c"]
    assert "classifier head" in ranking.left_out["c"]
    for options, says in (
        ({"score": "leep", "max_ms": 1}, "'leep' cannot be computed for any model: leep"),
        ({"max_parameters": "25M"}, r"no model meets --.* unknown"),
        ({"licence": "mit"}, r"no model meets --.* unknown"),
    ):
        with pytest.raises(oodzoo.InputError, match=says):
            oodzoo.rank(store, **options)


def test_numbers_of_best_models() -> None:
    numbers: Any = [5, 1, np.int64(5)]
    assert (parse_top_k(2), parse_top_k(numbers), parse_top_k("auto")) == ([2], [1, 5], None)
    assert choose_top_k(ArraySource(*zoo()), ["best", "good"], [5, 1, 9]) == 1
    # three views show a bit of the class each: two of them are not enough, noise is no help
    rng = np.random.default_rng(0)
    y, domains = np.tile(np.arange(8), 15), np.repeat(["a", "b", "c"], 40)
    views = {
        f"view{bit}": ((y >> bit) & 1)[:, None] + 0.1 * rng.normal(size=(120, 1))
        for bit in range(3)
    }
    noise = {f"noise{n}": rng.normal(size=(120, 30)) for n in range(2)}
    source = ArraySource(views | noise, y, domains)
    order = list(source.models)
    assert one_top_k("auto", source, order) == one_top_k([1, 2, 3], source, order) == 3
    assert one_top_k([2, 5], source, order) == choose_top_k(source, order, [2, 5])
    assert one_top_k(4, source, order) == 4
    assert one_top_k(9, source, order) == one_top_k([7, 9], source, order) == 5


@given(st.lists(st.floats(0, 1e308), min_size=3, max_size=3).filter(lambda v: max(v) > 1e-300))
def test_weights_are_shares(values: list[float]) -> None:
    domains = ["art", "photo", "sketch"]
    found = normalised_weights(domains, dict(zip(domains, values, strict=True)))
    ratios = np.array(values) / max(values)
    np.testing.assert_allclose(found, ratios / ratios.sum(), atol=1e-15)
    assert normalised_weights(domains, {"sketch": 6}).tolist() == [0.125, 0.125, 0.75]
    np.testing.assert_allclose(normalised_weights(domains), np.full(3, 1 / 3))


# --- the result -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ranking() -> Ranking:
    return oodzoo.rank(*simulate_models({"a": 0.5, "b": 1.5}))


def columns(html: str) -> list[str]:
    head = html[html.index("<thead>") : html.index("</thead>")]
    return re.findall(r"<th [^>]*>(.*?)</th>", head)


def test_text_and_table(ranking: Ranking) -> None:
    heading, first, second = str(ranking).splitlines()
    low, high = ranking[0].accuracy_interval
    assert heading.split() == ["rank", "model", "unseen", "accuracy", "%", "90", "%"]
    expected = f"{ranking[0].expected_accuracy:.1f}"
    assert first.split() == ["1", "a", f"{ranking[0].score:.3f}", expected, f"{low:.0f}-{high:.0f}"]
    assert second.split()[:2] == ["2", "b"]
    found = columns(ranking._repr_html_())
    assert found[:4] == ["rank", "rank, 90 %", "model", "unseen"]
    assert {"evidence", "transfer", "accuracy, %", "features"} <= set(found)
    assert not {"parameters", "ms / image", "Pareto", "agreement, %"} & set(found)
    rows = [replace(row, milliseconds=1.5, rank_interval=None) for row in ranking]
    found = columns(replace(ranking, rows=tuple(rows))._repr_html_())
    assert "ms / image" in found
    assert "rank, 90 %" not in found
    by_accuracy = columns(replace(ranking, score="accuracy")._repr_html_())
    assert by_accuracy.count("accuracy, %") == 1
    assert "accuracy" not in by_accuracy
    odd = replace(ranking, score="model", task="regression")
    assert columns(odd._repr_html_()).count("model") == 2  # a score of that name keeps its column
    assert "explained variance, %" in columns(odd._repr_html_())
    assert "explained variance %" in str(odd).splitlines()[0]
    assert "b/expected_explained_variance" in odd.metrics
    assert "… 10 more rows" in replace(ranking, rows=ranking.rows * 20)._repr_html_()
    assert all(f">{row.model}</text>" in ranking.plot().svg for row in ranking)
    pytest.importorskip("pandas", reason="pandas is an extra")
    frame = ranking.to_frame()
    assert list(frame["model"]) == ["a", "b"]
    assert "accuracy d0" in frame.columns


def test_odd_names_are_escaped_and_shortened(ranking: Ranking) -> None:
    odd = "<script>\n" * 99
    fold = replace(ranking[0].folds[0], domain=odd)
    row = replace(ranking[0], model=odd, folds=(fold, *ranking[0].folds[1:]))
    long = replace(ranking, rows=(row,) * 50, score=odd, left_out={odd: "slow"})
    for html in (long._repr_html_(), row._repr_html_()):
        assert "<script" not in html
        assert "&lt;script&gt;" in html
    assert row._repr_html_().count("<tr>") == 1 + len(row.folds)
    best = f"{row.expected_accuracy:.1f}"
    assert repr(ranking).startswith(f"Ranking(2 models by unseen: 1 a {best}")
    for text, size in ((repr(long), 400), (repr(row), 120), (repr(fold), 120)):
        assert len(text) < size
        assert "\n" not in text
    assert f"{best} %" in repr(row)
    assert f"{fold.accuracy:.1f} %" in repr(fold)


@pytest.mark.parametrize("score", ["zood", "logme"])
def test_json_is_restored(score: str) -> None:
    ranking = oodzoo.rank(*simulate_models({"a": 0.5, "b": 1.5}), score=score)
    document = json.loads(json.dumps(ranking.to_dict()))
    assert Ranking.from_dict(document) == ranking
    assert [fold["domain"] for fold in document["ranking"][0]["folds"]] == list(NAMES)
    del document["ranking"][1]["score"]
    with pytest.raises(oodzoo.InputError, match=r"the ranking is damaged: .*`score`"):
        Ranking.from_dict(document)


def test_a_ranking_is_a_sequence_of_rows(ranking: Ranking) -> None:
    assert list(ranking) == list(ranking.rows) == [ranking[at] for at in range(len(ranking))]
    assert ranking[-1] is ranking.rows[-1]
    assert all(ranking[row.model] is row for row in ranking)
    assert [each in ranking for each in ("a", ranking[0], "c", 0)] == [True, True, False, False]
    assert ranking.best == "a"
    for part in (slice(1), slice(1, None), slice(None, None, -1), slice(0)):
        found = ranking[part]
        assert found.rows == ranking.rows[part]
        assert (found.score, found.task) == (ranking.score, ranking.task)
        assert len(str(found).splitlines()) == 1 + len(found) == found._repr_html_().count("<tr>")
    slow = replace(ranking, left_out={"c": "it takes 99 ms"})
    error: type[Exception]
    for of, key, error, says in (
        (ranking, "c", KeyError, "the ranking has no model 'c'; it has a, b"),
        (ranking, 2, IndexError, "no position 2 in a ranking of 2 models"),
        (slow, "c", KeyError, "model 'c' is not ranked: it takes 99 ms"),
    ):
        with pytest.raises(error, match=says):
            of[key]
