"""Graphs of ONNX files as messages of the `onnx` package: reading, pruning, shapes of outputs."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from oodzoo.core.errors import InputError
from oodzoo.zoo.model_spec import ModelSpec
from oodzoo.zoo.onnx import add_layers
from oodzoo.zoo.preprocessing import Preprocessing

Proto = Any  # onnx.ModelProto; onnx is imported only when it is needed


def features_graph(onnx: Any, specs: Sequence[ModelSpec], preprocessing: Preprocessing) -> Proto:
    """Read the file of models of one network, up to their features, which are its outputs.

    Nodes and weights on which the features do not depend are left out. A spec without a layer
    names the output with the features. Models with the same features share an output.
    """
    proto, outputs = _with_layers(onnx, specs, preprocessing)
    return pruned(proto, outputs)


def _with_layers(
    onnx: Any, specs: Sequence[ModelSpec], preprocessing: Preprocessing
) -> tuple[Proto, list[str]]:
    """Read a file, with its layers in use among its outputs; name the output of each model."""
    layers = [spec for spec in specs if spec.layer is not None]
    file = specs[0].file
    if not layers:
        return onnx.load(file), [spec.features or "" for spec in specs]
    content, taps = add_layers(layers, file, file.read_bytes(), preprocessing)
    names = {spec: spec.features or "" for spec in specs}
    for spec, tap in taps.items():
        if isinstance(tap, InputError):
            raise InputError(f"model {spec.name!r}: {tap}")
        names[spec] = tap.output
    proto = onnx.load_model_from_string(content)
    onnx.external_data_helper.load_external_data_for_model(proto, str(file.parent))
    return proto, list(names.values())


def pruned(proto: Proto, outputs: Sequence[str]) -> Proto:
    """Leave only what the given outputs depend on; the message is changed."""
    graph = proto.graph
    producers = {name: node for node in graph.node for name in node.output}
    needed: set[str] = set()
    pending = list(outputs)
    while pending:
        name = pending.pop()
        if name in needed:
            continue
        needed.add(name)
        if name in producers:
            pending += node_inputs(producers[name])
    nodes = [node for node in graph.node if needed & set(node.output)]
    by_name = {value.name: value for value in graph.output}
    constants = [tensor for tensor in graph.initializer if tensor.name in needed]
    sparse = [t for t in graph.sparse_initializer if t.values.name in needed]
    known = {tensor.name for tensor in constants}
    # before IR version 4, the weights are among the inputs
    inputs = [value for value in graph.input if value.name not in known]
    for field, values in (
        (graph.node, nodes),
        (graph.initializer, constants),
        (graph.sparse_initializer, sparse),
        (graph.input, inputs),
        (graph.output, [by_name[name] for name in outputs]),
    ):
        copies = [type(value).FromString(value.SerializeToString()) for value in values]
        del field[:]
        field.extend(copies)
    del graph.value_info[:]
    return proto


def computes_in_half(file: Path) -> bool:
    """Whether a graph takes or computes float16; weights that are only stored so do not count."""
    onnx: Any = import_module("onnx")
    half = onnx.TensorProto.FLOAT16
    graph = onnx.load(file, load_external_data=False).graph
    if graph.input[0].type.tensor_type.elem_type == half:
        return True
    attributes = (each for node in graph.node for each in node.attribute)
    return any(each.name == "to" and each.i == half for each in attributes)


def opset(proto: Proto) -> int:
    """Version of the standard operators."""
    return int(next(o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")))


def node_inputs(node: Any) -> list[str]:
    """The inputs of a node, including those of its subgraphs."""
    names = list(node.input)
    for attribute in node.attribute:
        for graph in [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]:
            names += [name for inner in graph.node for name in node_inputs(inner)]
            names += [value.name for value in graph.output]
    return names


def output_rank(onnx: Any, proto: Proto, at: int) -> int:
    """Number of dimensions of an output; inferred if the file does not state them."""
    output = proto.graph.output[at].type.tensor_type
    if not output.HasField("shape"):
        output = onnx.shape_inference.infer_shapes(proto).graph.output[at].type.tensor_type
    return len(output.shape.dim)
