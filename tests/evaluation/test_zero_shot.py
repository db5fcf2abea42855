"""The row of the best zero-shot model."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.evaluation.test_settings import settings
from tests.joint_space import embeddings_of, joint_space, stored_space
from tests.oracles import zero_shot as oracle

import oodzoo
from oodzoo.combining.evaluation.judge import Judge, Rankings
from oodzoo.combining.evaluation.result import Evaluation
from oodzoo.combining.heads import predict_with_heads
from oodzoo.extraction.source import StoreSource
from oodzoo.store.class_embeddings import write_class_embeddings
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.local import update_local

SPACE = joint_space()
CODES = np.unique(SPACE.y, return_inverse=True)[1]


def _two_models(folder: Path) -> FeatureStore:
    """A second model, better in d0 and worse in all other domains."""
    first, worse = SPACE.features["clip"].copy(), SPACE.features["clip"].copy()
    first[:3] *= -1
    rng = np.random.default_rng(1)
    rows = SPACE.domains != "d0"
    worse[rows] = rng.permuted(worse[rows], axis=0)
    worse[~rows] = SPACE.texts[CODES[~rows]]
    space = SPACE._replace(features={"clip": first, "other": worse})
    store = stored_space(folder, space)
    identity = store.model("other").identity
    write_class_embeddings(store.path, "other", identity, embeddings_of(space))
    return store


def test_the_row_is_the_accuracy_of_the_texts(tmp_path: Path) -> None:
    result = oodzoo.evaluate(stored_space(tmp_path, SPACE), top_k=1, baselines=False)
    row = result.baselines["zero_shot"]
    for domain, cell in row.cells.items():
        rows = SPACE.domains == domain
        expected = oracle.accuracy(SPACE.features["clip"][rows], SPACE.texts, CODES[rows])
        assert cell.accuracy == pytest.approx(100 * expected)
        assert (cell.models, cell.n_features) == (("clip",), 32)
    assert row.average > result.single.average + 5
    assert result.pool.average > result.single.average + 5
    document = result.to_dict()
    assert document["zero_shot"]["average"] == pytest.approx(row.average)
    assert set(document["zero_shot"]["domains"]) == set(result.domains)
    assert Evaluation.from_dict(document) == result
    assert "zero_shot" in str(result)


def test_the_model_is_chosen_on_the_training_domains(tmp_path: Path) -> None:
    result = oodzoo.evaluate(_two_models(tmp_path), top_k=1, baselines=False)
    row = result.baselines["zero_shot"]
    # "other" is perfect in d0, which is not known when d0 is the test domain
    assert {cell.models for cell in row.cells.values()} == {("clip",)}
    assert row.cells["d0"].accuracy < 100


def test_no_row_without_texts(tmp_path: Path) -> None:
    store = stored_space(tmp_path, SPACE, texts=False)
    result = oodzoo.evaluate(store, top_k=1, baselines=False)
    assert "zero_shot" not in result.baselines
    assert "zero_shot" not in result.to_dict()
    # what was kept without texts does not count with them
    write_class_embeddings(store.path, "clip", store.model("clip").identity, embeddings_of(SPACE))
    again = oodzoo.evaluate(FeatureStore(store.path), top_k=1, baselines=False)
    assert "zero_shot" in again.baselines


def test_with_images_of_the_target(tmp_path: Path) -> None:
    store = stored_space(tmp_path, SPACE)
    result = oodzoo.evaluate(store, top_k=1, baselines=False, with_target=True)
    assert result.with_target["pool"].average > result.single.average + 5


def test_the_row_of_other_protocols(tmp_path: Path) -> None:
    store = stored_space(tmp_path, SPACE)
    options: dict[str, Any] = {"draws": 1, "steps": 5, "trials": 2}
    result = oodzoo.evaluate(store, top_k=1, baselines=False, protocol="domainbed", **options)
    row = result.baselines["zero_shot"]
    assert all(len(cell.measures) == 2 for cell in row.cells.values())
    assert row.average > 80


def test_other_texts_are_judged_again_within_a_time(tmp_path: Path) -> None:
    """What is kept of a budget depends on the texts, which heads of a pool start from."""
    store = stored_space(tmp_path, SPACE)
    for model in store.models:
        update_local(store.path, model, {"milliseconds_per_image": 1.0})

    def within_one_ms() -> float | None:
        source = StoreSource(FeatureStore(store.path))
        chosen = settings(top_k=[1], peers=None, max_ms=None)
        rankings = Rankings.of(source, chosen, None)
        judge = Judge(source, chosen, predict_with_heads(source), rankings, None)
        return judge.limited("d0", judge.fold("d0"), 1.0).metric

    first = within_one_ms()
    wrong = SPACE._replace(texts=np.roll(SPACE.texts, 1, axis=0))
    identity = store.model("clip").identity
    write_class_embeddings(store.path, "clip", identity, embeddings_of(wrong))
    found = within_one_ms()
    assert found != first
    shutil.rmtree(store.path / "cache")
    assert within_one_ms() == found
