"""PyTorch modules as ONNX files, trained or not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from tests.zoo.data import noise

from oodzoo.core.errors import InputError, MissingPackageError
from oodzoo.zoo import ModelSpec, load_model, torch_to_onnx
from oodzoo.zoo.layers import with_layer
from oodzoo.zoo.sources import load_trainable
from oodzoo.zoo.torch_to_onnx import write_features, write_outputs

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")

CROP = (24, 16)


def _run(file: Path, batch: Any) -> list[Any]:
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    found: list[Any] = session.run(None, {"input": batch.numpy()})
    return found


@pytest.fixture
def module(torch: Any) -> Any:
    torch.manual_seed(0)
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    ).eval()


def test_the_file_equals_the_module(
    torch: Any, module: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "module.onnx"
    write_features(module, CROP, file, name="small")
    for n in (1, 2, 5):
        batch = torch.rand(n, 3, *CROP)
        (found,) = _run(file, batch)
        np.testing.assert_allclose(found, module(batch).detach().numpy(), atol=1e-6)
    proto = onnx.load(file)
    (value,) = proto.graph.input
    assert value.name == "input"
    assert value.type.tensor_type.shape.dim[0].dim_param
    assert [each.name for each in proto.graph.output] == ["features"]
    assert not any(node.metadata_props or node.doc_string for node in proto.graph.node)
    assert str(Path(__file__)).encode() not in file.read_bytes()
    assert [each.name for each in tmp_path.iterdir()] == [file.name]  # no external weights
    assert not any(capfd.readouterr())


def test_several_outputs(torch: Any, module: Any, tmp_path: Path) -> None:
    class Two(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, batch: Any) -> Any:
            return self.inner(batch), batch.amax((2, 3))

    write_outputs(Two(), CROP, tmp_path / "two.onnx", ["a", "b"], name="two")
    batch = torch.rand(3, 3, *CROP)
    for found, expected in zip(_run(tmp_path / "two.onnx", batch), Two()(batch), strict=True):
        np.testing.assert_allclose(found, expected.detach().numpy(), atol=1e-6)


def test_modules_that_cannot_be_written(
    torch: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Spectrum(torch.nn.Module):  # type: ignore[misc]
        def forward(self, batch: Any) -> Any:
            return torch.linalg.eigvals(batch[..., :16, :16]).real.flatten(1)

    class Branch(torch.nn.Module):  # type: ignore[misc]
        def forward(self, batch: Any) -> Any:
            return batch.mean((2, 3)) if batch.sum() > 0 else batch.amax((2, 3))

    class Map(torch.nn.Module):  # type: ignore[misc]
        def forward(self, batch: Any) -> Any:
            return batch * 2

    file = tmp_path / "module.onnx"
    for module, message in (
        (Spectrum(), r"'odd' cannot be written as an ONNX file: .*linalg_eig"),
        (Branch(), r"'odd' cannot be written as an ONNX file: .*data-dependent"),
        (Map(), r"'odd' cannot be written .*shape \(1, 3, 24, 16\) for a batch of 1; expected \(1"),
    ):
        with pytest.raises(InputError, match=message) as found:
            write_features(module, CROP, file, name="odd")
        assert "\n" not in str(found.value)
    assert not file.exists()
    assert not any(capfd.readouterr())


def test_a_file_that_differs(
    torch: Any, module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counting(torch.nn.Module):  # type: ignore[misc]
        """Gives something else each time."""

        calls = 0

        def forward(self, batch: Any) -> Any:
            self.calls += 1
            return batch.mean((2, 3)) + self.calls

    with pytest.raises(InputError, match=r"outputs differ by .* from PyTorch's, more than 1e-04"):
        write_features(Counting(), CROP, tmp_path / "module.onnx", name="odd")
    monkeypatch.setattr(torch_to_onnx, "_MAX_BYTES", 100)
    with pytest.raises(InputError, match=r"'small' has weights of .* limited to 2 GB"):
        write_features(module, CROP, tmp_path / "module.onnx", name="small")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_missing_packages(
    module: Any, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    message = rf'ONNX files needs the package {package}.*"oodzoo\[tune\]"'
    with pytest.raises(MissingPackageError, match=message):
        write_features(module, CROP, tmp_path / "module.onnx", name="small")


def test_an_old_torch(
    torch: Any, module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def export(model: Any, args: Any, f: Any) -> None: ...

    monkeypatch.setattr(torch.onnx, "export", export)
    with pytest.raises(InputError, match=r"ONNX files needs torch 2\.5 or newer, got 2\."):
        write_features(module, CROP, tmp_path / "module.onnx", name="small")


# --- models of libraries --------------------------------------------------------------------------


PIXELS = noise(3, 32)


@pytest.fixture
def spec(timm: Any) -> ModelSpec:
    return ModelSpec("tiny", "timm/test_resnet", pretrained=False, input_size=32)


def test_changed_weights_are_written(spec: ModelSpec, tmp_path: Path) -> None:
    import torch

    pytest.importorskip("onnxscript", reason="torch.onnx needs it")
    made = load_trainable(spec, load_model(spec).info.preprocessing)
    with torch.no_grad():
        for weight in made.module.parameters():
            weight.mul_(0.9)
    made.write_onnx(tmp_path / "net.onnx")
    preprocessing = made.preprocessing
    stated: dict[str, Any] = {"mean": preprocessing.mean, "std": preprocessing.std}
    written = load_model(ModelSpec("net", "onnx/net.onnx", folder=tmp_path, **stated))
    with torch.no_grad():
        found = made.module(torch.from_numpy(preprocessing.normalise(PIXELS)))
    np.testing.assert_allclose(written(PIXELS).features, found.numpy(), atol=1e-5)


def test_what_follows_a_layer_is_frozen_and_not_run(spec: ModelSpec) -> None:
    import torch

    layer = with_layer(spec, "layer1", None)
    made = load_trainable(layer, load_model(layer).info.preprocessing)
    made.module.network.layer2.forward = None  # cannot be called
    batch = torch.from_numpy(made.preprocessing.normalise(PIXELS))
    assert made.module(batch).shape == (3, made.feature_dim)
    trained = {name for name, weight in made.module.named_parameters() if weight.requires_grad}
    assert any(name.startswith("network.layer1.") for name in trained)
    assert not any(name.startswith("network.layer2.") for name in trained)
