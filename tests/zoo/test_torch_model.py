"""Models of PyTorch: their outputs, their precision, and files that run no code."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.zoo.data import SQUASH, VIT, noise, save_checkpoint

from oodzoo.core.backend import require_present, resolve_device
from oodzoo.core.errors import InputError, MissingPackageError
from oodzoo.zoo import load_model, load_zoo
from oodzoo.zoo.model import only_one
from oodzoo.zoo.preprocessing import square
from oodzoo.zoo.spec import ModelSpec
from oodzoo.zoo.torch_model import Built, TorchModel, assemble_layers

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
SPEC = ModelSpec("small", "timm/small")
Make = Callable[..., TorchModel]


def _module(torch: Any, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    backbone = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, stride=2),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
    )
    backbone[1].running_var.uniform_(0.5, 2)
    return torch.nn.ModuleDict({"backbone": backbone, "head": torch.nn.Linear(8, 5)})


def _forward(module: Any, batch: Any) -> tuple[Any, Any]:
    features = module["backbone"](batch)
    return features, module["head"](features)


def _built(module: Any, forward: Any = _forward, identity: str = "small") -> Built:
    return Built(module, forward, square(16, MEAN, STD), identity)


@pytest.fixture
def pixels() -> Any:
    return noise(6, 16)


@pytest.fixture
def make(torch: Any) -> Make:
    return lambda **options: only_one(assemble_layers(_built(_module(torch)), [SPEC], **options))


def test_outputs_are_those_of_the_module_also_of_several_batches_in_flight(
    torch: Any, make: Make, pixels: Any
) -> None:
    model = make()
    batch = torch.from_numpy(square(16, MEAN, STD).normalise(pixels))
    with torch.no_grad():
        expected = [output.numpy() for output in _forward(_module(torch).eval(), batch)]
    for found, each in zip(model(pixels), expected, strict=True):
        np.testing.assert_allclose(np.asarray(found), each, rtol=1e-5, atol=1e-6)
    launched = [model.launch(model.prepare(pixels[i : i + 2])) for i in range(3)]
    for start, each in enumerate(launched):
        found = model.collect(each).features
        np.testing.assert_allclose(found, expected[0][start : start + 2], rtol=1e-5)


def test_half_precision_returns_float32_close_to_single_precision(make: Make, pixels: Any) -> None:
    half = make(precision="float16")
    features, logits = half(pixels)
    assert features.dtype == np.float32
    assert logits is not None
    exact: Any = make()(pixels)
    np.testing.assert_allclose(features, exact.features, atol=0.01)
    np.testing.assert_allclose(logits, exact.logits, atol=0.01)
    assert not np.array_equal(features, exact.features)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "gpu"}, "unknown device 'gpu'; expected one of cpu, cuda"),
        ({"device": "cuda:99"}, "device 'cuda:99' is not available"),
        ({"device": "xpu"}, "unknown device 'xpu'"),
        ({"precision": "int8"}, "unknown precision 'int8'; expected one of float32"),
    ],
)
def test_unknown_device_or_precision(make: Make, options: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(**options)


def test_bad_outputs_are_rejected(torch: Any) -> None:
    def broken(module: Any, batch: Any) -> Any:
        raise RuntimeError("no such\n  layer")

    for forward, message in (
        (lambda module, batch: (module["backbone"][0](batch), None),
         r"output of shape \(1, 8, 7, 7\)"),
        (lambda module, batch: (torch.randn(len(batch), 4), None), "different features each time"),
        (lambda module, batch: (_forward(module, batch)[0] / 0, None),
         "NaN or infinite features in float32"),
        (broken, "cannot run on an image of 16×16 pixels on cpu in float32: no such layer"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            only_one(assemble_layers(_built(_module(torch), forward), [SPEC]))


WITHOUT_TORCHVISION = """
import importlib.util, sys
sys.modules["torchvision"] = None
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "torchvision" else find(name, *rest)
from oodzoo.zoo import load_model, load_zoo
print(load_model(load_zoo(sys.argv[1])[0]).info.feature_dim)
"""


def test_packages_that_are_missing(transformers: Any, tmp_path: Path, monkeypatch: Any) -> None:
    for spec, package, extra in (
        ("timm/resnet50.a1_in1k", "torch", "timm"),
        ("timm/resnet50.a1_in1k", "torchvision", "timm"),
        ("timm/resnet50.a1_in1k", "timm", "timm"),
        ("torchvision/resnet50", "torchvision", "torchvision"),
        ("hf/facebook/dinov2-small", "transformers", "hf"),
        ("open_clip/ViT-B-16/openai", "open_clip", "open-clip"),
    ):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)
            words = f'the package {package}; install it with: pip install "oodzoo\\[{extra}\\]"'
            with pytest.raises(MissingPackageError, match=words):
                load_model(load_zoo(spec)[0])
    network = transformers.ViTModel(transformers.ViTConfig(**VIT))
    save_checkpoint(transformers, network, tmp_path, SQUASH)
    command = [sys.executable, "-c", WITHOUT_TORCHVISION, f"hf/{tmp_path}"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "32\n"


AVAILABLE, ABSENT = (SimpleNamespace(is_available=lambda at=at: at) for at in (True, False))


@pytest.mark.parametrize(
    ("cuda", "mps", "providers", "expected"),
    [
        (AVAILABLE, AVAILABLE, ["CUDAExecutionProvider", "CPUExecutionProvider"], ("cuda", "cuda")),
        (ABSENT, AVAILABLE, ["CPUExecutionProvider"], ("mps", "cpu")),
        (None, None, [], ("cpu", "cpu")),  # without PyTorch
    ],
)
def test_auto_is_the_fastest_device(
    monkeypatch: pytest.MonkeyPatch, cuda: Any, mps: Any, providers: list[str], expected: Any
) -> None:
    torch = SimpleNamespace(cuda=cuda, backends=SimpleNamespace(mps=mps)) if cuda else None
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: providers)
    assert (resolve_device("auto", "timm"), resolve_device("auto", "onnx")) == expected


@pytest.mark.parametrize(
    ("gpus", "providers", "missing"),
    [
        (2, ["CUDAExecutionProvider"], ["cuda:2"]),
        (0, [], ["cuda", "cuda:0", "cuda:2"]),
        (0, ["CUDAExecutionProvider"], []),  # it does not count its devices
        (None, [], ["cuda", "cuda:0", "cuda:2"]),
    ],
)
def test_devices_that_are_not_there(
    monkeypatch: pytest.MonkeyPatch, gpus: int | None, providers: list[str], missing: list[str]
) -> None:
    torch = SimpleNamespace(cuda=SimpleNamespace(device_count=lambda: gpus))
    monkeypatch.setitem(sys.modules, "torch", None if gpus is None else torch)
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: providers)
    for device in ("auto", "cpu", "mps", "cuda", "cuda:0", "cuda:2"):
        if device not in missing:
            require_present(device)
            continue
        with pytest.raises(InputError, match=f"device '{device}' is not available: found "):
            require_present(device)
