"""ONNX files as PyTorch modules, through onnx2torch.

The graph is pruned to the features, its constants are folded by onnxruntime's basic optimisation
(weights that are stored as uint8 or float16, batch norms after convolutions), and float16 becomes
float32. Every node has a name of its own, so that each weight of the module is known by the node
and the initializer that it comes from. Trained weights are written back into that graph.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo._io import write_tidily
from oodzoo._packages import optional_package
from oodzoo._text import one_line
from oodzoo.errors import InputError
from oodzoo.zoo.model_spec import ModelSpec
from oodzoo.zoo.onnx import open_session, output_names
from oodzoo.zoo.onnx_graph import Proto, features_graph, output_rank
from oodzoo.zoo.preprocessing import Preprocessing
from oodzoo.zoo.spec import verified_file
from oodzoo.zoo.torchvision_import import import_torchvision
from oodzoo.zoo.trainable_model import Module, Trainable

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


def trainable(spec: ModelSpec, preprocessing: Preprocessing) -> Trainable:
    """Convert the network of one model."""
    network = _Converted([spec], preprocessing)
    return Trainable(spec.name, network.module, preprocessing, network.dims[0], network.write)


def trainable_network(specs: Sequence[ModelSpec], preprocessing: Preprocessing) -> Module:
    """Convert the network of models that are layers of it; the module returns a tuple."""
    torch: Any = import_module("torch")
    network = _Converted(specs, preprocessing)
    positions = network.outputs

    class Outputs(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.network = network.module

        def forward(self, batch: Any) -> tuple[Any, ...]:
            features = self.network(batch)
            outputs = features if isinstance(features, list) else [features]
            return tuple(outputs[at] for at in positions)

    return Outputs().eval()


class _Converted:
    """The network of one or several models; `outputs` has each one's position in the result."""

    def __init__(self, specs: Sequence[ModelSpec], preprocessing: Preprocessing) -> None:
        name = specs[0].name
        purpose = f"training the ONNX model {name!r}"
        import_torchvision(extra="tune", purpose=purpose)  # onnx2torch imports it
        self._onnx = optional_package("onnx", extra="tune", purpose=purpose)
        onnx2torch = optional_package("onnx2torch", extra="tune", purpose=purpose)
        path, _ = verified_file(specs[0])
        session = open_session(path, name, "cpu")
        specs = [_naming_features(spec, session) for spec in specs]
        self._proto, self.outputs = _folded(self._onnx, specs, preprocessing)
        _require_converters(self._proto, name)
        try:
            self.module: Module = onnx2torch.convert(self._proto, attach_onnx_mapping=True).eval()
        except Exception as error:
            raise InputError(
                f"model {name!r}: onnx2torch {version('onnx2torch')} cannot convert the ONNX file "
                f"to PyTorch: {one_line(error)}"
            ) from error
        self._origins = _make_trainable(self._onnx, self._proto, self.module, name)
        shapes = _require_equal(self._proto, self.module, preprocessing, name)
        self.dims = [shapes[at][1] for at in self.outputs]
        for output, (_, dim) in zip(self._proto.graph.output, shapes, strict=True):
            output.CopyFrom(_value_info(self._onnx, output.name, ["n", dim]))

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


def _naming_features(spec: ModelSpec, session: Any) -> ModelSpec:
    """The spec of a model without a layer, with the name of its output."""
    if spec.layer is not None:
        return spec
    return replace(spec, features=output_names(spec, session)[0], logits=None)


# --- the graph -----------------------------------------------------------------------------------


def _folded(
    onnx: Any, specs: Sequence[ModelSpec], preprocessing: Preprocessing
) -> tuple[Proto, list[int]]:
    """The graph up to the features, with folded constants; and the output of each model."""
    proto = features_graph(onnx, specs, preprocessing)
    names = [output.name for output in proto.graph.output]
    distinct = list(dict.fromkeys(names))
    _use_float32(onnx, proto)
    _set_outputs(onnx, proto, [_pooled(onnx, proto, name) for name in distinct])
    shape: list[int | str] = ["n", 3, *preprocessing.geometry.crop]
    proto.graph.input[0].CopyFrom(_value_info(onnx, proto.graph.input[0].name, shape))
    proto = _optimised(onnx, proto, specs[0].name)
    _rename(onnx, proto)
    _separate_weights(proto)
    return proto, [distinct.index(name) for name in names]


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
    proto.graph.output.extend(_value_info(onnx, name, None) for name in names)


def _value_info(onnx: Any, name: str, shape: Sequence[int | str] | None) -> Any:
    return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)


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


def _require_equal(
    proto: Proto, module: Module, preprocessing: Preprocessing, name: str
) -> list[tuple[int, ...]]:
    """Compare the outputs of the file and the module on noise; return their shapes."""
    import torch

    batch = np.random.default_rng(0).normal(size=(2, 3, *preprocessing.geometry.crop))
    batch = batch.astype(np.float32)
    session = open_session(Path(), name, "cpu", content=proto.SerializeToString())
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
        difference = float(np.abs(output - wanted).max() / max(np.abs(wanted).max(), 1e-30))
        if not difference <= TOLERANCE:
            raise InputError(
                f"model {name!r} cannot be trained: as a module of PyTorch, its features differ by "
                f"{difference:.1g} of the largest from those of the ONNX file, more than "
                f"{TOLERANCE:.0e}"
            )
    return [array.shape for array in expected]
