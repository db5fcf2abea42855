"""Accuracies of heads and scores of all kinds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.joint_space import embeddings_of, joint_space, stored_space
from tests.testbed.data import NOISE, arrays, source

import oodzoo
from oodzoo import scores
from oodzoo.errors import InputError
from oodzoo.features.source import StoreSource
from oodzoo.ranking.ranker import rank_for_test_domains
from oodzoo.ranking.terms import FOLD_SCORES
from oodzoo.scores import registry
from oodzoo.store.class_embeddings import write_class_embeddings
from oodzoo.store.feature_store import FeatureStore
from oodzoo.testbed.measurement import PAPER, Measurement, head_accuracy, measure


@pytest.fixture(scope="module")
def measured() -> Measurement:
    return measure(source())


def test_every_score_and_baseline_is_measured(measured: Measurement) -> None:
    without_a_head = [n for n in scores.names() if scores.get(n).needs == "features"]
    assert set(measured.columns) == {*FOLD_SCORES, PAPER, *without_a_head, "feature_dim"}
    assert set(measured.left_out) == {"leep", "nce", "zero_shot"}
    assert set(measured.left_out["leep"]) == set(NOISE)
    assert all(column.title for column in measured.columns.values())


def test_accuracies_are_those_of_heads(measured: Measurement) -> None:
    for domain, accuracies in measured.accuracy.items():
        for model, accuracy in accuracies.items():
            assert accuracy == head_accuracy(source(), model, domain)
    mean = np.mean([measured.accuracy[d]["fair"] for d in ("d0", "d1", "d2")])
    assert measured.mean_accuracy["fair"] == pytest.approx(mean)


def test_scores_do_not_use_the_test_domain(measured: Measurement) -> None:
    features, y, domains = arrays()
    for score in ("zood", "accuracy", "stability", "logme", "knn", "h_score"):
        column = measured.columns[score]
        for test in ("d0", "d1", "d2"):
            there = domains == test
            kept = {name: X[~there] for name, X in features.items()}
            ranking = oodzoo.rank(kept, y[~there], domains[~there], score=score)
            expected = {row.model: row.score for row in ranking.rows}
            assert column.by_domain[test] == pytest.approx(expected)
        for model in features:
            mean = np.mean([column.by_domain[test][model] for test in column.by_domain])
            assert column.values[model] == pytest.approx(mean)


def test_every_score_of_a_ranking_comes_from_a_ranking_of_all_models(
    measured: Measurement,
) -> None:
    forms: list[tuple[str, dict[str, Any]]] = [(name, {"score": name}) for name in FOLD_SCORES]
    forms.append((PAPER, {"score": "zood", "stability": "paper"}))
    for name, options in forms:
        for test, ranking in rank_for_test_domains(source(), **options).items():
            expected = {row.model: row.score for row in ranking.rows}
            assert measured.columns[name].by_domain[test] == pytest.approx(expected)
    assert measured.columns[PAPER].values != measured.columns["zood"].values


def test_with_the_other_protocol_scores_are_those_of_all_domains(measured: Measurement) -> None:
    features, y, domains = arrays()
    found = measure(source(), "all")
    assert found.accuracy == measured.accuracy
    for score in ("zood", "stability", "accuracy", "logme", "knn"):
        ranking = oodzoo.rank(features, y, domains, score=score)
        expected = {row.model: row.score for row in ranking.rows}
        assert found.columns[score].values == pytest.approx(expected)
        assert found.columns[score].by_domain == {}


def test_scores_that_need_a_head_are_those_of_the_models_that_have_one(tmp_path: Path) -> None:
    features, y, domains = arrays()
    one_hot = np.eye(3)[y.astype(int)]
    heads = {
        f"{name}.logits": one_hot * 2 + NOISE[name] * np.random.default_rng(1).normal(size=(135, 3))
        for name in ("best", "good", "poor")
    }
    np.savez(tmp_path / "f.npz", labels=y, domains=domains, **features, **heads)  # type: ignore[arg-type]
    imported = oodzoo.features.importing.import_features([tmp_path / "f.npz"], tmp_path / "store")
    found = measure(StoreSource(imported))
    assert found.columns["leep"].values["fair"] is None
    assert found.columns["leep"].values["best"] is not None
    assert set(found.left_out["leep"]) == {"fair", "none"}
    assert "head" in found.left_out["leep"]["fair"]


def test_a_registered_score_is_measured_and_a_failing_one_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "_SCORES", dict(registry._SCORES))

    @scores.score("closeness", title="Minus the spread within classes", uses_domains=True)
    def closeness(X: Any, y: Any, domains: Any) -> float:
        assert len(np.unique(domains)) == 2
        return -float(np.mean([X[y == c].std(axis=0).mean() for c in np.unique(y)]))

    @scores.score("hopeless")
    def hopeless(X: Any, y: Any) -> float:
        if X.shape[1] > 6:
            raise RuntimeError("too wide")
        return float("nan") if X.shape[1] > 5 else 1.0

    found = measure(source())
    values = found.columns["closeness"].values
    assert sorted(values, key=lambda model: -(values[model] or 0)) == list(NOISE)
    assert found.columns["closeness"].title == "Minus the spread within classes"
    assert found.columns["hopeless"].values == {
        "best": 1.0, "good": 1.0, "fair": None, "poor": None, "none": None,
    }  # fmt: skip
    reasons = found.left_out["hopeless"]
    assert "failed: RuntimeError: too wide" in reasons["poor"]
    assert "must be a finite number, got nan" in reasons["fair"]
    with pytest.raises(InputError, match="'hopeless' of model 'fair' must be a finite number"):
        oodzoo.rank(*arrays(), score="hopeless")


def test_a_score_without_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_SCORES", {})
    names: dict[str, Any] = {"__name__": None}
    exec("def typed(X, y): return -float(X.std())", names)
    scores.register(scores.Score("typed", names["typed"]))
    assert measure(source()).columns["typed"].values["best"] is not None


def test_zero_shot_scores_follow_the_texts(tmp_path: Path) -> None:
    space = joint_space()
    source = StoreSource(stored_space(tmp_path, space))
    before = measure(source).columns["zero_shot"].values["clip"]
    other = space._replace(texts=np.roll(space.texts, 1, axis=0))
    store = source.store
    identity = store.model("clip").identity
    write_class_embeddings(store.path, "clip", identity, embeddings_of(other))
    after = measure(StoreSource(FeatureStore(store.path))).columns["zero_shot"].values["clip"]
    assert before is not None
    assert after is not None
    assert after < before - 0.3
