"""Exporting a predictor with PyTorch models as one ONNX file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from PIL import Image
from tests.small_clip import small_clip
from tests.zoo.data import CROP, VIT, save_checkpoint

import oodzoo
from oodzoo.features.config import ExtractionConfig
from oodzoo.features.extract import run_extraction
from oodzoo.predictor.export import TORCH_TOLERANCE
from oodzoo.zoo import ModelSpec
from oodzoo.zoo.layers import with_layer

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")

HUBCONF = """
import torch

def classifier():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 6, 4, stride=4), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(), torch.nn.Linear(6, 5),
    )
"""


def _models(folder: Path) -> list[ModelSpec]:
    """A small model of each source; of one of them two layers, too."""
    transformers = pytest.importorskip("transformers")
    import torch

    torch.manual_seed(0)
    network = transformers.Dinov2Model(transformers.Dinov2Config(**VIT))
    save_checkpoint(transformers, network, folder / "dino", CROP)
    untrained: Any = {"pretrained": False, "input_size": 32}
    vision = ModelSpec("vision", "torchvision/squeezenet1_1", **untrained)
    dino = ModelSpec("dino", "hf/./dino", folder=folder)
    return [
        small_clip(folder),
        ModelSpec("timm", "timm/test_resnet.r160_in1k", **untrained),
        vision,
        with_layer(vision, "features.3", None),
        dino,
        with_layer(dino, "encoder.layer.0", "both"),
        _hub_model(folder),
    ]


def _hub_model(folder: Path) -> ModelSpec:
    (folder / "hub").mkdir()
    (folder / "hub" / "hubconf.py").write_text(HUBCONF)
    return ModelSpec("hub", "torch_hub/hub:classifier", folder=folder, input_size=32)


@pytest.fixture(scope="module")
def torch_predictor(
    timm: Any, digits: Path, zoo: list[ModelSpec], extract: Any, tmp_path_factory: Any
) -> oodzoo.Predictor:
    folder = tmp_path_factory.mktemp("torch")
    specs = [*_models(folder), zoo[0]]
    store = extract(digits, specs, folder / "store")
    return oodzoo.fit(store, models=[spec.name for spec in specs])


@pytest.fixture(scope="module")
def exported(torch_predictor: oodzoo.Predictor, tmp_path_factory: Any) -> Path:
    return torch_predictor.export(tmp_path_factory.mktemp("exported") / "model.onnx")


def test_every_source_and_layers(
    torch_predictor: oodzoo.Predictor, exported: Path, unseen: list[Path]
) -> None:
    session = onnxruntime.InferenceSession(exported, providers=["CPUExecutionProvider"])
    for images in (unseen, unseen[:1]):
        (found,) = session.run(None, torch_predictor.preprocess(images))
        expected = torch_predictor.predict_proba(images)
        np.testing.assert_allclose(found, expected, atol=TORCH_TOLERANCE)
    proto = onnx.load(exported)
    assert proto.ir_version <= 9  # of ONNX Runtime 1.17
    assert not any(node.metadata_props for node in proto.graph.node)


def test_the_file_needs_no_torch(
    torch_predictor: oodzoo.Predictor, exported: Path, unseen: list[Path], tmp_path: Path
) -> None:
    pixels: Any = torch_predictor.preprocess(unseen[:2])
    np.savez(tmp_path / "pixels.npz", **pixels)
    script = (
        "import sys, numpy, onnxruntime\n"
        "session = onnxruntime.InferenceSession(sys.argv[1])\n"
        "(found,) = session.run(None, dict(numpy.load(sys.argv[2])))\n"
        "assert not {'torch', 'oodzoo', 'onnx'} & set(sys.modules)\n"
        "print(found.argmax(1).tolist())\n"
    )
    command: list[Any] = [sys.executable, "-c", script, exported, tmp_path / "pixels.npz"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    names = torch_predictor.classes_[eval(done.stdout)]
    assert names.tolist() == torch_predictor.predict(unseen[:2]).tolist()


def test_models_in_half_precision(
    timm: Any, digits: Path, unseen: list[Path], tmp_path: Path
) -> None:
    """They are exported in float32, so probabilities are those of bfloat16 but for its rounding."""
    spec = _hub_model(tmp_path)
    config = ExtractionConfig(device="cpu", precision="bfloat16")
    run_extraction(oodzoo.ImageDomains(digits), [spec], tmp_path / "store", config)
    predictor = oodzoo.fit(tmp_path / "store", models=["hub"])
    assert predictor.loadable_models[0].precision == "bfloat16"
    file = predictor.export(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, predictor.preprocess(unseen))
    difference = np.abs(found - predictor.predict_proba(unseen)).max()
    assert 1e-6 < difference < 0.2
    raw = predictor.export(tmp_path / "raw.onnx", raw=True)
    session = onnxruntime.InferenceSession(raw, providers=["CPUExecutionProvider"])
    with Image.open(unseen[0]) as image:
        (one,) = session.run(None, {"image": np.asarray(image.convert("RGB"))})
    np.testing.assert_allclose(one[0], found[0], atol=0.01)
