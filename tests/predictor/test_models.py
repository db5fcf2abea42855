"""The models of a predictor: found and verified, layers of one network, features only.

`find_model` says what is wrong with one model of a store, before anything is fitted.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from PIL import Image
from tests.fixtures import draw_digits
from tests.small_clip import small_clip
from tests.store.data import rewrite

import oodzoo
from oodzoo import InputError
from oodzoo.extraction.columns import Columns
from oodzoo.predictor.chunks import iter_features
from oodzoo.predictor.models import PredictorModel, find_model, load_models
from oodzoo.store.format import model_folder
from oodzoo.zoo import ModelSpec
from oodzoo.zoo.model import Network, NetworkModel


@pytest.fixture
def copy(store: oodzoo.FeatureStore, tmp_path: Path) -> oodzoo.FeatureStore:
    """A copy of the store that a test may change."""
    return oodzoo.FeatureStore(shutil.copytree(store.path, tmp_path / "store"))


def edited(store: oodzoo.FeatureStore, **change: Any) -> oodzoo.FeatureStore:
    """The store with another entry of each model in the manifest."""
    models = store.manifest.models
    changed = {name: msgspec.structs.replace(model, **change) for name, model in models.items()}
    manifest = msgspec.structs.replace(store.manifest, models=changed)
    (store.path / "manifest.json").write_bytes(manifest.content)
    return oodzoo.FeatureStore(store.path)


def test_found_moved_and_other_models(
    copy: oodzoo.FeatureStore,
    zoo: list[ModelSpec],
    predictor: oodzoo.Predictor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = zoo[0].name

    def refused(says: str, given: Any = (), store: oodzoo.FeatureStore = copy) -> None:
        with pytest.raises(InputError, match=says):
            find_model(store, name, given)

    with monkeypatch.context() as patch:
        for function in ("load_model", "load_network"):  # it is found without loading it
            patch.setattr(f"oodzoo.predictor.models.{function}", None)
        for given in ((), zoo):
            model = find_model(copy, name, given)
            assert (model.spec.file, model.spec.mean) == (zoo[0].file, zoo[0].mean)
            assert (model.spec.features, model.spec.logits) == ("features", None)
            assert model.fingerprint == copy.model(name).fingerprint
    other = replace(zoo[1], name=name)
    refused("is not the file that the store's features were computed", [other])
    local = model_folder(copy.path, name) / "local.json"
    local.write_text(local.read_text().replace(str(zoo[0].folder), str(tmp_path / "gone")))
    refused(r"no longer at .*gone.*new location of its zoo \(--zoo")
    assert find_model(copy, name, zoo).spec.folder == zoo[0].folder
    local.unlink()
    refused(r"does not record its location.*give the zoo it came")
    refused(r"location, and no zoo given has it", zoo[1:])
    for change, what in (
        ({"source": "python"}, "is a Python function"),
        ({"preprocessing": None}, "were imported"),
    ):
        refused(f"{what}; a predictor can only use models that", zoo, edited(copy, **change))
    model = predictor.loadable_models[0]
    with pytest.raises(InputError, match=r"returns 56 features, but .* fitted with 57"):
        replace(model, feature_dim=57).load("cpu")
    mean = replace(model.preprocessing, mean=(0.1, 0.2, 0.3))
    with pytest.raises(InputError, match="preprocesses images differently"):
        replace(model, preprocessing=mean).load("cpu")
    for model in predictor.loadable_models:
        assert model.load("cpu").info.n_logits is None  # logits are not computed


LAYERS = ["vit_letters@t155", "resnet_contrastive@t49", "vit_letters", "vit_letters@t214"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_digits(tmp_path_factory.mktemp("digits"), 6)


@pytest.fixture(scope="module")
def layered(data: Path, tmp_path_factory: pytest.TempPathFactory) -> oodzoo.FeatureStore:
    """Layers of two networks of the embedded zoo."""
    path = tmp_path_factory.mktemp("stores") / "store"
    zoo = "demo/vit_letters@all,demo/resnet_contrastive@all"
    return oodzoo.extract(oodzoo.ImageDomains(data), zoo, path)


def networks(predictor: oodzoo.Predictor) -> set[int]:
    models = predictor.loaded().values()
    return {id(model.network) for model in models if isinstance(model, NetworkModel)}


def count_passes(predictor: oodzoo.Predictor, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of models of each forward pass."""
    seen: list[int] = []
    kinds = {type(m.network) for m in predictor.loaded().values() if isinstance(m, NetworkModel)}
    for kind in kinds:
        launch = kind.launch

        def count(self: Network, prepared: Any, models: Any, launch: Any = launch) -> Any:
            seen.append(len(models))
            return launch(self, prepared, models)

        monkeypatch.setattr(kind, "launch", count)
    return seen


def test_layers_share_a_pass_a_file_and_a_cost(
    layered: oodzoo.FeatureStore, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnxruntime

    files = sorted(data.rglob("*.png"))[::7]
    predictor = oodzoo.fit(layered, models=LAYERS)
    assert len(networks(predictor)) == 2
    passes = count_passes(predictor, monkeypatch)
    expected = predictor.predict_proba(files)
    assert sorted(passes) == [1, 3]
    vit, resnet = (
        next(model for model in predictor.models if model.name == name)
        for name in ("vit_letters", "resnet_contrastive@t49")
    )
    for cost in ("parameters", "bytes", "milliseconds"):
        total = getattr(vit, cost) + getattr(resnet, cost)
        assert getattr(predictor.cost, cost) == total > 0
    folder = predictor.save(tmp_path / "model")
    assert len(list(folder.rglob("*.onnx"))) == 2  # each network once
    loaded = oodzoo.load(folder)
    assert [model.name for model in loaded.models] == [model.name for model in predictor.models]
    assert len(networks(loaded)) == 2
    np.testing.assert_allclose(loaded.predict_proba(files), expected, atol=1e-6)
    pytest.importorskip("onnx")
    file = loaded.export(tmp_path / "one.onnx")
    session = onnxruntime.InferenceSession(file)
    (found,) = session.run(["probabilities"], loaded.preprocess(files))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    sizes = [each.stat().st_size for each in folder.rglob("*.onnx")]
    assert file.stat().st_size < 1.3 * sum(sizes) + 20_000  # no network is in it twice


Y, DOMAINS = np.tile([3, 5], 30), np.repeat([1, 2, 3], 20)
X = np.random.default_rng(0).normal(size=(60, 4)) + (Y == 5)[:, None]
FEATURES = {"all of them/X": X, "half": X[:, :2]}


def test_models_that_have_features_only(tmp_path: Path) -> None:
    fitted = oodzoo.fit(FEATURES, Y, DOMAINS, top_k=2)
    expected = fitted.predict_proba(FEATURES)
    folder = tmp_path / "model"
    for _ in range(2):  # it replaces itself
        fitted.save(folder)
        loaded = fitted = oodzoo.load(folder)
        assert loaded.features_only
        dimensions = {model.name: model.feature_dim for model in loaded.models}
        assert dimensions == {"all of them/X": 4, "half": 2}
        np.testing.assert_array_equal(loaded.predict_proba(FEATURES), expected)
    assert loaded.classes_.tolist() == [3, 5]
    assert loaded.provenance.domains == ("1", "2", "3")
    assert loaded.provenance.n_images == 60
    assert loaded.cost.milliseconds is loaded.cost.bytes is None
    assert all(model["features_only"] for model in loaded.to_dict()["models"])
    content = json.loads((folder / "predictor.json").read_text())
    assert [model["name"] for model in content["features"]] == [m.name for m in loaded.models]
    assert content["models"] == []
    for call in (loaded.loaded, lambda: loaded.preprocess(["a.png"])):
        with pytest.raises(InputError, match="have features only, and cannot be loaded: "):
            call()
    prints = {model.name: model.fingerprint for model in loaded.models}
    assert len(set(prints.values())) == 2
    same = oodzoo.fit({"y": X[:, :2]}, Y, DOMAINS, choose="single").models[0]
    assert same.fingerprint == prints["half"]  # of the features, not of their name
    half = {"name": "half", "feature_dim": 0, "fingerprint": ""}
    for features, message in (
        ([{"name": "half"}], "is damaged: .*feature_dim"),
        ([half], "must have one feature or more, got 0"),
        ([half | {"name": "x", "feature_dim": 4}], "of model 'x' are not among its 4 features"),
    ):
        (folder / "predictor.json").write_text(json.dumps(content))
        rewrite(folder / "predictor.json", lambda d, to=features: d.update(features=to))  # type: ignore[misc]
        with pytest.raises(InputError, match=message):
            oodzoo.load(folder)


def test_images_with_zero_shot_heads(digits: Path, unseen: list[Path], tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    names = {"0": "zero", "1": "one", "2": "two"}
    spec = small_clip(tmp_path)
    store = oodzoo.extract(digits, [spec], tmp_path / "store", device="cpu", class_names=names)
    predictor = oodzoo.fit(store, choose="pool")
    assert predictor.columns.normalised == {"clip"}
    loaded = oodzoo.load(predictor.save(tmp_path / "model"), device="cpu")
    expected = predictor.predict_proba(unseen[:6])
    np.testing.assert_allclose(loaded.predict_proba(unseen[:6]), expected, atol=1e-6)
    domain = store.domains[0]
    images = [digits / path for path in store.paths(domain)]
    found = predictor.predict_proba({"clip": store.features("clip", domain)})
    np.testing.assert_allclose(predictor.predict_proba(images), found, atol=1e-4)
    pixels = {name: torch.tensor(each) for name, each in predictor.preprocess(unseen[:6]).items()}
    logits = predictor.to_torch()(pixels).detach()
    np.testing.assert_allclose(logits.softmax(1).numpy(), expected, atol=1e-4)
    # features of any length give the same predictions
    features = store.features("clip", domain)
    np.testing.assert_allclose(predictor.predict_proba({"clip": 50 * features}), found, atol=1e-5)
    pytest.importorskip("onnx", reason="exporting needs onnx")
    head = predictor.export(tmp_path / "head.onnx", head_only=True)
    session = pytest.importorskip("onnxruntime").InferenceSession(head)
    for given in (features, np.zeros_like(features[:1])):
        (exported,) = session.run(None, {"clip": given})
        expected = predictor.predict_proba({"clip": given})
        np.testing.assert_allclose(exported, expected, atol=1e-5)


def test_models_of_one_network_that_decode_in_both_ways(
    predictor: oodzoo.Predictor, unseen: list[Path], tmp_path: Path
) -> None:
    photo = tmp_path / "photo.jpg"
    noise = np.random.default_rng(0).integers(0, 256, (300, 300, 3), np.uint8)
    Image.fromarray(noise).save(photo)
    first = predictor.loadable_models[0]
    whole = replace(
        first,
        spec=replace(first.spec, name="whole"),
        preprocessing=first.preprocessing.decoding("full"),
    )
    columns = Columns({each.name: np.arange(first.feature_dim) for each in (first, whole)})

    def features(*models: PredictorModel) -> Any:
        (chunk,) = iter_features([photo], load_models(models, "cpu"), columns, 8)
        return chunk.features[0]

    alone = features(first), features(whole)
    assert abs(alone[0] - alone[1]).max() > 1e-3
    np.testing.assert_allclose(features(first, whole), np.concatenate(alone), atol=1e-5)
