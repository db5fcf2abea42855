"""Graphs of ONNX files: pruned to some outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oodzoo.zoo.onnx_graph import computes_in_half, node_inputs, opset, output_rank, pruned

onnx: Any = pytest.importorskip("onnx", reason="reading graphs needs onnx")
FLOAT, FLOAT16 = 1, 10


def graph(*nodes: Any, outputs: tuple[str, ...], dtype: int = FLOAT) -> Any:
    """A graph with the input x (n, 3, 4, 4) and the weights w and v."""
    helper = onnx.helper
    weights = [onnx.numpy_helper.from_array(np.ones(3, np.float32), name) for name in "wv"]
    inputs = [helper.make_tensor_value_info("x", dtype, ["n", 3, 4, 4])]
    infos = [helper.make_tensor_value_info(name, dtype, None) for name in outputs]
    made = helper.make_graph(list(nodes), "g", inputs, infos, weights)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 13)])


def nodes() -> list[Any]:
    make = onnx.helper.make_node
    return [
        make("GlobalAveragePool", ["x"], ["map"]),
        make("Flatten", ["map"], ["features"]),
        make("Mul", ["features", "w"], ["hidden"]),
        make("Add", ["hidden", "v"], ["logits"]),
    ]


def test_nodes_and_weights_that_are_not_needed_are_left_out() -> None:
    whole = graph(*nodes(), outputs=("logits", "features"))
    left = pruned(whole, ["features"]).graph
    assert [node.op_type for node in left.node] == ["GlobalAveragePool", "Flatten"]
    assert [value.name for value in left.output] == ["features"]
    assert not left.initializer
    kept = pruned(graph(*nodes(), outputs=("logits", "features")), ["logits", "features"]).graph
    assert len(kept.node) == 4
    assert {tensor.name for tensor in kept.initializer} == {"w", "v"}


def test_inputs_of_subgraphs_count() -> None:
    make = onnx.helper.make_node
    inner = onnx.helper.make_graph(
        [make("Add", ["outer", "outer"], ["sum"])], "then", [],
        [onnx.helper.make_tensor_value_info("sum", FLOAT, None)],
    )  # fmt: skip
    branch = make("If", ["condition"], ["y"], then_branch=inner, else_branch=inner)
    assert set(node_inputs(branch)) == {"condition", "outer", "sum"}


def test_ranks_are_inferred() -> None:
    proto = graph(*nodes(), outputs=("map", "features"))
    assert [output_rank(onnx, proto, at) for at in (0, 1)] == [4, 2]
    assert opset(proto) == 13


@pytest.mark.parametrize(
    ("dtype", "cast", "half"),
    [(FLOAT, FLOAT, False), (FLOAT16, FLOAT, True), (FLOAT, FLOAT16, True)],
)
def test_graphs_that_compute_in_half_precision(
    dtype: int, cast: int, half: bool, tmp_path: Path
) -> None:
    node = onnx.helper.make_node("Cast", ["x"], ["y"], to=cast)
    onnx.save(graph(node, outputs=("y",), dtype=dtype), tmp_path / "g.onnx")
    assert computes_in_half(tmp_path / "g.onnx") is half
