"""ONNX models run by onnxruntime: sessions, their outputs, and the pooled outputs of layers.

Layers are pooled by nodes that are added to the file as it is read. Two serialised protobuf
messages, one after the other, are the merged message, so that nodes and outputs are added to a
file's content by appending a model that has only them.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.core.text import one_line
from oodzoo.zoo.model import Collected, ModelInfo, Network, NetworkModel, Outputs, Pixels
from oodzoo.zoo.preprocessing import Preprocessing
from oodzoo.zoo.spec import LayerPool, ModelSpec, choose_pool, unknown_layer

DTYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


class OnnxNetwork(Network):
    """An onnxruntime session; `reopen` opens another one with so many threads."""

    def __init__(
        self,
        session: Any,
        preprocessing: Preprocessing,
        reopen: Callable[[int], Any],
        *,
        partial: bool = False,
    ) -> None:
        self._session = session
        self._reopen = reopen
        self._options = None
        if partial:  # compute only what the requested outputs depend on
            import onnxruntime

            self._options = onnxruntime.RunOptions()
            self._options.only_execute_path_to_fetches = True
        self._preprocessing = preprocessing
        self.on_cpu = session.get_providers()[0] == "CPUExecutionProvider"
        tensor = session.get_inputs()[0]
        self._input = tensor.name
        self._dtype = DTYPES[tensor.type]
        self._batch = tensor.shape[0] if isinstance(tensor.shape[0], int) else None
        self.batch = self._batch or 1

    @contextmanager
    def one_thread(self) -> Iterator[None]:
        session = self._session
        if session.get_session_options().intra_op_num_threads != 1:
            self._session = self._reopen(1)  # that of a session cannot be changed
        try:
            yield
        finally:
            self._session = session

    def prepare(self, pixels: Pixels) -> NDArray[Any]:
        return self._preprocessing.normalise(pixels).astype(self._dtype, copy=False)

    def launch(self, prepared: NDArray[Any], models: Sequence[OnnxModel]) -> _Launched:
        names = list(dict.fromkeys(name for model in models for name in model.fetched))
        arrays = self.run(prepared, names)
        return _Launched(dict(zip(names, arrays, strict=True)), models)

    def collect(self, launched: _Launched) -> Collected:
        outputs = []
        for model in launched.models:
            arrays = (launched.arrays[name] for name in model.fetched)
            features, *logits = (pooled(array, model.info.name) for array in arrays)
            outputs.append(Outputs(features, logits[0] if logits else None))
        return Collected(outputs, [1.0] * len(outputs))

    def run(self, prepared: NDArray[Any], names: Sequence[str]) -> list[NDArray[Any]]:
        """Compute tensors by name; padded if the file has a fixed batch size."""
        if self._batch is None:
            whole: list[NDArray[Any]] = self._session.run(
                list(names), {self._input: prepared}, self._options
            )
            return whole
        parts = []
        for top in range(0, len(prepared), self._batch):
            part = prepared[top : top + self._batch]
            n = len(part)
            missing = np.zeros((self._batch - n, *part.shape[1:]), part.dtype)
            padded = np.concatenate([part, missing])
            outputs = self._session.run(list(names), {self._input: padded}, self._options)
            parts.append([output[:n] for output in outputs])
        return [np.concatenate(output) for output in zip(*parts, strict=True)]


class OnnxModel(NetworkModel):
    """An ONNX model: the outputs of a session with features and, with a head, logits."""

    def __init__(self, network: OnnxNetwork, info: ModelInfo, fetched: Sequence[str]) -> None:
        super().__init__(network, info)
        self.fetched = tuple(fetched)
        """Outputs of the session: features and logits, or a pooled layer."""


class _Launched(NamedTuple):
    arrays: dict[str, NDArray[Any]]
    models: Sequence[OnnxModel]


def pooled(output: NDArray[Any], name: str) -> NDArray[np.float32]:
    """Return an output as (n, d); a feature map (n, d, height, width) is averaged over space."""
    if output.ndim == 4:
        output = output.mean(axis=(2, 3), dtype=np.float32)
    if output.ndim != 2:
        raise InputError(
            f"model {name!r} returns an output of shape {output.shape}; "
            "expected (n, d), or a feature map (n, d, height, width)"
        )
    return output.astype(np.float32, copy=False)


def open_session(
    path: Path, name: str, device: str, *, content: bytes | None = None, threads: int | None = None
) -> Any:
    """Open an ONNX file; `content` may replace that of the file, but not its external weights.

    By default as many threads as cores compute.
    """
    import onnxruntime
    from joblib import cpu_count

    providers: list[Any] = ["CPUExecutionProvider"]
    if device.startswith("cuda"):
        if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
            number = device.partition(":")[2] or "0"
            providers.insert(0, ("CUDAExecutionProvider", {"device_id": number}))
        else:
            warnings.warn(
                f"model {name!r} runs on the CPU: this onnxruntime has no CUDA support "
                "(pip install onnxruntime-gpu)",
                stacklevel=2,
            )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads or int(cpu_count())
    if _share_memory():
        options.add_session_config_entry("session.use_env_allocators", "1")
    if content is not None:
        folder = os.fspath(path.absolute().parent)
        key = "session.model_external_initializers_file_folder_path"
        options.add_session_config_entry(key, folder)
    try:
        model = os.fspath(path) if content is None else content
        return onnxruntime.InferenceSession(model, options, providers=providers)
    except Exception as error:
        raise InputError(
            f"model {name!r}: onnxruntime cannot open {str(path)!r}: {one_line(error)}"
        ) from error


@functools.cache
def _share_memory() -> bool:
    """Share one memory arena between all sessions, so that memory does not grow with the zoo."""
    import onnxruntime as ort

    try:
        arena = ort.OrtMemoryInfo(
            "Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT
        )
        ort.create_and_register_allocator(arena, None)
    except (AttributeError, RuntimeError):  # not supported by this version: one arena per session
        return False
    return True


def output_names(spec: ModelSpec, session: Any) -> list[str]:
    """Name the outputs of a session in use: the features and, if there are any, the logits."""
    known = [output.name for output in session.get_outputs()]
    features = spec.features or ("features" if "features" in known else None)
    if features is None and len(known) == 1:
        features = known[0]
    if features is None:
        raise InputError(
            f"model {spec.name!r} has the outputs {', '.join(known)}; "
            'name the one with the features in a zoo file: features = "…"'
        )
    logits = spec.logits
    if logits is None and spec.features is None and "logits" in known and features != "logits":
        logits = "logits"  # no outputs named: use the conventional names
    outputs = [features] if logits is None else [features, logits]
    for name in outputs:
        if name not in known:
            raise InputError(
                f"model {spec.name!r} has no output {name!r}; it has {', '.join(known)}"
            )
    return outputs


def fingerprint(digests: Sequence[str], outputs: Sequence[str]) -> str:
    """Identify a model by the digests of its files and the names of the outputs in use."""
    return hashlib.sha256("\n".join(["onnx", *digests, *outputs]).encode()).hexdigest()


def layer_fingerprint(digests: Sequence[str], tensor: str, pooling: str | None) -> str:
    """Identify a layer of a model."""
    return fingerprint(digests, ["layer", tensor, pooling or "none"])


# --- layers ---------------------------------------------------------------------------------------


class OnnxTap(NamedTuple):
    """A tensor of a graph whose pooled form is added to the outputs of a session."""

    tensor: str
    pool: LayerPool
    dtype: str
    output: str = ""
    """The pooled tensor, an output of the extended model."""


def add_layers(
    specs: Sequence[ModelSpec], path: Path, content: bytes, preprocessing: Preprocessing
) -> tuple[bytes, dict[ModelSpec, OnnxTap | InputError]]:
    """Add the pooled outputs of layers to the content of a file.

    The shapes of layers are those for a batch of black images. In place of a layer that cannot be
    used, the error continues "model 'x': ".
    """
    graph = read_graph(content)
    tensors: dict[ModelSpec, str] = {}
    taps: dict[ModelSpec, OnnxTap | InputError] = {}
    for spec in specs:
        try:
            tensors[spec] = graph.tensor(spec.layer or "")
        except InputError as error:
            taps[spec] = error
    if not tensors:
        return content, taps
    names = list(dict.fromkeys(tensors.values()))
    extended = with_outputs(content, graph, names)
    session = open_session(path, specs[0].name, "cpu", content=extended)
    batch = session.get_inputs()[0].shape[0]
    n, crop = batch if isinstance(batch, int) else 2, preprocessing.geometry.crop
    network = OnnxNetwork(session, preprocessing, lambda _: session, partial=True)
    arrays = network.run(network.prepare(np.zeros((n, *crop, 3), np.uint8)), names)
    types = {output.name: output.type for output in session.get_outputs()}
    found = dict(zip(names, arrays, strict=True))
    usable: dict[ModelSpec, OnnxTap] = {}
    for spec, name in tensors.items():
        try:
            if types[name] not in FLOATS:
                raise InputError(f"gives {types[name]}, not features; choose another one")
            pool = choose_pool(found[name].shape, n, crop, spec.pooling)
            usable[spec] = OnnxTap(name, pool, types[name])
        except InputError as error:
            taps[spec] = InputError(f"layer {spec.layer!r} {error}")
    content, outputs = with_pooled(content, graph, [tap[:3] for tap in usable.values()])
    for (spec, tap), output in zip(usable.items(), outputs, strict=True):
        taps[spec] = tap._replace(output=output)
    return content, taps


# --- weights --------------------------------------------------------------------------------------

# Field numbers of the ONNX schema: reading the wire format directly avoids the `onnx` package.
_GRAPH, _OPSETS = 7, 8
_NODES, _INITIALIZERS, _INPUTS, _OUTPUTS = 1, 5, 11, 12
_ATTRIBUTES, _TENSOR, _DIMS, _DATA_TYPE, _EXTERNAL_DATA = 5, 5, 1, 2, 13
_NO_WEIGHTS = frozenset({7, 8, 9})  # int64, string, bool: shapes, axes and masks


def count_parameters(proto: bytes) -> int:
    """Count the weights in an ONNX file: the elements of its initializers and constants.

    Shapes and indices are not weights, nor are scalars such as the epsilon of a layer norm.
    """
    total = 0
    for tensor in _tensors(proto):
        dims: list[int] = []
        is_weight = True
        for key, value in fields(tensor):
            if key == _DIMS:
                dims += [value] if isinstance(value, int) else varints(value)
            elif key == _DATA_TYPE:
                is_weight = value not in _NO_WEIGHTS
        total += math.prod(dims) if dims and is_weight else 0
    return total


def external_files(proto: bytes) -> list[str]:
    """List the files, relative to an ONNX file, with its external weights."""
    names = set()
    for tensor in _tensors(proto):
        for entry in values(tensor, _EXTERNAL_DATA):
            pair = dict(fields(entry))
            if pair.get(1) == b"location":
                names.add(bytes(pair[2]).decode())
    return sorted(names)


def _tensors(proto: bytes) -> Iterator[memoryview]:
    for graph in values(memoryview(proto), _GRAPH):
        yield from values(graph, _INITIALIZERS)
        for node in values(graph, _NODES):
            for attribute in values(node, _ATTRIBUTES):
                yield from (v for v in values(attribute, _TENSOR) if not isinstance(v, int))


# --- graphs ---------------------------------------------------------------------------------------

FLOATS = {"tensor(float)": 1, "tensor(float16)": 10}
"""Types of tensors that can be features, with their number in the ONNX schema."""

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
    content: bytes, graph: Graph, layers: Sequence[tuple[str, LayerPool, str]]
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


def _pool_nodes(tensor: str, pool: LayerPool, prefix: str, opset: int) -> tuple[list[bytes], str]:
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


# --- protobuf -------------------------------------------------------------------------------------


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
