"""Small ONNX networks with the operators of real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from oodzoo.core.errors import MissingPackageError
from oodzoo.core.packages import import_torchvision, optional_package
from oodzoo.zoo import ModelSpec

SIZE = 8
PLAIN: dict[str, Any] = {"mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25)}


def require_converter() -> Any:
    """Return the package onnx; skip the module without it, torch or onnx2torch."""
    try:
        import_torchvision(extra="tune", purpose="this test")
        optional_package("onnx2torch", extra="tune", purpose="this test")
        optional_package("torch", extra="tune", purpose="this test").set_num_threads(1)
        return optional_package("onnx", extra="tune", purpose="this test")
    except MissingPackageError as error:
        pytest.skip(str(error), allow_module_level=True)


class Writer:
    """Builds a graph from the input x (n, 3, 8, 8), node by node."""

    def __init__(self, onnx: Any, seed: int = 0) -> None:
        self.onnx = onnx
        self.rng = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.weights: dict[str, NDArray[Any]] = {}

    def weight(self, name: str, *shape: int) -> str:
        return self.constant(name, self.rng.normal(0, 0.5, shape).astype(np.float32))

    def constant(self, name: str, array: Any) -> str:
        self.weights[name] = np.asarray(array)
        return name

    def add(self, operator: str, inputs: str, output: str, **attributes: Any) -> str:
        node = self.onnx.helper.make_node(operator, inputs.split(), [output], **attributes)
        self.nodes.append(node)
        return output

    def write(
        self,
        file: Path,
        outputs: tuple[str, ...] = ("features",),
        *,
        opset: int = 13,
        batch: int | str = "n",
        dtype: int = 1,
        **stated: Any,
    ) -> ModelSpec:
        helper = self.onnx.helper
        graph = helper.make_graph(
            self.nodes,
            "g",
            [helper.make_tensor_value_info("x", dtype, [batch, 3, SIZE, SIZE])],
            [helper.make_tensor_value_info(name, dtype, None) for name in outputs],
            [self.onnx.numpy_helper.from_array(a, n) for n, a in self.weights.items()],
        )
        opsets = [helper.make_opsetid("", opset)]
        self.onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), file)
        fields = {"features": outputs[0], **PLAIN, **stated}
        return ModelSpec(file.stem, f"onnx/{file.name}", folder=file.parent, **fields)


def convolutions(writer: Writer) -> None:
    """A convolution, a batch norm after a ReLU, and a pooled map of 6 features."""
    writer.weight("kernel", 6, 3, 3, 3)
    writer.weight("bias", 6)
    writer.add("Conv", "x kernel bias", "map", kernel_shape=[3, 3], pads=[0, 0, 1, 1])
    writer.add("Relu", "map", "active")
    for name in ("scale", "shift", "mean"):
        writer.weight(name, 6)
    writer.constant("variance", np.full(6, 0.7, np.float32))
    writer.add("BatchNormalization", "active scale shift mean variance", "normal")
    writer.add("GlobalAveragePool", "normal", "pooled")
    writer.add("Flatten", "pooled", "flat")
