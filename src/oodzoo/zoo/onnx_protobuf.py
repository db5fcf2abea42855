"""Layers of ONNX networks, pooled by nodes that are added to the file as it is read (protobuf).

Two serialised protobuf messages, one after the other, are the merged message. So nodes and outputs
are added to a file's content by appending a model that has only them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from oodzoo.zoo.spec import Pool, unknown_layer


def fields(view: Any) -> Iterator[tuple[int, Any]]:
    """The (field number, value) pairs of a message."""
    at = 0
    while at < len(view):
        key, at = _varint(view, at)
        kind = key & 7
        value: Any
        if kind == 0:
            value, at = _varint(view, at)
        elif kind == 2:
            length, at = _varint(view, at)
            value, at = view[at : at + length], at + length
        else:
            width = 8 if kind == 1 else 4
            value, at = view[at : at + width], at + width
        yield key >> 3, value


def values(message: Any, number: int) -> Iterator[Any]:
    """The values of one field of a message."""
    return (value for key, value in fields(message) if key == number)


def varints(view: memoryview) -> Iterator[int]:
    """The numbers of a packed field."""
    at = 0
    while at < len(view):
        value, at = _varint(view, at)
        yield value


def encode(number: int, value: int | str | bytes) -> bytes:
    """Encode a field: a number that is not negative, a text, or the content of a message.

    Examples
    --------
    >>> list(fields(encode(1, 300) + encode(2, "a")))
    [(1, 300), (2, b'a')]
    """
    if isinstance(value, int):
        return _encoded(number << 3) + _encoded(value)
    content = value.encode() if isinstance(value, str) else value
    return _encoded(number << 3 | 2) + _encoded(len(content)) + content


def _encoded(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _varint(view: Any, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


FLOATS = {"tensor(float)": 1, "tensor(float16)": 10}
"""Types of tensors that can be features, with their number in the ONNX schema."""

# field numbers of the ONNX schema
_GRAPH, _OPSETS = 7, 8
_NODES, _INITIALIZERS, _INPUTS, _OUTPUTS = 1, 5, 11, 12
_PREFIX = "oodzoo_layer"

_PRODUCTS = {"Conv", "ConvTranspose", "FusedConv", "Gemm", "MatMul", "QLinearConv", "QLinearMatMul"}
"""Operators with which a new layer begins."""
_MOVES = {"Cast", "Identity", "Pad", "Transpose"}
"""Operators that compute nothing new."""


@dataclass(frozen=True)
class Node:
    """A node of a graph; the inputs include those of its subgraphs."""

    name: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Graph:
    """The structure of an ONNX file."""

    nodes: tuple[Node, ...]
    initializers: frozenset[str]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    opset: int

    def tensor(self, name: str) -> str:
        """Return the tensor that a layer names: a tensor, or the first output of a node."""
        tensors = [output for node in self.nodes for output in node.outputs]
        if name in tensors:
            return name
        by_node = {node.name: node.outputs[0] for node in self.nodes if node.name and node.outputs}
        if name in by_node:
            return by_node[name]
        known = list(dict.fromkeys([*tensors, *by_node]))
        raise unknown_layer(name, known, cut_tensors(self)[-3:])


def read_graph(content: bytes) -> Graph:
    """Read the nodes and names of a graph."""
    view = memoryview(content)
    nodes: list[Node] = []
    initializers: set[str] = set()
    inputs: list[str] = []
    outputs: list[str] = []
    for graph in values(view, _GRAPH):
        for key, value in fields(graph):
            if key == _NODES:
                nodes.append(_node(value))
            elif key == _INITIALIZERS:
                initializers.add(_text(next(values(value, 8), b"")))
            elif key in (_INPUTS, _OUTPUTS):
                (inputs if key == _INPUTS else outputs).append(_text(next(values(value, 1), b"")))
    opset = 1
    for entry in values(view, _OPSETS):
        known = dict(fields(entry))
        if _text(known.get(1, b"")) in ("", "ai.onnx"):
            opset = known.get(2, 1)
    images = tuple(name for name in inputs if name not in initializers)
    return Graph(tuple(nodes), frozenset(initializers), images, tuple(outputs), opset)


def with_outputs(content: bytes, graph: Graph, tensors: Iterable[str]) -> bytes:
    """Add tensors to the outputs of a model."""
    added = [encode(_OUTPUTS, encode(1, name)) for name in tensors if name not in graph.outputs]
    return content + encode(_GRAPH, b"".join(added))


def with_pooled(
    content: bytes, graph: Graph, layers: Sequence[tuple[str, Pool, str]]
) -> tuple[bytes, list[str]]:
    """Add pooled tensors to the outputs of a model; return it, and the names of these outputs.

    Each layer is a tensor, how it is pooled, and its type, such as "tensor(float)".
    """
    parts: list[bytes] = []
    names: list[str] = []
    for number, (tensor, pool, dtype) in enumerate(layers):
        nodes, name = _pool_nodes(tensor, pool, f"{_PREFIX}{number}_", graph.opset)
        parts += nodes
        kind = encode(2, encode(1, encode(1, FLOATS[dtype])))
        if name not in graph.outputs and name not in names:
            parts.append(encode(_OUTPUTS, encode(1, name) + kind))
        names.append(name)
    return content + encode(_GRAPH, b"".join(parts)), names


def _pool_nodes(tensor: str, pool: Pool, prefix: str, opset: int) -> tuple[list[bytes], str]:
    """Nodes and constants that pool a tensor, and the name of the result."""
    if pool.layout == "vector":
        return [], tensor
    if pool.layout == "map":
        return [
            _encoded_node("GlobalAveragePool", [tensor], f"{prefix}map"),
            _encoded_node("Flatten", [f"{prefix}map"], f"{prefix}mean", axis=1),
        ], f"{prefix}mean"
    if pool.layout == "map_last":
        return _mean_nodes(tensor, [1, 2], prefix, opset), f"{prefix}mean"
    nodes: list[bytes] = []
    parts: list[str] = []
    if pool.pooling in ("cls", "both"):
        nodes.append(_constant(f"{prefix}first", [0], scalar=True))
        nodes.append(_encoded_node("Gather", [tensor, f"{prefix}first"], f"{prefix}cls", axis=1))
        parts.append(f"{prefix}cls")
    if pool.pooling in ("mean", "both"):
        patches = tensor
        if pool.prefix:
            patches = f"{prefix}patches"
            nodes += _slice_nodes(tensor, pool.prefix, prefix, opset)
        nodes += _mean_nodes(patches, [1], prefix, opset)
        parts.append(f"{prefix}mean")
    if len(parts) == 1:
        return nodes, parts[0]
    return [*nodes, _encoded_node("Concat", parts, f"{prefix}both", axis=1)], f"{prefix}both"


def _mean_nodes(tensor: str, axes: list[int], prefix: str, opset: int) -> list[bytes]:
    if opset < 18:
        return [_encoded_node("ReduceMean", [tensor], f"{prefix}mean", axes=axes, keepdims=0)]
    inputs = [tensor, f"{prefix}axes"]
    return [
        _constant(f"{prefix}axes", axes),
        _encoded_node("ReduceMean", inputs, f"{prefix}mean", keepdims=0),
    ]


def _slice_nodes(tensor: str, start: int, prefix: str, opset: int) -> list[bytes]:
    end = 1 << 31
    if opset < 10:
        limits = {"axes": [1], "starts": [start], "ends": [end]}
        return [_encoded_node("Slice", [tensor], f"{prefix}patches", **limits)]
    constants = {"starts": [start], "ends": [end], "axis": [1]}
    inputs = [tensor, *(f"{prefix}{name}" for name in constants)]
    return [
        *(_constant(f"{prefix}{name}", numbers) for name, numbers in constants.items()),
        _encoded_node("Slice", inputs, f"{prefix}patches"),
    ]


def _encoded_node(
    operator: str, inputs: list[str], output: str, **attributes: int | list[int]
) -> bytes:
    content = b"".join(encode(1, name) for name in inputs) + encode(2, output) + encode(4, operator)
    for name, value in attributes.items():
        numbers = value if isinstance(value, list) else [value]
        key, kind = (8, 7) if isinstance(value, list) else (3, 2)
        body = b"".join(encode(key, number) for number in numbers)
        content += encode(5, encode(1, name) + body + encode(20, kind))
    return encode(_NODES, content)


def _constant(name: str, numbers: list[int], *, scalar: bool = False) -> bytes:
    """An int64 constant."""
    shape = b"" if scalar else encode(1, len(numbers))
    raw = b"".join(number.to_bytes(8, "little") for number in numbers)
    return encode(_INITIALIZERS, shape + encode(2, 7) + encode(8, name) + encode(9, raw))


# --- choosing ------------------------------------------------------------------------------------


def cut_tensors(graph: Graph) -> list[str]:
    """List tensors, in order, each of which alone determines all that is computed after it.

    Of several after a convolution or matrix product, such as its own output and the activation,
    only the last is listed, before the next one. Outputs of the model are not listed.
    """
    used = _used(graph)
    last_use = dict.fromkeys(graph.outputs, len(used))
    depends = set(graph.inputs)
    for at, node in enumerate(used):
        if node.operator == "Shape":  # the same for all images
            continue
        for name in node.inputs:
            last_use[name] = max(at, last_use.get(name, 0))
        if depends.intersection(node.inputs):
            depends.update(node.outputs)
    cuts: list[str] = []
    needed = set(graph.inputs)
    has_product = False
    for at, node in enumerate(used):
        if not depends.intersection(node.inputs) or node.operator == "Shape":
            continue
        has_product |= node.operator in _PRODUCTS
        needed = {name for name in (*needed, *node.outputs) if last_use.get(name, 0) > at}
        if len(needed) > 1 or not needed.issubset(node.outputs) or node.operator in _MOVES:
            continue
        if has_product:
            cuts += needed
        elif cuts:
            cuts[-1:] = needed
        has_product = False
    return [name for name in cuts if name not in graph.outputs]


def _used(graph: Graph) -> list[Node]:
    """The nodes that outputs depend on, in an order in which they can be computed."""
    producers = {name: node for node in graph.nodes for name in node.outputs}
    order: dict[int, Node] = {}
    pending = [(producers[name], False) for name in reversed(graph.outputs) if name in producers]
    while pending:
        node, ready = pending.pop()
        if id(node) in order:
            continue
        if ready:
            order[id(node)] = node
            continue
        pending.append((node, True))
        pending += [(producers[name], False) for name in node.inputs if name in producers]
    return list(order.values())


def _node(view: Any) -> Node:
    name, operator, inputs, outputs = "", "", [], []
    for key, value in fields(view):
        if key == 1:
            inputs.append(_text(value))
        elif key == 2:
            outputs.append(_text(value))
        elif key == 3:
            name = _text(value)
        elif key == 4:
            operator = _text(value)
        elif key == 5:  # graphs among its attributes
            for number, graph in fields(value):
                if number in (6, 11):
                    inner = (_node(part) for part in values(graph, _NODES))
                    inputs += [each for part in inner for each in part.inputs]
    return Node(name, operator, tuple(filter(None, inputs)), tuple(filter(None, outputs)))


def _text(view: Any) -> str:
    return bytes(view).decode("utf-8", "replace")
