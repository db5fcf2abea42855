"""Models that only have features."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.store.data import rewrite

import oodzoo
from oodzoo import InputError
from oodzoo.features.source import ArraySource
from oodzoo.predictor.models import FeatureModel, array_feature_model

Y, DOMAINS = np.tile([3, 5], 30), np.repeat([1, 2, 3], 20)
X = np.random.default_rng(0).normal(size=(60, 4)) + (Y == 5)[:, None]


def test_the_fingerprint_is_of_the_features() -> None:
    found = array_feature_model(ArraySource({"x": X}, Y, DOMAINS), "x", 2.0)
    assert (found.name, found.feature_dim, found.milliseconds, found.bytes) == ("x", 4, 2.0, None)
    same = array_feature_model(ArraySource({"y": X}, Y, DOMAINS), "y")
    assert same.fingerprint == found.fingerprint
    other = array_feature_model(ArraySource({"x": X + 1e-3}, Y, DOMAINS), "x")
    assert other.fingerprint != found.fingerprint


def test_a_model_without_features() -> None:
    with pytest.raises(InputError, match="model 'x' must have one feature or more, got 0"):
        FeatureModel("x", 0, "")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    fitted = oodzoo.fit({"all of them/X": X, "half": X[:, :2]}, Y, DOMAINS, top_k=2)
    return Path(fitted.save(tmp_path / "model"))


def test_saved_and_loaded(saved: Path) -> None:
    loaded = oodzoo.load(saved)
    assert loaded.features_only
    assert {model.name: model.feature_dim for model in loaded.models} == {
        "all of them/X": 4,
        "half": 2,
    }
    assert loaded.classes_.tolist() == [3, 5]
    assert loaded.provenance.domains == ("1", "2", "3")
    assert loaded.provenance.n_images == 60
    assert loaded.cost.milliseconds is loaded.cost.bytes is None
    assert all(model["features_only"] for model in loaded.to_dict()["models"])
    features = {"all of them/X": X, "half": X[:, :2]}
    again = oodzoo.fit(features, Y, DOMAINS, top_k=2)
    np.testing.assert_array_equal(loaded.predict_proba(features), again.predict_proba(features))
    assert not list(saved.rglob("*.pkl"))
    content = json.loads((saved / "predictor.json").read_text())
    assert [model["name"] for model in content["features"]] == [m.name for m in loaded.models]
    assert content["models"] == []
    loaded.save(saved)  # replaces itself
    np.testing.assert_array_equal(
        oodzoo.load(saved).predict_proba(features), again.predict_proba(features)
    )


def test_without_pixels(saved: Path) -> None:
    loaded = oodzoo.load(saved)
    for call in (loaded.loaded, lambda: loaded.preprocess(["a.png"])):
        with pytest.raises(InputError, match="have features only, and cannot be loaded: "):
            call()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "has the schema 2, this version of oodzoo reads 1; upgrade oodzoo"),
        ({"features": []}, "must have either models or models that only have feat"),
        ({"features": [{"name": "half"}]}, "is damaged: .*feature_dim"),
        (
            {"features": [{"name": "half", "feature_dim": 0, "fingerprint": ""}]},
            "must have one feature or more, got 0",
        ),
        (
            {"features": [{"name": "other", "feature_dim": 4, "fingerprint": ""}]},
            "columns of model 'other' are not among its 4 features",
        ),
    ],
)
def test_a_damaged_folder(saved: Path, change: dict[str, Any], message: str) -> None:
    rewrite(saved / "predictor.json", lambda document: document.update(change))
    with pytest.raises(InputError, match=message):
        oodzoo.load(saved)
