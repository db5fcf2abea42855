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
from numpy.typing import NDArray
from tests.oracles import folds as regressions
from tests.oracles import unseen as oracle
from tests.oracles.intervals import new_domain_interval, pareto_optimal
from tests.ranking.data import Arrays, Data, by_domain, read, saved, simulate_models

import oodzoo
from oodzoo.extraction.features import StoreSource
from oodzoo.ranking.ranker import rank_for_test_domains
from oodzoo.ranking.ranking import Ranking
from oodzoo.ranking.zood import HeldOutDomains
from oodzoo.store.table import SampleTable
from oodzoo.store.writer import update_local, writing

Sample = tuple[Arrays, NDArray[Any], NDArray[Any]]
NOISE = {"a": 0.5, "b": 1.0, "c": 1.4, "d": 2.0, "e": 4.0}
NAMES = ("d0", "d1", "d2", "d3")


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


def left_out_for_good(models: dict[str, Data], weights: dict[str, float]) -> NDArray[np.float64]:
    """The score of each model (models, domains) without the features and labels of a domain."""
    scores = []
    for domain in weights:
        part = {m: {d: x for d, x in data.items() if d != domain} for m, data in models.items()}
        rest = {d: w for d, w in weights.items() if d != domain}
        scores.append(list(oracle.unseen(part, 3, rest).values()))
    return np.array(scores).T


@pytest.mark.parametrize(
    ("d", "given", "device"),
    [(6, None, None), (150, None, "cpu"), (6, {"d0": 3.0, "d2": 0.5}, "cpu"), (6, {"d1": 0}, None)],
)
def test_ranks_as_its_formula(d: int, given: Any, device: str | None) -> None:
    """Also the share of each domain in the score, by the jackknife."""
    if device is not None:
        pytest.importorskip("torch", reason="PyTorch is not installed")
    data = simulate_models({m: NOISE[m] for m in ("abcde" if d < 9 else "ce")}, n=20, d=d, seed=1)
    models, weights = by_domain(*data), shares(given)
    ranking = oodzoo.rank(*data, device=device, domain_weights=given)
    expected = oracle.unseen(models, 3, weights)
    assert_ranked(ranking, expected)
    without = left_out_for_good(models, weights)
    changes = without - (without @ list(weights.values()))[:, None]
    for change, (model, score) in zip(changes, expected.items(), strict=True):
        row = ranking[model]
        assert [f.score for f in row.folds] == pytest.approx(
            (score - 3 * change).tolist(), abs=1e-6
        )
        assert row.evidence == pytest.approx(oracle.evidence(models[model]), rel=1e-8)
        transfer = oracle.transfer(models[model], 3, weights)
        assert row.transfer == pytest.approx(100 * transfer, abs=1e-7)
        means = oracle.into(oracle.pairs(models[model], 3, weights), NAMES)
        transfers = [100 * value for value in means.values()]
        assert [fold.transfer for fold in row.folds] == pytest.approx(transfers, abs=1e-7)


def test_ranks_as_its_formula_with_odd_classes_and_weights() -> None:
    """A domain with one class, a class that one domain lacks and one that only one has; two
    domains; and weights of which few or none are left."""
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
    two = np.isin(domains, ["d0", "d1"])
    few = {model: X[two] for model, X in features.items()}, y[two], domains[two]
    assert_ranked(oodzoo.rank(*few), oracle.unseen(by_domain(*few), 3))
    for weights in ({"d0": 0.0, "d1": 0.0, "d2": 0.0}, {"d0": 1e-300, "d1": 0.0, "d2": 0.0}):
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


@pytest.mark.parametrize("seed", range(2))
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
    values = [0.0, 1e-300, 1e308, 2e307]
    huge = oodzoo.rank(*sample, domain_weights=dict(zip(NAMES, values, strict=True)))
    usual = oodzoo.rank(*sample, domain_weights={"d0": 0, "d1": 0, "d2": 5, "d3": 1})
    assert_alike(huge, usual)


@pytest.mark.parametrize("score", ["unseen", "zood", "transfer", "discriminability", "stability"])
def test_scores_are_weighted_means_over_domains(score: str) -> None:
    weights = {"d0": 3.0, "d2": 0.5}
    w, sample = np.array(list(shares(weights).values())), close(0)
    ranking = oodzoo.rank(*sample, score=score, domain_weights=weights)
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
    paper = oodzoo.rank(*sample, score="zood", stability="paper")  # the printed formula
    data = by_domain(*sample)["a"]
    folds = HeldOutDomains(read(data), stability="paper").folds()
    expected = np.mean([f.discriminability + f.spread_ratio * f.stability for f in folds])
    assert paper["a"].score == pytest.approx(expected)


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


def test_a_store_is_ranked_as_its_formula_and_read_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    features, y, domains = simulate_models(NOISE, n=20, seed=1)
    stored = {model: X.astype(np.float32) for model, X in features.items()}
    store = saved(tmp_path, stored, y, domains)
    first, by_test = oodzoo.rank(store), rank_for_test_domains(store)
    assert_ranked(first, oracle.unseen(by_domain(stored, y, domains), 3))
    files = {file: file.stat().st_mtime_ns for file in (store.path / "cache").rglob("*.npz")}
    assert {file.parent.name for file in files} == {"evidence", "folds", "moments"}
    with monkeypatch.context() as patch:  # nothing is read again
        patch.setattr(StoreSource, "shards", None)
        assert oodzoo.rank(oodzoo.FeatureStore(store.path)) == first
        assert rank_for_test_domains(oodzoo.FeatureStore(store.path)) == by_test
    assert {file: file.stat().st_mtime_ns for file in files} == files
    for file, damage in zip(files, [b"", b"not a zip file"] * len(files), strict=False):
        file.write_bytes(damage)  # and made anew
    assert oodzoo.rank(oodzoo.FeatureStore(store.path)) == first


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
    front = [row.expected_accuracy for row in ranking.pareto_front]
    assert front == sorted(front)
    assert {row.model: row.milliseconds for row in ranking} == MILLISECONDS
    assert oodzoo.rank(features, y, domains).pareto_front == ()  # of unknown costs
    assert oodzoo.rank(store, max_ms=9).left_out == {"d": "more than 9 ms per image"}
    # models that are left out have no effect on the others
    some = {model: features[model].astype(np.float32) for model in "bc"}
    assert_alike(oodzoo.rank(store, max_ms=2), oodzoo.rank(some, y, domains))
    ranking = oodzoo.rank(store, score="leep", max_ms=9)
    assert ({row.model for row in ranking}, list(ranking.left_out)) == ({"a", "b"}, ["d", "c"])
    assert "classifier head" in ranking.left_out["c"]
    for options, says in (
        ({"score": "leep", "max_ms": 1}, "'leep' cannot be computed for any model: leep"),
        ({"max_parameters": "25M"}, r"no model meets --.* unknown"),
        ({"licence": "mit"}, r"no model meets --.* unknown"),
    ):
        with pytest.raises(oodzoo.InputError, match=says):
            oodzoo.rank(store, **options)


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
    rows = tuple(replace(row, milliseconds=1.5, rank_interval=None) for row in ranking)
    found = columns(replace(ranking, rows=rows * 20, score="accuracy")._repr_html_())
    assert ("ms / image" in found, "rank, 90 %" in found) == (True, False)
    assert (found.count("accuracy, %"), found.count("accuracy")) == (1, 0)
    odd = replace(ranking, score="model", task="regression", rows=ranking.rows * 20)
    found = columns(odd._repr_html_())
    assert found.count("model") == 2  # a score of that name keeps its column
    assert "explained variance, %" in found
    assert "… 10 more rows" in odd._repr_html_()
    assert "explained variance %" in str(odd).splitlines()[0]
    assert "b/expected_explained_variance" in odd.metrics
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
    for text, part in (
        (repr(long), ""),
        (repr(row), f"{best} %"),
        (repr(fold), f"{fold.accuracy:.1f} %"),
    ):
        assert part in text
        assert len(text) < 400
        assert "\n" not in text


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
