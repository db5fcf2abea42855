"""Graphs of ONNX files: reading, pruning, shapes, and the part up to the features for a conversion.

It is pruned, its constants are folded by onnxruntime's basic optimisation (weights that are stored
as uint8 or float16, batch norms after convolutions), float16 becomes float32, and every node has a
name and weights of its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from oodzoo.core.errors import InputError
from oodzoo.core.text import one_line
from oodzoo.zoo.onnx_model import add_layers, open_session
from oodzoo.zoo.preprocessing import Preprocessing
from oodzoo.zoo.spec import ModelSpec

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


NEWEST_OPSET = 17
"""Newest opset all of whose usual operators onnx2torch knows."""


class Folded(NamedTuple):
    """A folded graph.

    Attributes
    ----------
    proto : onnx.ModelProto
        With the input `input` (n, 3, height, width), and the outputs `features`, `features_1`, ….
    outputs : list of int
        The position of each model's output; models with the same features share one.
    reference : bytes
        The graph in its own opset, to compare with.
    """

    proto: Proto
    outputs: list[int]
    reference: bytes


def folded_graph(onnx: Any, specs: Sequence[ModelSpec], preprocessing: Preprocessing) -> Folded:
    """Fold the graph of models of one network; as :func:`oodzoo.zoo.onnx_graph.features_graph`."""
    proto = features_graph(onnx, specs, preprocessing)
    names = [output.name for output in proto.graph.output]
    distinct = list(dict.fromkeys(names))
    _use_float32(onnx, proto)
    _set_outputs(onnx, proto, [_pooled(onnx, proto, name) for name in distinct])
    shape: list[int | str] = ["n", 3, *preprocessing.geometry.crop]
    proto.graph.input[0].CopyFrom(value_info(onnx, proto.graph.input[0].name, shape))
    proto = _optimised(onnx, proto, specs[0].name)
    _rename(onnx, proto)
    reference = proto.SerializeToString()
    proto = _with_constant_shapes(onnx, proto, preprocessing.geometry.crop)
    proto = _in_older_opset(onnx, proto)
    _separate_weights(proto)
    return Folded(proto, [distinct.index(name) for name in names], reference)


def _use_float32(onnx: Any, proto: Proto) -> None:
    """Replace float16 by float32."""
    half, single = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT
    helper = onnx.numpy_helper
    attributes = [each for node in proto.graph.node for each in node.attribute]
    for attribute in attributes:
        if attribute.name == "to" and attribute.i == half:
            attribute.i = single
    for tensor in (*proto.graph.initializer, *(each.t for each in attributes)):
        if tensor.data_type == half:
            array = helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(helper.from_array(array, tensor.name))


def _pooled(onnx: Any, proto: Proto, name: str) -> str:
    """Average a feature map over space; return the name of the result."""
    at = [output.name for output in proto.graph.output].index(name)
    if output_rank(onnx, proto, at) != 4:
        return name
    mean, result = f"oodzoo_{at}_mean", f"oodzoo_{at}_pooled"
    proto.graph.node.append(onnx.helper.make_node("GlobalAveragePool", [name], [mean]))
    proto.graph.node.append(onnx.helper.make_node("Flatten", [mean], [result], axis=1))
    return result


def _optimised(onnx: Any, proto: Proto, name: str) -> Proto:
    """Fold constants with onnxruntime."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "optimised.onnx"
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(file)
        # weights of quantised files become numbers, too
        options.add_session_config_entry("session.disable_quant_qdq", "1")
        try:
            onnxruntime.InferenceSession(
                proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            raise InputError(
                f"model {name!r}: onnxruntime cannot prepare the ONNX file for training: "
                f"{one_line(error)}"
            ) from error
        return onnx.load(file)


def _rename(onnx: Any, proto: Proto) -> None:
    """Name the input `input`, the outputs `features`, `features_1` and so on, and each node."""
    graph = proto.graph
    outputs = [output.name for output in graph.output]
    names = ["features", *(f"features_{at}" for at in range(1, len(outputs)))]
    used = {name for node in graph.node for name in (*node.input, *node.output)}
    taken = used.union(names, ["input"])
    renamed = {graph.input[0].name: "input"}
    for name in used.intersection([*names, "input"]) - set(renamed):
        renamed[name] = next(
            f"{name}{n}" for n in range(len(taken) + 1) if f"{name}{n}" not in taken
        )
        taken.add(renamed[name])
    graph.input[0].name = "input"
    for tensor in graph.initializer:
        tensor.name = renamed.get(tensor.name, tensor.name)
    for node in graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
    for name, output in zip(names, outputs, strict=True):
        source = renamed.get(output, output)
        graph.node.append(onnx.helper.make_node("Identity", [source], [name]))
    _set_outputs(onnx, proto, names)
    del graph.value_info[:]
    for number, node in enumerate(graph.node):
        node.name = f"node_{number}_{node.op_type}"
    domains = {node.domain for node in graph.node}
    opsets = [entry for entry in proto.opset_import if entry.domain in domains]
    del proto.opset_import[:]
    proto.opset_import.extend(opsets)


def _set_outputs(onnx: Any, proto: Proto, names: Sequence[str]) -> None:
    del proto.graph.output[:]
    proto.graph.output.extend(value_info(onnx, name, None) for name in names)


def value_info(onnx: Any, name: str, shape: Sequence[int | str] | None) -> Any:
    """Describe a float32 input or output."""
    return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)


def _with_constant_shapes(onnx: Any, proto: Proto, crop: tuple[int, int]) -> Proto:
    """Replace shapes that are computed from the batch size by constants, with -1 for the batch."""
    graph = proto.graph
    known = {tensor.name for tensor in graph.initializer}
    reshapes = [node for node in graph.node if node.op_type == "Reshape"]
    nodes = {node.output[0]: node for node in reshapes if node.input[1] not in known}
    if not nodes:
        return proto
    probe = type(proto).FromString(proto.SerializeToString())
    probe.graph.output.extend(onnx.ValueInfoProto(name=name) for name in nodes)
    session = open_session(Path(), "probe", "cpu", content=probe.SerializeToString())
    batches = (np.zeros((n, 3, *crop), np.float32) for n in (2, 3))
    found = [session.run(list(nodes), {"input": batch}) for batch in batches]
    for node, two, three in zip(nodes.values(), *found, strict=True):
        shape, larger = np.array(two.shape), np.array(three.shape)
        varying = shape != larger
        if varying.sum() <= 1 and (3 * shape[varying] == 2 * larger[varying]).all():
            constant = onnx.numpy_helper.from_array(
                np.where(varying, -1, shape), f"{node.name}_shape"
            )
            graph.initializer.append(constant)
            node.input[1] = constant.name
    return pruned(proto, [output.name for output in graph.output])


def _separate_weights(proto: Proto) -> None:
    """Give every node initializers of its own; exporters merge those that happen to be equal."""
    by_name = {tensor.name: tensor for tensor in proto.graph.initializer}
    used: set[str] = set()
    for node in proto.graph.node:
        for at, name in enumerate(node.input):
            if name in used and name in by_name:
                copy = type(by_name[name]).FromString(by_name[name].SerializeToString())
                copy.name = node.input[at] = f"{name}_of_{node.name}_{at}"
                proto.graph.initializer.append(copy)
            used.add(name)


def _in_older_opset(onnx: Any, proto: Proto) -> Proto:
    """The graph in an opset that onnx2torch knows, if its operators are the same there.

    Later versions of most operators have only more types. Reductions take their axes as an input.
    """
    older = type(proto).FromString(proto.SerializeToString())
    integers = [t for t in older.graph.initializer if t.data_type == onnx.TensorProto.INT64]
    constants = {each.name: onnx.numpy_helper.to_array(each).tolist() for each in integers}
    for node in older.graph.node:
        if node.op_type == "Reshape" and 0 not in constants.get(node.input[1], [0]):
            _drop(node, "allowzero")
        elif node.op_type == "Split":
            _drop(node, "num_outputs")  # as many as it has
        elif opset(proto) > NEWEST_OPSET and _has_constant_axes(node, constants):
            _drop(node, "noop_with_empty_axes")
            axes = constants[node.input.pop()]
            node.attribute.append(onnx.helper.make_attribute("axes", axes))
    if opset(proto) <= NEWEST_OPSET:
        return older
    for entry in older.opset_import:
        if entry.domain == "":
            entry.version = NEWEST_OPSET
    checked = type(older).FromString(older.SerializeToString())
    for output in checked.graph.output:  # must have a shape
        output.CopyFrom(value_info(onnx, output.name, ["n", "d"]))
    try:
        onnx.checker.check_model(checked)
    except onnx.checker.ValidationError:
        return proto
    return older


def _has_constant_axes(node: Any, constants: dict[str, Any]) -> bool:
    reduces = node.op_type.startswith("Reduce") and node.op_type != "ReduceSum"  # has an input
    return reduces and len(node.input) == 2 and node.input[1] in constants


def _drop(node: Any, attribute: str) -> None:
    kept = [each for each in node.attribute if each.name != attribute]
    del node.attribute[:]
    node.attribute.extend(kept)
