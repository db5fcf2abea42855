"""ONNX files as modules of PyTorch, through onnx2torch; each module is checked against its file.

The graph is read up to the features. It is pruned, its constants are folded by onnxruntime's basic
optimisation (weights that are stored as uint8 or float16, batch norms after convolutions), float16
becomes float32, and every node has a name and weights of its own. So each weight of the module is
known by the node and the initializer that it comes from, and trained weights are written back into
that graph.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.core.io import write_tidily
from oodzoo.core.packages import import_torchvision, optional_package
from oodzoo.core.text import one_line
from oodzoo.zoo.model import Module
from oodzoo.zoo.onnx_model import add_layers, open_session, output_names
from oodzoo.zoo.preprocessing import Preprocessing
from oodzoo.zoo.spec import ModelSpec, verified_file

Proto = Any  # onnx.ModelProto; onnx is imported only when it is needed
Tensor = Any  # torch.Tensor; torch is imported when a file is converted

TOLERANCE = 1e-4
"""Largest difference between the module and the file, relative to the largest feature."""

_WEIGHTED = frozenset(
    {"Add", "Concat", "Div", "Einsum", "Expand", "Gather", "Gemm", "MatMul", "Mul", "Sub", "Sum"}
)
"""Operators whose constants, of more than one element, are weights."""

_POSITIONS = {"weight": 1, "bias": 2, "running_mean": 3, "running_var": 4}
"""Input of an ONNX node for each tensor of a module, such as a convolution."""


@dataclass(frozen=True)
class _Origin:
    """The initializer that a tensor of a module comes from."""

    initializer: str
    transposed: bool = False
    factor: float = 1.0

    def as_tensor(self, initializer: NDArray[Any]) -> NDArray[Any]:
        array = initializer.T if self.transposed else initializer
        return array if self.factor == 1 else array * np.float32(self.factor)

    def as_initializer(self, tensor: NDArray[Any]) -> NDArray[Any]:
        array = tensor.T if self.transposed else tensor
        return array if self.factor == 1 else array / np.float32(self.factor)


class ConvertedNetwork:
    """The network of models that are layers of it.

    Attributes
    ----------
    module : torch.nn.Module
        Returns a tensor, or a list of several.
    outputs : list of int
        The position of each model's features among these.
    dims : list of int
        The number of each model's features.
    """

    def __init__(self, specs: Sequence[ModelSpec], preprocessing: Preprocessing) -> None:
        name = specs[0].name
        purpose = f"training the ONNX model {name!r}"
        import_torchvision(extra="tune", purpose=purpose)  # onnx2torch imports it
        self._onnx = optional_package("onnx", extra="tune", purpose=purpose)
        onnx2torch = optional_package("onnx2torch", extra="tune", purpose=purpose)
        path, _ = verified_file(specs[0])
        session = open_session(path, name, "cpu")
        specs = [
            spec
            if spec.layer is not None
            else replace(spec, features=output_names(spec, session)[0], logits=None)
            for spec in specs
        ]
        self._proto, self.outputs, reference = folded_graph(self._onnx, specs, preprocessing)
        _require_converters(self._proto, name)
        try:
            self.module: Module = onnx2torch.convert(self._proto, attach_onnx_mapping=True).eval()
        except Exception as error:
            raise InputError(
                f"model {name!r}: onnx2torch {version('onnx2torch')} cannot convert the ONNX file "
                f"to PyTorch: {one_line(error)}"
            ) from error
        self._origins = _make_trainable(self._onnx, self._proto, self.module, name)
        _use_constant_shapes(self.module, self._proto, self._onnx)
        shapes = _require_equal(reference, self.module, preprocessing, name)
        self.dims = [shapes[at][1] for at in self.outputs]
        for output, (_, dim) in zip(self._proto.graph.output, shapes, strict=True):
            output.CopyFrom(value_info(self._onnx, output.name, ["n", dim]))

    def separate(self) -> Module:
        """The module with a tuple of the features of each model."""
        torch: Any = import_module("torch")
        network, positions = self.module, self.outputs

        class Outputs(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.network = network

            def forward(self, batch: Tensor) -> tuple[Tensor, ...]:
                features = self.network(batch)
                outputs = features if isinstance(features, list) else [features]
                return tuple(outputs[at] for at in positions)

        return Outputs().eval()

    def write(self, file: Path) -> None:
        """Write the folded graph with the current weights of the module."""
        proto = type(self._proto).FromString(self._proto.SerializeToString())
        by_name = {tensor.name: tensor for tensor in proto.graph.initializer}
        for name, origin in self._origins.items():
            initializer = by_name[origin.initializer]
            tensor = attrgetter(name)(self.module).detach().cpu().float().numpy()
            array = origin.as_initializer(tensor).reshape(initializer.dims)
            initializer.CopyFrom(
                self._onnx.numpy_helper.from_array(np.ascontiguousarray(array), initializer.name)
            )
        write_tidily(file, proto.SerializeToString())


# --- the module ----------------------------------------------------------------------------------


def _require_converters(proto: Proto, name: str) -> None:
    """Reject a file with an operator that onnx2torch does not know."""
    get_converter = import_module("onnx2torch.node_converters").get_converter
    versions = {entry.domain: entry.version for entry in proto.opset_import}
    for node in proto.graph.node:
        try:
            get_converter(
                domain=node.domain, operation_type=node.op_type, version=versions[node.domain]
            )
        except NotImplementedError as error:
            operator = f"{node.domain}.{node.op_type}".lstrip(".")
            raise InputError(
                f"model {name!r} cannot be trained: onnx2torch {version('onnx2torch')} cannot "
                f"convert the ONNX operator {operator} (opset {versions[node.domain]}) to PyTorch"
            ) from error


def _make_trainable(onnx: Any, proto: Proto, module: Module, name: str) -> dict[str, _Origin]:
    """Make all weights parameters; return where each tensor of the module comes from."""
    nodes = {node.name: node for node in proto.graph.node}
    arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    origins = _constants(module, nodes, arrays)
    for path, tensor in [*module.named_parameters(), *module.named_buffers()]:
        owner, _, kind = path.rpartition(".")
        if path in origins or kind not in _POSITIONS:
            continue
        node = nodes[path.partition(".")[0]]
        position = _POSITIONS[kind]
        if position >= len(node.input):  # a layer norm without a bias
            module.get_submodule(owner).register_parameter(kind, None)
            continue
        origins[path] = _origin(node, position)
        array = origins[path].as_tensor(arrays[node.input[position]]).reshape(tensor.shape)
        if not np.array_equal(array, tensor.detach().numpy()):
            raise InputError(
                f"model {name!r} cannot be trained: onnx2torch {version('onnx2torch')} changes "
                f"the weights of the ONNX operator {node.op_type}"
            )
    return origins


def _constants(
    module: Module, nodes: dict[str, Any], arrays: dict[str, NDArray[Any]]
) -> dict[str, _Origin]:
    """Make the constants parameters that are weights, such as the matrix of a MatMul."""
    import torch

    origins: dict[str, _Origin] = {}
    for call in module.graph.nodes:
        if call.op != "call_module" or nodes[call.target].op_type not in _WEIGHTED:
            continue
        names = filter(None, module.get_submodule(call.target).onnx_mapping.inputs)
        for name, given in zip(names, [*call.args, *call.kwargs.values()], strict=True):
            if given.op != "get_attr" or arrays[name].dtype != np.float32:
                continue
            if arrays[name].size > 1 and np.isfinite(arrays[name]).all():
                _, _, key = given.target.rpartition(".")
                tensor = getattr(module.initializers, key)
                delattr(module.initializers, key)
                module.initializers.register_parameter(key, torch.nn.Parameter(tensor))
                origins[given.target] = _Origin(name)
    return origins


def _origin(node: Any, position: int) -> _Origin:
    name = node.input[position]
    if node.op_type != "Gemm":
        return _Origin(name)
    known = {attribute.name: attribute for attribute in node.attribute}
    if position == 2:
        return _Origin(name, factor=known["beta"].f if "beta" in known else 1.0)
    transposed = "transB" not in known or known["transB"].i == 0
    return _Origin(name, transposed, known["alpha"].f if "alpha" in known else 1.0)


def relative_difference(found: NDArray[Any], expected: NDArray[Any]) -> float:
    """The largest difference, as a fraction of the largest value; infinite for another shape."""
    if found.shape != expected.shape:
        return float("inf")
    scale = float(np.abs(expected).max()) or 1.0
    return float(np.abs(found - expected).max()) / scale


def _require_equal(
    content: bytes, module: Module, preprocessing: Preprocessing, name: str
) -> list[tuple[int, ...]]:
    """Compare the outputs of the file and the module on noise; return their shapes."""
    import torch

    batch = np.random.default_rng(0).normal(size=(2, 3, *preprocessing.geometry.crop))
    batch = batch.astype(np.float32)
    session = open_session(Path(), name, "cpu", content=content)
    try:
        expected = session.run(None, {"input": batch})
        with torch.inference_mode():
            outputs = module(torch.from_numpy(batch))
    except Exception as error:
        raise InputError(
            f"model {name!r} cannot be trained: it fails for a batch of two images: "
            f"{one_line(error)}"
        ) from error
    found = [each.numpy() for each in (outputs if isinstance(outputs, list) else [outputs])]
    for output, wanted in zip(found, expected, strict=True):
        if wanted.ndim != 2 or len(wanted) != 2:
            raise InputError(
                f"model {name!r} cannot be trained: it returns features of shape {wanted.shape} "
                "for two images; expected (n, d)"
            )
        difference = relative_difference(output, wanted)
        if not difference <= TOLERANCE:
            raise InputError(
                f"model {name!r} cannot be trained: as a module of PyTorch, its features differ by "
                f"{difference:.1g} of the largest from those of the ONNX file, more than "
                f"{TOLERANCE:.0e}"
            )
    return [array.shape for array in expected]


# --- constant shapes ------------------------------------------------------------------------------


def _use_constant_shapes(module: Module, proto: Proto, onnx: Any) -> None:
    """Replace the nodes Reshape and Slice of a module whose other inputs are constants.

    onnx2torch keeps these as tensors. On a GPU, each would be copied to the CPU in every forward
    pass, and `torch.export` rejects shapes that depend on data.
    """
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
    """A constant shape; 0 stands for the size of the input."""
    return _module_of(
        lambda tensor: tensor.reshape([side or tensor.shape[at] for at, side in enumerate(shape)])
    )


def _slice(
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
) -> Module:
    """Constant limits."""
    steps = steps or [1] * len(starts)
    parts: dict[int, slice] = {}
    backwards: list[int] = []
    for axis, start, end, step in zip(axes or range(len(starts)), starts, ends, steps, strict=True):
        parts[axis] = slice(start, end, step)
        if step < 0:  # PyTorch has no negative steps: the same elements, after a flip
            parts[axis] = slice(-start - 1, -end - 1, -step)
            backwards.append(axis)

    def cut(tensor: Tensor) -> Tensor:
        tensor = tensor.flip(backwards) if backwards else tensor
        whole = [slice(None)] * tensor.ndim
        for axis, part in parts.items():
            whole[axis] = part
        return tensor[tuple(whole)]

    return _module_of(cut)


def _module_of(function: Callable[[Tensor], Tensor]) -> Module:
    torch: Any = import_module("torch")

    class Constant(torch.nn.Module):  # type: ignore[misc]
        def forward(self, tensor: Tensor) -> Tensor:
            return function(tensor)

    return Constant()


# --- graphs ---------------------------------------------------------------------------------------


def features_graph(onnx: Any, specs: Sequence[ModelSpec], preprocessing: Preprocessing) -> Proto:
    """Read the file of models of one network, up to their features, which are its outputs.

    Nodes and weights on which the features do not depend are left out. A spec without a layer
    names the output with the features. Models with the same features share an output.
    """
    file, names = specs[0].file, {spec: spec.features or "" for spec in specs}
    layers = [spec for spec in specs if spec.layer is not None]
    if not layers:
        return pruned(onnx.load(file), list(names.values()))
    content, taps = add_layers(layers, file, file.read_bytes(), preprocessing)
    for spec, tap in taps.items():
        if isinstance(tap, InputError):
            raise InputError(f"model {spec.name!r}: {tap}")
        names[spec] = tap.output
    proto = onnx.load_model_from_string(content)
    onnx.external_data_helper.load_external_data_for_model(proto, str(file.parent))
    return pruned(proto, list(names.values()))


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
    """Fold the graph of models of one network; as :func:`features_graph`."""
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
