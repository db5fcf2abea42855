from __future__ import annotations

import hashlib
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.zoo.data import noise

from oodzoo.errors import InputError
from oodzoo.zoo.preprocessing import square
from oodzoo.zoo.spec import ModelSpec
from oodzoo.zoo.torch_model import Built, TorchModel, assemble, no_unpickling, weights_digest

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


def test_info_has_the_measured_dimensions(make: Make) -> None:
    info = make().info
    assert (info.name, info.feature_dim, info.n_logits) == ("small", 8, 5)
    assert info.parameters == 3 * 8 * 9 + 8 + 2 * 8 + 8 * 5 + 5


def test_batches_may_be_collected_after_later_ones_are_launched(make: Make, pixels: Any) -> None:
    model = make()
    launched = [model.launch(model.prepare(pixels[i : i + 2])) for i in range(3)]
    together = model(pixels).features
    for start, batch in enumerate(launched):
        np.testing.assert_allclose(
            model.collect(batch).features, together[start : start + 2], rtol=1e-5
        )


def test_read_only_and_strided_pixels_are_accepted(make: Make, pixels: Any) -> None:
    expected = make()(pixels).features
    pixels.flags.writeable = False
    np.testing.assert_array_equal(make()(pixels).features, expected)
    np.testing.assert_array_equal(make()(pixels[::-1]).features, expected[::-1])


def test_half_precision_returns_float32_close_to_single_precision(make: Make, pixels: Any) -> None:
    half = make(precision="float16")
    features, logits = half(pixels)
    assert features.dtype == np.float32
    assert logits is not None
    exact: Any = make()(pixels)
    np.testing.assert_allclose(features, exact.features, atol=0.01)
    np.testing.assert_allclose(logits, exact.logits, atol=0.01)
    assert not np.array_equal(features, exact.features)


def test_batch_normalisation_keeps_its_statistics_in_single_precision(torch: Any) -> None:
    module = _module(torch)
    statistics = module["backbone"][1].running_var.clone()
    assemble(_built(module), SPEC, precision="float16")
    assert module["backbone"][0].weight.dtype == torch.float16
    assert torch.equal(module["backbone"][1].running_var, statistics)


def test_bfloat16_runs(torch: Any) -> None:
    # In a process of its own, told to stay away from matrix tiles: some virtual machines announce
    # them and then end the process that uses them.
    code = """
import numpy as np, torch
from oodzoo.zoo.preprocessing import square
from oodzoo.zoo.spec import ModelSpec
from oodzoo.zoo.torch_model import Built, assemble
torch.manual_seed(0)
def model(precision):
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64, 16))
    built = Built(module, lambda m, x: (m(x), None), square(8, (0.5,) * 3, (0.5,) * 3), "linear")
    return assemble(built, ModelSpec("linear", "timm/linear"), precision=precision)
pixels = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3), dtype=np.uint8)
half, single = model("bfloat16")(pixels).features, model("float32")(pixels).features
assert half.dtype == np.float32 and not np.array_equal(half, single)
print(np.abs(half - single).max() < 0.02)
"""
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    assert (run.stdout.strip(), run.returncode) == ("True", 0), run.stderr


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


def test_weights_digest_is_stable(torch: Any) -> None:
    module = torch.nn.Linear(2, 1)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[1.0, 2.0]]))
        module.bias.zero_()
    written = b"weight torch.float32 (1, 2)\n" + struct.pack("<2f", 1, 2)
    written += b"bias torch.float32 (1,)\n" + struct.pack("<f", 0)
    assert weights_digest(module) == hashlib.sha256(written).hexdigest()


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


def test_wrong_feature_dim(torch: Any) -> None:
    spec = ModelSpec("small", "timm/small", feature_dim=9)
    with pytest.raises(
        InputError, match="returns 8 features, but its zoo file sets feature_dim = 9"
    ):
        assemble(_built(_module(torch)), spec)


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


def test_no_unpickling_restores_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for before in (None, "0"):
        if before is None:
            monkeypatch.delenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", raising=False)
        else:
            monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", before)
        with no_unpickling():
            pass
        assert os.environ.get("TORCH_FORCE_WEIGHTS_ONLY_LOAD") == before


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
from oodzoo.errors import MissingPackageError
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
