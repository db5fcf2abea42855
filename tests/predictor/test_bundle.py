"""Copying the files of models into the folder of a predictor."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.store.data import rewrite
from tests.zoo.data import SQUASH, VIT, save_checkpoint

import oodzoo
from oodzoo import InputError
from oodzoo.predictor.bundle import bundle_model
from oodzoo.zoo import ModelSpec


@pytest.fixture
def external(zoo: list[ModelSpec], tmp_path: Path) -> ModelSpec:
    """An ONNX model with an external weight file."""
    onnx = pytest.importorskip("onnx", reason="writing external weights needs onnx")
    (tmp_path / "zoo").mkdir()
    file = tmp_path / "zoo" / "apart.onnx"
    onnx.save(
        onnx.load(zoo[0].file),
        file,
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    return replace(zoo[0], folder=file.parent, source="onnx/apart.onnx", sha256=None)


def test_a_bundled_model_is_read_back(predictor: oodzoo.Predictor, tmp_path: Path) -> None:
    model = predictor.loadable_models[0]
    entry = bundle_model(model, tmp_path)
    assert entry.source == f"onnx/models/{model.name}.onnx"
    (path,) = entry.files
    assert (tmp_path / path).read_bytes() == model.spec.file.read_bytes()
    again = entry.model(tmp_path)
    assert replace(again, spec=model.spec) == model
    assert again.spec == replace(model.spec, source=entry.source)


def test_external_weights_are_copied(
    digits: Path, unseen: list[Path], external: ModelSpec, extract: Any, tmp_path: Path
) -> None:
    fitted = oodzoo.fit(extract(digits, [external], tmp_path / "store"), top_k=1)
    files = (external.file, external.folder / "weights.bin")
    assert fitted.cost.bytes == sum(file.stat().st_size for file in files)
    expected = fitted.predict_proba(unseen[:3])
    folder = fitted.save(tmp_path / "model")
    shutil.rmtree(external.folder)
    np.testing.assert_array_equal(oodzoo.load(folder).predict_proba(unseen[:3]), expected)
    (folder / "models" / external.name / "weights.bin").unlink()
    with pytest.raises(InputError, match=r"lacks 'models/.*/weights.bin'"):
        oodzoo.load(folder)


def test_a_file_that_changes_during_the_copy(
    predictor: oodzoo.Predictor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from oodzoo.predictor import bundle

    monkeypatch.setattr(bundle, "file_digest", lambda path: "0" * 64)
    with pytest.raises(InputError, match="changed while it was copied"):
        bundle_model(predictor.loadable_models[0], tmp_path)


def test_a_timm_model_is_copied(
    digits: Path,
    unseen: list[Path],
    timm_spec: Callable[..., ModelSpec],
    extract: Any,
    tmp_path: Path,
) -> None:
    spec = timm_spec()
    store = extract(digits, [spec], tmp_path / "store")
    fitted = oodzoo.fit(store, top_k=1)
    expected = fitted.predict_proba(unseen[:3])
    folder = fitted.save(tmp_path / "model")
    assert not list(folder.rglob("*.bin"))
    shutil.rmtree(spec.folder)
    shutil.rmtree(store.path)
    np.testing.assert_array_equal(oodzoo.load(folder).predict_proba(unseen[:3]), expected)
    # a model from a hub has no files to check, only its fingerprint
    rewrite(folder / "predictor.json", lambda each: each["models"][0].update(fingerprint="0" * 64))
    with pytest.raises(InputError, match=r"computed with 000000000000…: its weights have changed"):
        oodzoo.load(folder).predict(unseen[:1])


def test_a_hub_model_is_recorded_by_its_identifier(
    digits: Path, timm_spec: Callable[..., ModelSpec], extract: Any, tmp_path: Path
) -> None:
    store = extract(digits, [timm_spec()], tmp_path / "store")
    fitted = oodzoo.fit(store, top_k=1)
    hub = ModelSpec(name="tiny", source="timm/hf-hub:owner/tiny")
    fitted.models = (replace(fitted.loadable_models[0], spec=hub),)
    folder = fitted.save(tmp_path / "model")
    (entry,) = json.loads((folder / "predictor.json").read_text())["models"]
    assert (entry["source"], entry["files"]) == ("timm/hf-hub:owner/tiny", {})
    assert entry["fingerprint"] == store.model("tiny").fingerprint


def test_pickled_weights_are_rejected(
    digits: Path, timm_spec: Callable[..., ModelSpec], extract: Any, tmp_path: Path
) -> None:
    spec = timm_spec()
    fitted = oodzoo.fit(extract(digits, [spec], tmp_path / "store"), top_k=1)
    (spec.folder / "tiny" / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"has no .safetensors file, and pickled weights"):
        fitted.save(tmp_path / "model")
    assert not list(tmp_path.glob(".tmp*"))


def _hf_folder(folder: Path) -> str:
    import torch

    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    network = transformers.ViTModel(transformers.ViTConfig(**VIT))
    save_checkpoint(transformers, network, folder / "vit", SQUASH)
    return '[[model]]\nname = "net"\nsource = "hf/./vit"\n'


def _timm_folder(folder: Path) -> str:
    import timm
    import torch

    torch.manual_seed(0)
    network = timm.create_model("test_vit", pretrained=False, num_classes=3)
    timm.models.save_for_hf(network, str(folder / "vit"), safe_serialization=True)
    return '[[model]]\nname = "net"\nsource = "timm/local-dir:vit"\n'


def _untrained(folder: Path) -> str:
    return (
        '[[model]]\nname = "net"\nsource = "timm/test_vit"\npretrained = false\n'
        "arguments = { img_size = 64, num_classes = 0 }\n"
    )


def _torch_hub(folder: Path) -> str:
    (folder / "hub").mkdir()
    (folder / "hub" / "hubconf.py").write_text(
        "import torch\n\n\ndef net(width):\n"
        "    return torch.nn.Sequential(torch.nn.Conv2d(3, width, 4, stride=4), torch.nn.ReLU())\n"
    )
    return (
        '[[model]]\nname = "net"\nsource = "torch_hub/hub:net"\ninput_size = 32\n'
        "arguments = { width = 12 }\n"
    )


@pytest.mark.parametrize("make", [_hf_folder, _timm_folder, _untrained])
def test_local_models_from_images_to_predictions(
    make: Callable[[Path], str],
    timm: Any,
    digits: Path,
    unseen: list[Path],
    run: Any,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "zoo"
    folder.mkdir()
    (folder / "zoo.toml").write_text(make(folder))
    store, model = tmp_path / "store", tmp_path / "model"

    def predicted() -> list[Any]:
        outcome = run("predict", model, *unseen[:3], "--json")
        assert outcome.code == 0, outcome.err
        rows: list[Any] = json.loads(outcome.out)["predictions"]
        return rows

    for command in (
        ("extract", digits, "--zoo", folder / "zoo.toml", "--store", store),
        ("fit", store, "--out", model, "--choose", "single"),
    ):
        outcome = run(*command)
        assert outcome.code == 0, outcome.err
    first = predicted()
    shutil.rmtree(folder)
    shutil.rmtree(store)
    assert predicted() == first
    assert str(tmp_path) not in (model / "predictor.json").read_text()


def test_code_is_not_saved(
    timm: Any, digits: Path, unseen: list[Path], extract: Any, tmp_path: Path
) -> None:
    (tmp_path / "zoo.toml").write_text(_torch_hub(tmp_path))
    store = extract(digits, oodzoo.load_zoo(tmp_path / "zoo.toml"), tmp_path / "store")
    fitted = oodzoo.fit(store, choose="single")
    assert len(fitted.predict(unseen[:3])) == 3
    with pytest.raises(InputError, match="a saved predictor has no code, and 'torch_hub/hub:net'"):
        fitted.save(tmp_path / "model")
    assert not list(tmp_path.glob(".tmp*"))
