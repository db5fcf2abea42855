"""Predictors whose pool has zero-shot heads: features of unit length, saved and exported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from tests.joint_space import joint_space, stored_space
from tests.small_clip import small_clip
from tests.store.data import rewrite

import oodzoo
from oodzoo import InputError

SPACE = joint_space()
NEW = joint_space(seed=0, n=40)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> oodzoo.Predictor:
    store = stored_space(tmp_path_factory.mktemp("joint"), SPACE)
    return oodzoo.fit(store, choose="pool")


def _features(predictor: oodzoo.Predictor) -> dict[str, Any]:
    return {model.name: NEW.features[model.name] for model in predictor.models}


def test_features_of_any_length_give_the_same_predictions(pool: oodzoo.Predictor) -> None:
    assert pool.columns.normalised == {"clip"}
    features = _features(pool)
    expected = pool.predict_proba(features)
    longer = features | {"clip": 50 * features["clip"]}
    np.testing.assert_allclose(pool.predict_proba(longer), expected, atol=1e-6)
    assert pool.score(features, NEW.y) > 0.8


def test_a_saved_predictor(pool: oodzoo.Predictor, tmp_path: Path) -> None:
    pool.save(tmp_path / "model")
    loaded = oodzoo.load(tmp_path / "model")
    assert loaded.columns.normalised == {"clip"}
    features = _features(pool)
    np.testing.assert_array_equal(loaded.predict_proba(features), pool.predict_proba(features))
    file = tmp_path / "model" / "predictor.json"
    document = json.loads(file.read_text())
    assert document["normalised"] == ["clip"]
    rewrite(file, lambda document: document.update(normalised=["another"]))
    with pytest.raises(InputError, match="is damaged: it has no model 'another'"):
        oodzoo.load(tmp_path / "model")


def test_the_exported_head(pool: oodzoo.Predictor, tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="exporting needs onnx")
    file = pool.export(tmp_path / "head.onnx", head_only=True)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    features = {name: array.astype(np.float32) for name, array in _features(pool).items()}
    (found,) = session.run(["probabilities"], features)
    np.testing.assert_allclose(found, pool.predict_proba(features), atol=1e-5)
    zero = {name: np.zeros_like(array[:1]) for name, array in features.items()}
    (found,) = session.run(["probabilities"], zero)
    np.testing.assert_allclose(found, pool.predict_proba(zero), atol=1e-5)


def test_images(digits: Path, unseen: list[Path], tmp_path: Path) -> None:
    spec = small_clip(tmp_path)
    names = {"0": "zero", "1": "one", "2": "two"}
    store = oodzoo.extract(digits, [spec], tmp_path / "store", device="cpu", class_names=names)
    predictor = oodzoo.fit(store, choose="pool")
    assert predictor.columns.normalised == {"clip"}
    predictor.save(tmp_path / "model")
    loaded = oodzoo.load(tmp_path / "model", device="cpu")
    expected = predictor.predict_proba(unseen[:6])
    np.testing.assert_allclose(loaded.predict_proba(unseen[:6]), expected, atol=1e-6)
    domain = store.domains[0]
    images = [digits / path for path in store.paths(domain)]
    given = {"clip": store.features("clip", domain)}
    np.testing.assert_allclose(
        predictor.predict_proba(images), predictor.predict_proba(given), atol=1e-4
    )
