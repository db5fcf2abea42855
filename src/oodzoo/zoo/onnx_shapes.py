"""Constant shapes and slices in modules of onnx2torch.

onnx2torch keeps them as tensors. On a GPU, each would be copied to the CPU in every forward pass,
and `torch.export` rejects shapes that depend on data.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from oodzoo.zoo.onnx_graph import Proto
from oodzoo.zoo.trainable_model import Module

Tensor = Any  # torch.Tensor


def use_constant_shapes(module: Module, proto: Proto, onnx: Any) -> None:
    """Replace the nodes Reshape and Slice of a module whose other inputs are constants."""
    nodes = {node.name: node for node in proto.graph.node}
    constants = {
        tensor.name: onnx.numpy_helper.to_array(tensor).tolist()
        for tensor in proto.graph.initializer
        if tensor.data_type in (onnx.TensorProto.INT32, onnx.TensorProto.INT64)
    }
    for call in module.graph.nodes:
        if call.op != "call_module":
            continue
        node = nodes[call.target]
        if len(node.input) < 2 or any(name not in constants for name in node.input[1:] if name):
            continue
        given: list[Any] = [constants.get(name) for name in node.input[1:]]
        if node.op_type == "Reshape":
            replaced = _reshape(given[0])
        elif node.op_type == "Slice":
            replaced = _slice(*given)
        else:
            continue
        setattr(module, call.target, replaced)
        call.args, call.kwargs = call.args[:1], {}
    module.graph.eliminate_dead_code()
    module.recompile()


def _reshape(shape: Sequence[int]) -> Module:
    torch: Any = import_module("torch")

    class Reshape(torch.nn.Module):  # type: ignore[misc]
        """A constant shape; 0 stands for the size of the input."""

        def forward(self, tensor: Tensor) -> Tensor:
            return tensor.reshape([side or tensor.shape[at] for at, side in enumerate(shape)])

        def extra_repr(self) -> str:
            return str(shape)

    return Reshape()


def _slice(
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
) -> Module:
    torch: Any = import_module("torch")
    steps = steps or [1] * len(starts)
    parts: dict[int, slice] = {}
    backwards: list[int] = []
    for axis, start, end, step in zip(axes or range(len(starts)), starts, ends, steps, strict=True):
        parts[axis] = slice(start, end, step)
        if step < 0:  # PyTorch has no negative steps: the same elements, after a flip
            parts[axis] = slice(-start - 1, -end - 1, -step)
            backwards.append(axis)

    class Slice(torch.nn.Module):  # type: ignore[misc]
        """Constant limits."""

        def forward(self, tensor: Tensor) -> Tensor:
            tensor = tensor.flip(backwards) if backwards else tensor
            whole = [slice(None)] * tensor.ndim
            for axis, part in parts.items():
                whole[axis] = part
            return tensor[tuple(whole)]

        def extra_repr(self) -> str:
            return str(parts)

    return Slice()
