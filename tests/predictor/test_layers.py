"""Predictors with several layers of one network: loaded once, one forward pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.fixtures import draw_digits

import oodzoo
from oodzoo.errors import InputError
from oodzoo.predictor.models import find_model
from oodzoo.zoo import ModelSpec, load_zoo
from oodzoo.zoo.layers import with_layer
from oodzoo.zoo.model import Network, NetworkModel


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_digits(tmp_path_factory.mktemp("digits"), 6)


@pytest.fixture(scope="module")
def files(data: Path) -> list[Path]:
    return sorted(data.rglob("*.png"))[::7]


@pytest.fixture(scope="module")
def store(data: Path, tmp_path_factory: pytest.TempPathFactory) -> oodzoo.FeatureStore:
    """Layers of two networks of the embedded zoo."""
    path = tmp_path_factory.mktemp("stores") / "store"
    zoo = "demo/vit_letters@all,demo/resnet_contrastive@all"
    return oodzoo.extract(oodzoo.ImageDomains(data), zoo, path)


MODELS = ["vit_letters@t155", "resnet_contrastive@t49", "vit_letters", "vit_letters@t214"]


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


def test_two_layers_take_one_forward_pass(
    store: oodzoo.FeatureStore, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor = oodzoo.fit(store, models=MODELS)
    assert len(networks(predictor)) == 2
    passes = count_passes(predictor, monkeypatch)
    assert len(predictor.predict(files)) == len(files)
    assert sorted(passes) == [1, 3]


def test_saved_loaded_and_exported(
    store: oodzoo.FeatureStore, files: list[Path], tmp_path: Path
) -> None:
    import onnxruntime

    predictor = oodzoo.fit(store, models=MODELS)
    expected = predictor.predict_proba(files)
    folder = predictor.save(tmp_path / "model")
    assert isinstance(folder, Path)
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


def test_the_cost_of_a_network_counts_once(store: oodzoo.FeatureStore) -> None:
    predictor = oodzoo.fit(store, models=MODELS)
    by_name = {model.name: model for model in predictor.models}
    vit, resnet = by_name["vit_letters"], by_name["resnet_contrastive@t49"]
    assert predictor.cost.parameters == (vit.parameters or 0) + (resnet.parameters or 0)
    assert predictor.cost.bytes == (vit.bytes or 0) + (resnet.bytes or 0)
    assert predictor.cost.milliseconds == (vit.milliseconds or 0) + (resnet.milliseconds or 0)


def test_a_file_that_has_changed_is_rejected(store: oodzoo.FeatureStore, tmp_path: Path) -> None:
    (spec,) = load_zoo("demo/resnet_contrastive")
    (tmp_path / "net.onnx").write_bytes(spec.file.read_bytes() + b"\x72\x00")
    other = replace(spec, source="onnx/net.onnx", folder=tmp_path)
    name = "resnet_contrastive@t49"
    assert find_model(store, name).spec.layer == "t49"
    with pytest.raises(InputError, match="is not the file that the store's features"):
        find_model(store, name, [replace(with_layer(other, "t49", None), name=name)])


def test_another_layer_in_the_zoo_does_not_replace_the_recorded_one(
    store: oodzoo.FeatureStore,
) -> None:
    (spec,) = load_zoo("demo/resnet_contrastive")
    wrong = replace(with_layer(spec, "t37", None), name="resnet_contrastive@t49")
    assert find_model(store, "resnet_contrastive@t49", [wrong]).spec.layer == "t49"
    wrong = replace(wrong, name="resnet_contrastive")
    assert find_model(store, "resnet_contrastive", [wrong]).spec.layer is None


def test_layers_of_a_timm_folder(
    data: Path,
    files: list[Path],
    timm_spec: Callable[..., ModelSpec],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    spec = timm_spec()
    zoo = [spec, with_layer(spec, "blocks.1", None), with_layer(spec, "blocks.3", "both")]
    made = oodzoo.extract(oodzoo.ImageDomains(data), zoo, tmp_path / "store")
    predictor = oodzoo.fit(made, models=[each.name for each in zoo[1:]])
    predictor.save(tmp_path / "model")
    loaded = oodzoo.load(tmp_path / "model")
    assert len(list((tmp_path / "model").rglob("*.safetensors"))) == 3  # two of the head
    np.testing.assert_allclose(loaded.predict_proba(files), predictor.predict_proba(files))
    assert len(networks(loaded)) == 1
    passes = count_passes(loaded, monkeypatch)
    loaded.predict(files)
    assert passes == [2]
