"""Constant shapes and slices: as onnxruntime computes them, without tensors in the module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.zoo.data import noise
from tests.zoo.small_onnx import SIZE, Writer, convolutions, require_converter

from oodzoo.zoo import load_model
from oodzoo.zoo.sources import load_trainable

onnx = require_converter()
PIXELS = noise(3, SIZE)


@pytest.mark.parametrize(
    "limits",
    [
        [[0], [4]],
        [[-5], [-1], [1]],
        [[0], [2**31], [-1], [2]],
        [[-1], [-(2**31)], [1], [-1]],
        [[4], [0], [-1], [-2]],
    ],
    ids=["first axis", "negative", "steps", "backwards", "backwards with steps"],
)
def test_slices(limits: list[list[int]], tmp_path: Path) -> None:
    import torch

    writer = Writer(onnx)
    convolutions(writer)
    names = ["starts", "ends", "axes", "steps"][: len(limits)]
    for name, numbers in zip(names, limits, strict=True):
        writer.constant(name, np.array(numbers))
    # the batch comes last, so that slices of the first axis keep it
    writer.add("Transpose", "flat", "turned", perm=[1, 0])
    data = "turned" if len(limits) == 2 else "flat"
    writer.add("Slice", f"{data} {' '.join(names)}", "part")
    if data == "turned":
        writer.add("Transpose", "part", "features", perm=[1, 0])
    else:
        writer.add("Identity", "part", "features")
    spec = writer.write(tmp_path / "net.onnx")
    model = load_model(spec)
    made = load_trainable(spec, model.info.preprocessing)
    batch = torch.from_numpy(made.preprocessing.normalise(PIXELS))
    expected = model(PIXELS).features
    np.testing.assert_allclose(made.module(batch).detach().numpy(), expected, atol=1e-5)


def test_a_module_with_constant_shapes_can_be_exported(tmp_path: Path) -> None:
    torch: Any = pytest.importorskip("torch")
    writer = Writer(onnx)
    convolutions(writer)
    writer.constant("wanted", np.array([0, 2, 3]))
    writer.add("Reshape", "flat wanted", "cube")
    writer.add("Relu", "cube", "active2")
    writer.constant("rows", np.array([-1, 6]))
    writer.add("Reshape", "active2 rows", "features")
    spec = writer.write(tmp_path / "net.onnx")
    made = load_trainable(spec, load_model(spec).info.preprocessing)
    batch = torch.from_numpy(made.preprocessing.normalise(PIXELS))
    shapes = ({0: torch.export.Dim("n")},)
    exported = torch.export.export(made.module, (batch,), dynamic_shapes=shapes).module()
    with torch.no_grad():
        torch.testing.assert_close(exported(batch[:2]), made.module(batch[:2]))
