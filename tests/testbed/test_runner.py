"""A test bed run on features."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.testbed.data import NOISE, arrays, source, store

import oodzoo
from oodzoo import scores
from oodzoo.errors import InputError
from oodzoo.features.source import ArraySource
from oodzoo.ranking.ranker import FOLD_SCORES
from oodzoo.scores import registry
from oodzoo.testbed import load, run, save


@pytest.fixture(scope="module")
def bed() -> Any:
    return run(source(), resamples=200)


def test_every_score_and_baseline_is_judged(bed: Any) -> None:
    assert set(bed.models) == set(NOISE)
    without_a_head = [n for n in scores.names() if scores.get(n).needs == "features"]
    assert set(bed.scores) == {*FOLD_SCORES, *without_a_head, "feature_dim"}
    assert set(bed.left_out) == {"leep", "nce"}
    assert bed.scores["zood"].weighted_tau > 0.8
    assert bed.scores["zood"].regret == 0
    assert bed.scores["feature_dim"].weighted_tau == pytest.approx(-1)  # by construction
    assert bed.scores["feature_dim"].regret == pytest.approx(
        bed.accuracy["best"] - bed.accuracy["none"]
    )
    assert all(result.seconds > 0 for name, result in bed.scores.items() if name != "feature_dim")


def test_scores_are_those_of_a_ranking(bed: Any) -> None:
    features, y, domains = arrays()
    for score in ("zood", "stability", "accuracy", "logme", "knn"):
        ranking = oodzoo.rank(features, y, domains, score=score)
        expected = {row.model: row.score for row in ranking.rows}
        assert bed.scores[score].values == pytest.approx(expected)


def test_a_store_gives_the_same_and_caches_it(tmp_path: Path, bed: Any) -> None:
    opened = store(tmp_path)
    one = run(opened, resamples=200)
    for name in bed.scores:
        if name != "parc":  # which samples at random
            assert one.scores[name].weighted_tau == pytest.approx(bed.scores[name].weighted_tau)
    two = run(opened, resamples=200)
    assert two == one  # including the seconds: nothing was recomputed
    assert one.data["fingerprint"] == opened.fingerprint
    assert one.data["name"] == "store"
    save(one, tmp_path / "result.json")
    again = load(tmp_path / "result.json")
    assert again == one


def test_the_unseen_protocol_computes_scores_without_the_test_domain() -> None:
    features, y, domains = arrays()
    bed = run(source(), protocol="unseen", resamples=200)
    for score in ("logme", "knn"):
        each = []
        for test in ("d0", "d1", "d2"):
            there = domains == test
            kept = {name: X[~there] for name, X in features.items()}
            ranking = oodzoo.rank(kept, y[~there], domains[~there], score=score)
            each.append({row.model: row.score for row in ranking.rows})
        for model in features:
            mean = np.mean([one[model] for one in each])
            assert bed.scores[score].values[model] == pytest.approx(mean)
    rankings = oodzoo.ranking.ranker.rank_for_test_domains(features, y, domains)
    for model in features:
        mean = np.mean([r.score for x in rankings.values() for r in x.rows if r.model == model])
        assert bed.scores["zood"].values[model] == pytest.approx(mean)
    assert bed.accuracy == run(source(), resamples=1).accuracy


def test_scores_that_need_a_head_are_judged_on_the_models_that_have_one(tmp_path: Path) -> None:
    features, y, domains = arrays()
    one_hot = np.eye(3)[y.astype(int)]
    heads = {
        f"{name}.logits": one_hot * 2 + NOISE[name] * np.random.default_rng(1).normal(size=(135, 3))
        for name in ("best", "good", "poor")
    }
    np.savez(tmp_path / "f.npz", labels=y, domains=domains, **features, **heads)  # type: ignore[arg-type]
    bed = run(oodzoo.features.importing.import_features([tmp_path / "f.npz"], tmp_path / "store"))
    assert bed.scores["leep"].models == 3
    assert bed.scores["leep"].values["fair"] is None
    assert set(bed.left_out["leep"]) == {"fair", "none"}
    assert "head" in bed.left_out["leep"]["fair"]
    assert bed.scores["leep"].weighted_tau == bed.scores["leep"].common
    assert bed.scores["leep"].weighted_tau == pytest.approx(1)


def test_external_scores_are_judged_too() -> None:
    external = {"source_accuracy": {"best": 80.0, "good": 70.0, "fair": 60.0, "poor": None}}
    bed = run(source(), values=external, resamples=200)
    assert bed.scores["source_accuracy"].models == 3
    assert bed.scores["source_accuracy"].tau == pytest.approx(1)
    for wrong, message in (
        ({"zood": {"best": 1.0}}, "'zood' is reserved"),
        ({"mine": {"nobody": 1.0}}, "no such model: 'nobody'"),
        ({"mine": {"best": np.nan}}, "value of 'best' is not finite: nan"),
        ({"my own": {"best": 1.0}}, "got 'my own'"),
    ):
        with pytest.raises(InputError, match=message):
            run(source(), values=wrong)


def test_a_registered_score_is_judged_and_a_failing_one_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "_SCORES", dict(registry._SCORES))

    @scores.score("closeness", title="Minus the spread within classes", uses_domains=True)
    def closeness(X: Any, y: Any, domains: Any) -> float:
        assert len(np.unique(domains)) == 3
        return -float(np.mean([X[y == c].std(axis=0).mean() for c in np.unique(y)]))

    @scores.score("hopeless")
    def hopeless(X: Any, y: Any) -> float:
        if X.shape[1] > 6:
            raise RuntimeError("too wide")
        return float("nan") if X.shape[1] > 5 else 1.0

    bed = run(source(), resamples=200)
    assert bed.scores["closeness"].weighted_tau == pytest.approx(1)
    assert bed.scores["closeness"].title == "Minus the spread within classes"
    assert bed.scores["hopeless"].models == 2
    assert bed.scores["hopeless"].weighted_tau is None  # both the same
    reasons = bed.left_out["hopeless"]
    assert "failed: RuntimeError: too wide" in reasons["poor"]
    assert "must be a finite number, got nan" in reasons["fair"]
    with pytest.raises(InputError, match="'hopeless' of model 'fair' must be a finite number"):
        oodzoo.rank(*arrays(), score="hopeless")


def test_a_score_without_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_SCORES", {})
    names: dict[str, Any] = {"__name__": None}
    exec("def typed(X, y): return -float(X.std())", names)
    scores.register(scores.Score("typed", names["typed"]))
    assert run(source(), resamples=20).scores["typed"].tau == pytest.approx(1)


def test_too_few_models_or_domains() -> None:
    features, y, domains = arrays()
    with pytest.raises(InputError, match="at least 3 models, got 2"):
        run(ArraySource(dict(itertools.islice(features.items(), 2)), y, domains))
    with pytest.raises(InputError, match="'unseen' needs at least 3 domains, got 2"):
        run(source(2), protocol="unseen")
    with pytest.raises(InputError, match="unknown protocol 'both'"):
        run(source(), protocol="both")  # type: ignore[arg-type]


def test_arrays_give_the_same(bed: Any) -> None:
    again = run(*arrays(), resamples=200)
    assert again.accuracy == bed.accuracy
    assert again.scores["zood"].values == bed.scores["zood"].values


def test_one_class_only() -> None:
    rng = np.random.default_rng(0)
    features = {name: rng.normal(size=(30, 4)) for name in "abc"}
    with pytest.raises(oodzoo.InputError, match=r"one class, 'cat' \(30 samples\)"):
        run(features, ["cat"] * 30, ["x", "y", "z"] * 10)
