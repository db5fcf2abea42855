"""Folded graphs: opsets, names and weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tests.zoo.small_onnx import SIZE, Writer, convolutions, require_converter

from oodzoo.zoo.onnx_folding import NEWEST_OPSET, folded_graph
from oodzoo.zoo.onnx_graph import opset
from oodzoo.zoo.preprocessing import square

onnx = require_converter()
PREPROCESSING = square(SIZE, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


def test_a_folded_graph(tmp_path: Path) -> None:
    writer = Writer(onnx)
    convolutions(writer)
    writer.constant("codes", np.arange(36, dtype=np.uint8).reshape(6, 6))
    writer.add("Cast", "codes", "matrix", to=1)
    writer.add("MatMul", "flat matrix", "hidden")
    writer.add("Shape", "hidden", "shape")
    writer.add("Reshape", "hidden shape", "again")
    writer.add("MatMul", "again matrix", "features")
    spec = writer.write(tmp_path / "net.onnx", opset=18)
    proto, outputs, reference = folded_graph(onnx, [spec, spec], PREPROCESSING)
    graph = proto.graph
    operators = [node.op_type for node in graph.node]
    assert not {"Cast", "Shape"} & set(operators)
    assert outputs == [0, 0]
    assert opset(proto) == NEWEST_OPSET
    assert opset(onnx.load_model_from_string(reference)) == 18
    assert len({node.name for node in graph.node}) == len(graph.node)
    assert [value.name for value in (*graph.input, *graph.output)] == ["input", "features"]
    weights = [name for node in graph.node for name in node.input]
    known = {tensor.name for tensor in graph.initializer}
    used = [name for name in weights if name in known]
    assert len(set(used)) == len(used), "two nodes share a weight"


def test_operators_without_an_older_form_keep_their_opset(tmp_path: Path) -> None:
    writer = Writer(onnx)
    convolutions(writer)
    writer.add("Gelu", "flat", "features")
    spec = writer.write(tmp_path / "net.onnx", opset=20)
    proto, _, _ = folded_graph(onnx, [spec], PREPROCESSING)
    assert opset(proto) == 20
