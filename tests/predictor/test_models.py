"""Finding the models of a store, and verifying them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import oodzoo
from oodzoo import InputError
from oodzoo.predictor import models
from oodzoo.predictor.models import find_model
from oodzoo.store.places import model_folder
from oodzoo.zoo import ModelSpec, load_model
from oodzoo.zoo.sources import load_network


@pytest.fixture
def copy(store: oodzoo.FeatureStore, tmp_path: Path) -> oodzoo.FeatureStore:
    """A copy of the store that a test may change."""
    return oodzoo.FeatureStore(shutil.copytree(store.path, tmp_path / "store"))


def _edit(store: oodzoo.FeatureStore, change: dict[str, Any]) -> None:
    """Change the entry of each model in the manifest."""
    models = store.manifest.models
    changed = {name: msgspec.structs.replace(model, **change) for name, model in models.items()}
    msgspec.structs.replace(store.manifest, models=changed).write(store.path)


def _count_loads(monkeypatch: pytest.MonkeyPatch) -> list[ModelSpec]:
    """Record the specs that are loaded."""
    loaded: list[ModelSpec] = []

    def load(spec: ModelSpec, **options: Any) -> Any:
        loaded.append(spec)
        return load_model(spec, **options)

    def load_all(specs: Sequence[ModelSpec], **options: Any) -> Any:
        loaded.extend(specs)
        return load_network(specs, **options)

    monkeypatch.setattr(models, "load_model", load)
    monkeypatch.setattr(models, "load_network", load_all)
    return loaded


def test_an_onnx_model_is_found_without_loading_it(
    store: oodzoo.FeatureStore, zoo: list[ModelSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = _count_loads(monkeypatch)
    for given in ((), zoo):
        model = find_model(store, zoo[0].name, given)
        assert (model.spec.file, model.spec.mean) == (zoo[0].file, zoo[0].mean)
        assert (model.spec.features, model.spec.logits) == ("features", None)
        assert model.fingerprint == store.model(zoo[0].name).fingerprint
    assert loaded == []


def test_moved_models(copy: oodzoo.FeatureStore, zoo: list[ModelSpec], tmp_path: Path) -> None:
    name = zoo[0].name
    local = model_folder(copy.path, name) / "local.json"
    local.write_text(local.read_text().replace(str(zoo[0].folder), str(tmp_path / "gone")))
    with pytest.raises(InputError, match=r"no longer at .*gone.*new location of its zoo \(--zoo"):
        find_model(copy, name)
    assert find_model(copy, name, zoo).spec.folder == zoo[0].folder
    local.unlink()
    with pytest.raises(InputError, match=r"does not record its location.*give the zoo it came"):
        find_model(copy, name)
    with pytest.raises(InputError, match=r"location, and no zoo given has it"):
        find_model(copy, name, zoo[1:])


def test_another_file_with_the_name(store: oodzoo.FeatureStore, zoo: list[ModelSpec]) -> None:
    other = replace(zoo[1], name=zoo[0].name)
    with pytest.raises(InputError, match="is not the file that the store's features were computed"):
        find_model(store, zoo[0].name, [other])


def test_a_store_without_specs_needs_the_zoo(
    copy: oodzoo.FeatureStore, zoo: list[ModelSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = find_model(copy, zoo[0].name, zoo)
    _edit(copy, {"spec": None})
    old = oodzoo.FeatureStore(copy.path)
    for given in ([], zoo[1:]):
        with pytest.raises(InputError, match=r"does not record how model 'resnet"):
            find_model(old, zoo[0].name, given)
    loaded = _count_loads(monkeypatch)
    assert find_model(old, zoo[0].name, zoo) == expected
    unnamed = replace(zoo[0], features=None, logits=None)
    assert find_model(old, zoo[0].name, [unnamed]) == expected
    assert len(loaded) == 2
    other = replace(zoo[1], name=zoo[0].name)
    with pytest.raises(InputError, match="is not the file that the store's features were computed"):
        find_model(old, zoo[0].name, [other])


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"source": "python"}, "is a Python function"),
        ({"preprocessing": None}, "were imported"),
    ],
)
def test_features_without_a_loadable_model(
    copy: oodzoo.FeatureStore, zoo: list[ModelSpec], change: dict[str, Any], what: str
) -> None:
    _edit(copy, change)
    with pytest.raises(InputError, match=f"{what}; a predictor can only use models that"):
        find_model(oodzoo.FeatureStore(copy.path), zoo[0].name, zoo)


def test_stated_preprocessing_is_recorded(
    digits: Path,
    unseen: list[Path],
    timm_spec: Callable[..., ModelSpec],
    extract: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    stated = {"input_size": 64, "mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25)}
    spec = timm_spec("test_resnet.r160_in1k", **stated)
    store = extract(digits, [spec], tmp_path / "store")
    loaded = _count_loads(monkeypatch)
    found = find_model(store, "tiny").spec
    assert replace(found, pretraining=None, licence=None) == spec
    assert (found.pretraining, found.licence) == ("r160_in1k", store.model("tiny").licence)
    assert found.licence is not None
    assert loaded == [found]
    fitted = oodzoo.fit(store, top_k=1)
    assert fitted.loadable_models[0].preprocessing.geometry.crop == (64, 64)
    again = oodzoo.load(fitted.save(tmp_path / "model"))
    expected = fitted.predict_proba(unseen[:2])
    np.testing.assert_array_equal(again.predict_proba(unseen[:2]), expected)


def test_the_geometry_of_an_onnx_file_is_recorded(
    digits: Path, unseen: list[Path], zoo: list[ModelSpec], extract: Any, tmp_path: Path
) -> None:
    geometry = {"resize": (40, 40), "crop": (32, 32), "fit": "cover", "interpolation": "bicubic"}
    spec = replace(zoo[0], input_size=None, geometry=geometry)
    store = extract(digits, [spec, zoo[1]], tmp_path / "store")
    assert store.model(spec.name).spec["geometry"] == geometry | {
        "resize": [40, 40],
        "crop": [32, 32],
    }
    plain = replace(spec, geometry=None)  # that of the store counts, whatever a zoo says now
    for known in ([], [plain]):
        found = find_model(store, spec.name, known)
        assert found.preprocessing.geometry.resize == (40, 40)
        assert found.load("cpu").info.preprocessing == found.preprocessing
    assert find_model(store, zoo[1].name).spec.geometry is None
    fitted = oodzoo.fit(store, models=[spec.name])
    again = oodzoo.load(fitted.save(tmp_path / "model"), device="cpu")
    assert again.loadable_models[0].preprocessing.geometry.interpolation == "bicubic"
    expected = fitted.predict_proba(unseen[:2])
    np.testing.assert_array_equal(again.predict_proba(unseen[:2]), expected)


def test_a_model_that_does_not_match_is_rejected(
    predictor: oodzoo.Predictor,
) -> None:
    model = predictor.loadable_models[0]
    with pytest.raises(InputError, match=r"returns 56 features, but .* fitted with 57"):
        replace(model, feature_dim=57).load("cpu")
    other = replace(model.preprocessing, mean=(0.1, 0.2, 0.3))
    with pytest.raises(InputError, match="preprocesses images differently"):
        replace(model, preprocessing=other).load("cpu")


def test_logits_are_not_computed(predictor: oodzoo.Predictor) -> None:
    for model in predictor.loadable_models:
        assert model.load("cpu").info.n_logits is None
