"""Predictors with PyTorch models as ONNX files; any predictor as a PyTorch module to train."""

from __future__ import annotations

import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from tests.predictor.data import DOMAINS, Y, rows
from tests.small_clip import small_clip
from tests.zoo.data import CROP, VIT, save_checkpoint
from tests.zoo.small_onnx import require_converter

import oodzoo
from oodzoo.core.errors import InputError
from oodzoo.zoo import ModelSpec
from oodzoo.zoo.zoos import with_layer

onnx = require_converter()
pytest.importorskip("onnxscript")
TOLERANCE = 1e-4

HUBCONF = """
import torch

def classifier():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 6, 4, stride=4), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(), torch.nn.Linear(6, 5),
    )
"""


def tensors(predictor: oodzoo.Predictor, images: list[Path]) -> dict[str, Any]:
    torch: Any = import_module("torch")
    return {name: torch.from_numpy(array) for name, array in predictor.preprocess(images).items()}


def probabilities(module: Any, inputs: Any) -> Any:
    torch: Any = import_module("torch")
    with torch.no_grad():
        return module(inputs).softmax(1).numpy()


def require_gradients(module: Any, inputs: Any) -> None:
    (module(inputs) ** 2).nan_to_num(posinf=0).sum().backward()
    for name, weight in module.named_parameters():
        assert weight.grad is not None or not weight.requires_grad, name
    assert module.head.weight.grad.abs().sum() > 0


def hub_model(folder: Path) -> ModelSpec:
    (folder / "hub").mkdir()
    (folder / "hub" / "hubconf.py").write_text(HUBCONF)
    return ModelSpec("hub", "torch_hub/hub:classifier", folder=folder, input_size=32)


@pytest.fixture(scope="module")
def mixed_store(
    timm: Any, digits: Path, zoo: list[ModelSpec], extract: Any, tmp_path_factory: Any
) -> oodzoo.FeatureStore:
    """Of a small model of each source; of two of them also a layer."""
    transformers = pytest.importorskip("transformers")
    import torch

    folder = tmp_path_factory.mktemp("torch")
    torch.manual_seed(0)
    network = transformers.Dinov2Model(transformers.Dinov2Config(**VIT))
    save_checkpoint(transformers, network, folder / "dino", CROP)
    untrained: Any = {"pretrained": False, "input_size": 32}
    vision = ModelSpec("vision", "torchvision/squeezenet1_1", **untrained)
    dino = ModelSpec("dino", "hf/./dino", folder=folder)
    specs = [
        small_clip(folder),
        ModelSpec("timm", "timm/test_resnet.r160_in1k", **untrained),
        vision,
        with_layer(vision, "features.3", None),
        dino,
        with_layer(dino, "encoder.layer.0", "both"),
        hub_model(folder),
        zoo[0],
    ]
    found: oodzoo.FeatureStore = extract(digits, specs, folder / "store")
    return found


def test_several_sources_and_a_layer(
    mixed_store: oodzoo.FeatureStore, unseen: list[Path], tmp_path: Path
) -> None:
    """Two networks, since PyTorch takes seconds to export one; modules have all sources."""
    names = [name for name in mixed_store.models if not name.startswith(("clip", "timm", "vision"))]
    assert len(names) == 4
    mixed = oodzoo.fit(mixed_store, models=names)
    file = mixed.export(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    for images in (unseen, unseen[:1]):
        (found,) = session.run(None, mixed.preprocess(images))
        np.testing.assert_allclose(found, mixed.predict_proba(images), atol=TOLERANCE)
    proto = onnx.load(file)
    assert proto.ir_version <= 9  # of ONNX Runtime 1.17
    assert not any(node.metadata_props for node in proto.graph.node)
    np.savez(tmp_path / "pixels.npz", **mixed.preprocess(unseen[:2]))  # type: ignore[arg-type]
    script = (
        "import sys, numpy, onnxruntime\n"
        "session = onnxruntime.InferenceSession(sys.argv[1])\n"
        "(found,) = session.run(None, dict(numpy.load(sys.argv[2])))\n"
        "assert not {'torch', 'oodzoo', 'onnx'} & set(sys.modules)\n"
        "print(*found.argmax(1))\n"
    )
    command: list[Any] = [sys.executable, "-c", script, file, tmp_path / "pixels.npz"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = mixed.classes_[list(map(int, done.stdout.split()))]
    assert found.tolist() == mixed.predict(unseen[:2]).tolist()


@pytest.mark.parametrize("choose", ["pool", "selection"])
def test_the_module_equals_the_predictor(
    choose: Any, store: oodzoo.FeatureStore, unseen: list[Path]
) -> None:
    predictor = oodzoo.fit(store, choose=choose)
    module = predictor.to_torch()
    assert module.head.in_features == len(predictor.columns)
    inputs, expected = tensors(predictor, unseen), predictor.predict_proba(unseen)
    (pixels,) = inputs.values()
    for given in (inputs, pixels, pixels.float()):
        np.testing.assert_allclose(probabilities(module, given), expected, atol=TOLERANCE)
    require_gradients(module, pixels)
    assert all(weight.requires_grad for weight in module.parameters())
    np.testing.assert_array_equal(predictor.predict_proba(unseen), expected)


def test_batch_norms_sizes_and_layers(mixed_store: oodzoo.FeatureStore, unseen: list[Path]) -> None:
    torch: Any = import_module("torch")
    mixed = oodzoo.fit(mixed_store, models=list(mixed_store.models))
    module, inputs = mixed.to_torch(), tensors(mixed, unseen)
    expected = mixed.predict_proba(unseen)
    assert len(module.networks) == len(mixed.models) - 2
    assert len(inputs) > 1
    np.testing.assert_allclose(probabilities(module, inputs), expected, atol=TOLERANCE)
    module.train()
    assert module.training
    norms = [part for part in module.modules() if isinstance(part, torch.nn.BatchNorm2d)]
    assert norms
    assert not any(norm.training for norm in norms)
    require_gradients(module, inputs)
    for wrong in (torch.zeros(1, 32, 32, 3), {"pixels_32x32": torch.zeros(1, 32, 32, 3)}):
        with pytest.raises(InputError, match=r"takes a dict of pixels_.*; got pixels"):
            module(wrong)


def test_the_module_can_be_traced_and_exported(
    predictor: oodzoo.Predictor, unseen: list[Path]
) -> None:
    torch: Any = import_module("torch")
    module = predictor.to_torch()
    (pixels,) = tensors(predictor, unseen).values()
    shapes = ({0: torch.export.Dim("n")},)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        traced = torch.jit.trace(module, (pixels[:2],))
    exported = torch.export.export(module, (pixels[:2],), dynamic_shapes=shapes).module()
    expected = predictor.predict_proba(unseen)
    for form in (traced, exported):
        np.testing.assert_allclose(probabilities(form, pixels), expected, atol=TOLERANCE)


def test_wrong_inputs_and_predictors(
    predictor: oodzoo.Predictor, unseen: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = predictor.to_torch()
    (pixels,) = tensors(predictor, unseen[:2]).values()
    shape = r"pixels must be \(n, height, width, 3\), .*; got \("
    for wrong, message in (
        (predictor.preprocess(unseen[:2]), r"pixels must be a tensor, .*; got ndarray"),
        (pixels.permute(0, 3, 1, 2), shape),
        (pixels[0], shape),
        ({"image": pixels}, r"the module takes a dict of pixels, .*; got image"),
    ):
        with pytest.raises(InputError, match=message):
            module(wrong)
    with pytest.raises(InputError, match="have features only, and cannot be loaded: x"):
        oodzoo.fit({"x": rows()}, Y, DOMAINS, choose="single").to_torch()
    monkeypatch.setattr("oodzoo.predictor.torch_module.TOLERANCE", 0.0)
    with pytest.raises(InputError, match="the logits of the PyTorch module differ by"):
        predictor.to_torch()
