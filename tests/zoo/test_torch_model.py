"""Models of PyTorch: their outputs, their precision, and files that run no code."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.zoo.data import noise

from oodzoo.core.errors import InputError
from oodzoo.zoo.device import (
    require_device,
    require_present,
    resolve_device,
)
from oodzoo.zoo.preprocessing import square
from oodzoo.zoo.spec import ModelSpec
from oodzoo.zoo.torch_model import Built, TorchModel, assemble, no_unpickling

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
    return noise(4, 16)


@pytest.fixture
def make(torch: Any) -> Make:
    def make(**options: Any) -> TorchModel:
        return assemble(_built(_module(torch)), SPEC, **options)

    return make


def _by_hand(torch: Any, pixels: Any) -> tuple[Any, Any]:
    module = _module(torch).eval()
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (MEAN, STD))
    with torch.no_grad():
        batch = (torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous() / 255 - mean) / std
        return tuple(output.numpy() for output in _forward(module, batch))


def test_on_the_cpu_outputs_equal_calling_the_module(torch: Any, make: Make, pixels: Any) -> None:
    features, logits = make()(pixels)
    expected_features, expected_logits = _by_hand(torch, pixels)
    np.testing.assert_array_equal(features, expected_features)
    np.testing.assert_array_equal(logits, expected_logits)
    assert features.dtype == np.float32


def test_batches_may_be_collected_after_later_ones_are_launched(make: Make, pixels: Any) -> None:
    model = make()
    launched = [model.launch(model.prepare(pixels[i : i + 2])) for i in range(3)]
    together = model(pixels).features
    for start, batch in enumerate(launched):
        np.testing.assert_allclose(
            model.collect(batch).features, together[start : start + 2], rtol=1e-5
        )


def test_half_precision_returns_float32_close_to_single_precision(make: Make, pixels: Any) -> None:
    half = make(precision="float16")
    features, logits = half(pixels)
    assert features.dtype == np.float32
    assert logits is not None
    exact: Any = make()(pixels)
    np.testing.assert_allclose(features, exact.features, atol=0.01)
    np.testing.assert_allclose(logits, exact.logits, atol=0.01)
    assert not np.array_equal(features, exact.features)


def test_fingerprint_depends_on_weights_and_outputs_not_precision(torch: Any, make: Make) -> None:
    same = make().info.fingerprint
    assert same == make().info.fingerprint == make(precision="float16").info.fingerprint

    other_weights = _module(torch)
    with torch.no_grad():
        other_weights["head"].bias[0] += 1e-6
    others = [
        assemble(_built(other_weights), SPEC),
        assemble(_built(_module(torch), identity="other output"), SPEC),
    ]
    assert len({same, *(model.info.fingerprint for model in others)}) == 3


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
    def maps(module: Any, batch: Any) -> tuple[Any, None]:
        return module["backbone"][0](batch), None

    def noise(module: Any, batch: Any) -> tuple[Any, None]:
        return torch.randn(len(batch), 4), None

    def infinite(module: Any, batch: Any) -> tuple[Any, None]:
        return _forward(module, batch)[0] / 0, None

    def broken(module: Any, batch: Any) -> tuple[Any, None]:
        raise RuntimeError("no such\n  layer")

    for forward, message in [
        (maps, r"output of shape \(1, 8, 7, 7\)"),
        (noise, "different features each time"),
        (infinite, "NaN or infinite features in float32"),
        (broken, "cannot run on an image of 16×16 pixels on cpu in float32: no such layer"),
    ]:
        with pytest.raises(InputError, match=message):
            assemble(_built(_module(torch), forward), SPEC)


def test_nothing_is_unpickled(torch: Any, tmp_path: Path) -> None:
    file = tmp_path / "evil.pt"
    torch.save({"weight": _Evil(tmp_path / "was here")}, file)
    with no_unpickling(), pytest.raises(pickle.UnpicklingError):
        torch.load(file, weights_only=False)
    assert not (tmp_path / "was here").exists()
    torch.load(file, weights_only=False)  # the file does run code when unpickled
    assert (tmp_path / "was here").exists()


class _Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_cuda_with_many_batches_in_flight_equals_cpu(torch: Any, make: Make, pixels: Any) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    model = make(device="cuda")
    launched = [model.launch(model.prepare(np.roll(pixels, k, axis=0))) for k in range(20)]
    expected = make()(pixels).features
    for k, batch in enumerate(launched):
        np.testing.assert_allclose(
            model.collect(batch).features, np.roll(expected, k, axis=0), rtol=1e-2, atol=1e-3
        )


def test_a_missing_package_gives_the_line_that_installs_it(torch: Any) -> None:
    # All in one process: importing torch takes seconds.
    cases = [
        ("timm/resnet50.a1_in1k", "torch", "timm"),
        ("timm/resnet50.a1_in1k", "torchvision", "timm"),
        ("timm/resnet50.a1_in1k", "timm", "timm"),
        ("torchvision/resnet50", "torchvision", "torchvision"),
        ("hf/facebook/dinov2-small", "transformers", "hf"),
        ("open_clip/ViT-B-16/openai", "open_clip", "open-clip"),
    ]
    code = f"""
import sys
from oodzoo.core.errors import MissingPackageError
from oodzoo.zoo import load_model, load_zoo
for spec, package, extra in {cases!r}:
    before = sys.modules.pop(package, None)
    sys.modules[package] = None
    try:
        load_model(load_zoo(spec)[0])
    except MissingPackageError as error:
        print(error)
    del sys.modules[package]
    if before is not None:
        sys.modules[package] = before
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    lines = run.stdout.splitlines()
    assert len(lines) == len(cases), run
    for line, (_, package, extra) in zip(lines, cases, strict=True):
        assert line.endswith(
            f'needs the package {package}; install it with: pip install "oodzoo[{extra}]"'
        )


# --- the import of torchvision --------------------------------------------------------------------


def test_operators_are_declared_only_if_the_import_fails(torchvision: Any) -> None:
    code = """
import sys
try:
    import torchvision as plain
except RuntimeError:
    plain = None
from oodzoo.zoo import torchvision_import
repaired = torchvision_import.import_torchvision(extra="torchvision", purpose="this test")
assert repaired is sys.modules["torchvision"]
assert repaired.models.resnet18 and repaired.transforms.CenterCrop
if plain is None:
    assert torchvision_import._declarations
    try:
        repaired.ops.nms(*[__import__("torch").zeros(1, 4)] * 2, 0.5)
    except RuntimeError as error:
        assert "custom C++ ops" in str(error)
    else:
        raise AssertionError("an operator without implementation ran")
else:
    assert repaired is plain and not torchvision_import._declarations
print("done")
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout == "done\n", run.stderr


# --- devices --------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["", "gpu", "cuda:x", "cuda:-1", "CPU", "auto:1"])
def test_unknown_devices(device: str) -> None:
    with pytest.raises(InputError, match=f"unknown device {device!r}; expected one of auto, cpu"):
        require_device(device)
    with pytest.raises(InputError, match="unknown device"):
        resolve_device(device, "onnx")


@pytest.mark.parametrize(
    ("cuda", "mps", "expected"),
    [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")],
)
def test_auto_is_the_fastest_device_of_torch(
    monkeypatch: pytest.MonkeyPatch, cuda: bool, mps: bool, expected: str
) -> None:
    def available(answer: bool) -> Any:
        return SimpleNamespace(is_available=lambda: answer)

    torch = SimpleNamespace(cuda=available(cuda), backends=SimpleNamespace(mps=available(mps)))
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert resolve_device("auto", "timm") == expected


@pytest.mark.parametrize(
    ("providers", "expected"),
    [
        (["CUDAExecutionProvider", "CPUExecutionProvider"], "cuda"),
        (["CPUExecutionProvider"], "cpu"),
    ],
)
def test_auto_for_onnx_follows_onnxruntime(
    monkeypatch: pytest.MonkeyPatch, providers: list[str], expected: str
) -> None:
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: providers)
    assert resolve_device("auto", "onnx") == expected


@pytest.mark.parametrize(
    ("gpus", "providers", "missing"),
    [
        (2, [], ["cuda:2"]),
        (2, ["CUDAExecutionProvider"], ["cuda:2"]),
        (0, [], ["cuda", "cuda:0", "cuda:2"]),
        (0, ["CUDAExecutionProvider"], []),  # it does not count its devices
        (None, ["CUDAExecutionProvider"], []),
        (None, [], ["cuda", "cuda:0", "cuda:2"]),
    ],
)
def test_devices_that_are_not_there(
    monkeypatch: pytest.MonkeyPatch, gpus: int | None, providers: list[str], missing: list[str]
) -> None:
    torch = SimpleNamespace(cuda=SimpleNamespace(device_count=lambda: gpus))
    monkeypatch.setitem(sys.modules, "torch", None if gpus is None else torch)
    onnxruntime = SimpleNamespace(get_available_providers=lambda: providers)
    monkeypatch.setitem(sys.modules, "onnxruntime", onnxruntime)
    for device in ("auto", "cpu", "mps", "cuda", "cuda:0", "cuda:2"):
        if device not in missing:
            require_present(device)
            continue
        with pytest.raises(InputError, match=f"device '{device}' is not available: found "):
            require_present(device)


def test_auto_without_torch_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert resolve_device("auto", "hf") == "cpu"
