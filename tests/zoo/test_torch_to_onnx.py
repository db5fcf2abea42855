"""PyTorch modules as ONNX files, trained or not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from oodzoo.core.errors import InputError, MissingPackageError
from oodzoo.zoo import torch_to_onnx
from oodzoo.zoo.torch_to_onnx import write_outputs

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
    write_outputs(module, CROP, file, ["features"], name="small")
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


def test_modules_that_cannot_be_written(
    torch: Any,
    module: Any,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Each(torch.nn.Module):  # type: ignore[misc]
        """Applies a function, which gets the number of the call, too."""

        def __init__(self, function: Any) -> None:
            super().__init__()
            self.function = function
            self.calls = 0

        def forward(self, batch: Any) -> Any:
            self.calls += 1
            return self.function(batch, self.calls)

    def refused(module: Any, message: str) -> None:
        with pytest.raises(InputError, match=message) as found:
            write_outputs(module, CROP, tmp_path / "module.onnx", ["features"], name="odd")
        assert "\n" not in str(found.value)
        assert not any(tmp_path.iterdir())

    for function, message in (
        (lambda x, n: torch.linalg.eigvals(x[..., :16, :16]).real.flatten(1),
         r"'odd' cannot be written as an ONNX file: .*linalg_eig"),
        (lambda x, n: x.mean((2, 3)) if x.sum() > 0 else x.amax((2, 3)),
         r"'odd' cannot be written as an ONNX file: .*data-dependent"),
        (lambda x, n: x * 2,
         r"'odd' cannot be written .*shape \(1, 3, 24, 16\) for a batch of 1; expected \(1"),
        (lambda x, n: x.mean((2, 3)) + n, r"outputs differ by .* from PyTorch's, more than 1e-04"),
    ):  # fmt: skip
        refused(Each(function), message)
    assert not any(capfd.readouterr())
    for package in ("onnx", "onnxscript"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)
            message = rf'ONNX files needs the package {package}.*"oodzoo\[tune\]"'
            with pytest.raises(MissingPackageError, match=message):
                write_outputs(module, CROP, tmp_path / "module.onnx", ["features"], name="odd")
    monkeypatch.setattr(torch.onnx, "export", lambda model, args, f: None)
    refused(module, r"ONNX files needs torch 2\.5 or newer, got 2\.")
    monkeypatch.setattr(torch_to_onnx, "_MAX_BYTES", 100)
    refused(module, r"'odd' has weights of .* limited to 2 GB")
