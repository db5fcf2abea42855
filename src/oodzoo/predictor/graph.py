"""ONNX graphs that end in the head of a predictor."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import oodzoo
from oodzoo._packages import optional_package
from oodzoo._text import one_line
from oodzoo.errors import InputError
from oodzoo.predictor.parts import PredictorParts

TOLERANCE = 1e-5
"""Largest accepted difference between the outputs of the file and of the predictor."""

OPSET = 13
"""The first opset whose Softmax is over one axis."""

IR_VERSION = 8


class GraphBuilder:
    """Collects the nodes and constants of a graph.

    Attributes
    ----------
    onnx : module
    parts : PredictorParts
    nodes, constants, sparse : list
    batch : int or str
        Size of the first dimension of inputs and outputs, or its name.
    """

    def __init__(self, parts: PredictorParts) -> None:
        self.onnx = optional_package("onnx", extra="onnx", purpose="exporting to ONNX")
        self.parts = parts
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.sparse: list[Any] = []
        self.batch: int | str = "n"

    def add(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """Add a node; return the name of its output."""
        self.nodes.append(self.onnx.helper.make_node(operator, inputs, [output], **attributes))
        return output

    def constant(self, name: str, values: NDArray[Any], dtype: Any = np.float32) -> str:
        """Add a constant; return its name."""
        array = np.ascontiguousarray(values, dtype)
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def add_columns(self, model: str, features: str, prefix: str) -> str:
        """Take the selected columns of the features of a model."""
        columns = self.parts.columns.by_model[model]
        if model in self.parts.columns.normalised:
            features = self._add_normalisation(features, prefix)
        tensor = self.onnx.numpy_helper.from_array(columns, f"{prefix}columns")
        self.constants.append(tensor)
        return self.add("Gather", [features, tensor.name], f"{prefix}selected", axis=1)

    def _add_normalisation(self, features: str, prefix: str) -> str:
        """Divide features by their norm, as :func:`oodzoo.features.columns.normalise` does."""
        axes = self.onnx.numpy_helper.from_array(np.array([1]), f"{prefix}axes")
        self.constants.append(axes)
        least = self.constant(f"{prefix}least", np.array(np.finfo(np.float32).tiny))
        squares = self.add("Mul", [features, features], f"{prefix}squares")
        total = self.add("ReduceSum", [squares, axes.name], f"{prefix}total", keepdims=1)
        norm = self.add("Sqrt", [total], f"{prefix}norm")
        positive = self.add("Max", [norm, least], f"{prefix}positive")
        return self.add("Div", [features, positive], f"{prefix}unit")

    def add_head(self, features: list[str]) -> None:
        """Add the head on the selected columns of all models."""
        head, mean = self.parts.head, self.parts.gaussian.mean.astype(np.float32)
        numbers = head.kind == "regression"  # may be too large for float32
        dtype = np.float64 if numbers else np.float32
        weights = self.constant("oodzoo_head_weights", head.weights.T, dtype)
        # centred: the product of a large mean and a weight would be rounded to float32
        centre = self.constant("oodzoo_head_mean", mean)
        bias = self.constant("oodzoo_head_bias", head.bias + head.weights @ mean, dtype)
        together = self.add("Concat", features, "oodzoo_concatenated", axis=1)
        centred = self.add("Sub", [together, centre], "oodzoo_centred")
        if numbers:
            double = self.onnx.TensorProto.DOUBLE
            exact = self.add("Cast", [centred], "oodzoo_centred64", to=double)
            self.add("Gemm", [exact, weights, bias], self.output)
            return
        outputs = self.add("Gemm", [centred, weights, bias], "oodzoo_head_outputs")
        if head.kind == "multilabel":
            self.add("Sigmoid", [outputs], self.output)
        else:
            self.add("Softmax", [outputs], self.output, axis=1)

    @property
    def output(self) -> str:
        """Name of the output."""
        return output_name(self.parts)

    def value_info(self, name: str, dtype: int, shape: tuple[int, ...]) -> Any:
        """Describe an input or output."""
        return self.onnx.helper.make_tensor_value_info(name, dtype, [self.batch, *shape])

    def finish(self, inputs: Sequence[Any], described: dict[str, Any], **options: Any) -> Any:
        """Return the checked ModelProto; `described` has the inputs, for its metadata."""
        helper, types = self.onnx.helper, self.onnx.TensorProto
        dtype = types.DOUBLE if self.parts.head.kind == "regression" else types.FLOAT
        output = self.value_info(self.output, dtype, (len(self.parts.classes),))
        graph = helper.make_graph(
            self.nodes, "oodzoo", inputs, [output], self.constants, sparse_initializer=self.sparse
        )
        model = helper.make_model(
            graph, producer_name="oodzoo", producer_version=oodzoo.__version__, **options
        )
        helper.set_model_props(
            model,
            {
                "oodzoo": oodzoo.__version__,
                "classes": json.dumps(self.parts.classes),
                "task": self.parts.head.kind,
                "inputs": json.dumps(described),
                "predictor": json.dumps(self.parts.to_dict()),
            },
        )
        try:
            self.onnx.checker.check_model(model)
        except Exception as error:
            raise InputError(f"the models cannot be merged: {one_line(error)}") from error
        return model


def output_name(parts: PredictorParts) -> str:
    """Name of the output: `probabilities` of classes or labels, or `numbers`."""
    return "numbers" if parts.head.kind == "regression" else "probabilities"


def require_file_name(file: Path) -> None:
    """Raise InputError if the file to write is a folder."""
    if file.is_dir():
        raise InputError(f"{str(file)!r} is a folder; name a file, such as model.onnx")


def open_session(content: bytes) -> Any:
    """Open a model with ONNX Runtime, on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def require_close(
    found: NDArray[Any], expected: NDArray[Any], tolerance: float = TOLERANCE
) -> None:
    """Raise InputError if the outputs of the file and of the predictor differ.

    The difference is absolute up to 1, and relative to larger numbers.
    """
    scale = max(1.0, float(np.abs(expected).max()))
    difference = float(np.abs(found - expected).max()) / scale
    if not difference <= tolerance:
        raise InputError(
            f"the outputs of the ONNX file differ by {difference:.1g} from the predictor's, "
            f"more than {tolerance:.0e}; no file was written"
        )
