"""The head of a predictor as an ONNX file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import oodzoo
from oodzoo import InputError

onnx = pytest.importorskip("onnx", reason='exporting needs onnx: pip install "oodzoo[onnx]"')

Y, DOMAINS = np.tile(["no", "yes"], 45), np.repeat(["a", "b", "c"], 30)


def _run(file: Path, features: dict[str, Any]) -> Any:
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    return session.run(["probabilities"], {k: np.float32(v) for k, v in features.items()})[0]


def test_the_head_of_an_image_predictor(
    predictor: oodzoo.Predictor, store: oodzoo.FeatureStore, tmp_path: Path
) -> None:
    file = predictor.export(tmp_path / "head.onnx", head_only=True)
    used = [model.name for model in predictor.models]
    for domain in store.domains:
        features = {name: store.features(name, domain) for name in used}
        expected = predictor.predict_proba(features)
        np.testing.assert_allclose(_run(file, features), expected, atol=1e-5)
    proto = onnx.load(file)
    assert [value.name for value in proto.graph.input] == used
    assert predictor.export_inputs(head_only=True) == {
        model.name: (model.feature_dim,) for model in predictor.models
    }
    facts = {entry.key: entry.value for entry in proto.metadata_props}
    assert json.loads(facts["classes"]) == predictor.classes_.tolist()
    assert json.loads(facts["inputs"])[used[0]] == {"features": predictor.models[0].feature_dim}


@pytest.mark.filterwarnings("ignore:.*the mean of the features is")
@pytest.mark.parametrize("choose", ["pool", "selection", "ensemble"])
@pytest.mark.parametrize("offset", [0, 1e4])
def test_any_choice_and_offset(choose: str, offset: float, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    scale = 10.0 ** np.arange(-3, 4)
    X = scale * (rng.normal(size=(90, 7)) + (Y == "yes")[:, None] + offset)
    features = {"probabilities": X, "oodzoo_concatenated": X[:, ::2] ** 2 / 1e4, "a/b: c": -X}
    predictor = oodzoo.fit(features, Y, DOMAINS, choose=choose)
    file = predictor.export(tmp_path / "head.onnx")
    names = {"probabilities": "features_probabilities"}
    names["oodzoo_concatenated"] = "features_oodzoo_concatenated"
    given = {names.get(model.name, model.name): features[model.name] for model in predictor.models}
    assert set(predictor.export_inputs()) == set(given)
    np.testing.assert_allclose(_run(file, given), predictor.predict_proba(features), atol=1e-5)


def test_a_folder_is_not_replaced(predictor: oodzoo.Predictor, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is a folder; name a file, such as model.onnx"):
        predictor.export(tmp_path, head_only=True)
