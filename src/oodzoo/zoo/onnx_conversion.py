"""ONNX files as PyTorch modules, through onnx2torch; PyTorch modules as ONNX files, by torch.onnx.

Each is checked against the other. A file's graph is folded first (:mod:`oodzoo.zoo.onnx_graph`).
Every node has a name of its own, so that each weight of the module is known by the node and the
initializer that it comes from. Trained weights are written back into that graph.
"""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.metadata import version
from inspect import signature
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.core.io import write_tidily
from oodzoo.core.packages import import_torchvision, optional_package
from oodzoo.core.text import one_line
from oodzoo.zoo.model import Module, Trainable
from oodzoo.zoo.onnx_graph import Proto, folded_graph, value_info
from oodzoo.zoo.onnx_model import open_session, output_names
from oodzoo.zoo.preprocessing import Preprocessing
from oodzoo.zoo.spec import ModelSpec, verified_file

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
        difference = float(np.abs(output - wanted).max() / max(np.abs(wanted).max(), 1e-30))
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


# --- modules as files -----------------------------------------------------------------------------

OPSET = 18
"""The first opset whose Resize has antialiasing, and the lowest that torch.onnx writes well."""

IR_VERSION = 8
"""Of a file without functions; read by every ONNX Runtime that has the opset."""

_MAX_BYTES = 2_000_000_000  # limit of a protobuf
_BATCHES = (1, 3)
"""Batch sizes of the check; the module is exported with two images."""
_PURPOSE = "writing PyTorch models as ONNX files"


def write_outputs(
    module: Module, crop: tuple[int, int], file: Path, outputs: Sequence[str], *, name: str
) -> None:
    """Write a module as an ONNX file.

    Parameters
    ----------
    module : torch.nn.Module
        On the CPU, in float32 and in eval mode. Maps a normalised batch (n, 3, height, width) to
        a tuple of tensors (n, d), or to one tensor for one output.
    crop : tuple of int
        Height and width.
    file : Path
        Its input is `input`, float32 (n, 3, height, width), with any n. The weights are in the
        file itself.
    outputs : sequence of str
        Names of the outputs.
    name : str
        Of the model, for error messages.

    Raises
    ------
    InputError
        If the module cannot be exported, if the outputs of the file differ from the module's, or
        if it is larger than 2 GB.
    MissingPackageError
        If onnx or onnxscript is not installed.
    """
    for package in ("onnx", "onnxscript"):
        optional_package(package, extra="tune", purpose=_PURPOSE)
    size = sum(t.numel() * t.element_size() for t in module.state_dict().values())
    if size > _MAX_BYTES:
        raise InputError(
            f"model {name!r} has weights of {size / 1e9:.1f} GB; an ONNX file is limited to 2 GB"
        )
    proto = _exported(module, crop, outputs, name)
    _remove_metadata(proto)
    content: bytes = proto.SerializeToString()
    _require_equal_file(content, module, crop, name)
    write_tidily(file, content)


def _exported(module: Module, crop: tuple[int, int], outputs: Sequence[str], name: str) -> Any:
    """Export a module; two images stand for any number."""
    torch: Any = import_module("torch")
    if "dynamo" not in signature(torch.onnx.export).parameters:
        raise InputError(f"{_PURPOSE} needs torch 2.5 or newer, got {torch.__version__}")
    try:
        with _quietly(), torch.no_grad():
            program = torch.onnx.export(
                module,
                (_random_batch(2, crop),),
                input_names=["input"],
                output_names=list(outputs),
                dynamic_shapes=({0: torch.export.Dim("n")},),
                opset_version=OPSET,
                dynamo=True,
                verbose=False,
            )
            return program.model_proto
    except Exception as error:
        raise InputError(
            f"model {name!r} cannot be written as an ONNX file: {one_line(_cause(error))}"
        ) from error


def _require_equal_file(content: bytes, module: Module, crop: tuple[int, int], name: str) -> None:
    """Raise InputError if the file and the module differ on images of noise."""
    import onnxruntime

    torch: Any = import_module("torch")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    providers = ["CPUExecutionProvider"]
    for n in _BATCHES:
        batch = _random_batch(n, crop)
        with torch.no_grad():
            expected = module(batch)
        expected = expected if isinstance(expected, tuple) else (expected,)
        try:
            session = onnxruntime.InferenceSession(content, options, providers=providers)
            found = session.run(None, {"input": batch.numpy()})
        except Exception as error:
            raise InputError(
                f"model {name!r} cannot be written as an ONNX file: ONNX Runtime does not run it "
                f"with a batch of {n}: {one_line(error)}"
            ) from error
        for one, other in zip(found, expected, strict=True):
            if other.ndim != 2 or len(other) != n:
                raise InputError(
                    f"model {name!r} cannot be written as an ONNX file: it returns an output of "
                    f"shape {tuple(other.shape)} for a batch of {n}; expected ({n}, d)"
                )
            difference = _difference(one, other.numpy())
            if not difference <= TOLERANCE:
                raise InputError(
                    f"model {name!r} cannot be written as an ONNX file: its outputs differ by "
                    f"{difference:.1g} of the largest from PyTorch's, more than {TOLERANCE:.0e}"
                )


def _difference(found: NDArray[Any], expected: NDArray[Any]) -> float:
    """The largest difference, as a fraction of the largest value; infinite for another shape."""
    if found.shape != expected.shape:
        return float("inf")
    scale = float(np.abs(expected).max()) or 1.0
    return float(np.abs(found - expected).max()) / scale


def _random_batch(n: int, crop: tuple[int, int]) -> Any:
    """Noise whose mean differs with n: a branch on values is not always taken."""
    import torch

    return torch.randn(n, 3, *crop, generator=torch.Generator().manual_seed(n)) + (n - 2)


def _remove_metadata(proto: Any) -> None:
    """Remove stack traces and the names of PyTorch's operators, which every node has."""
    graph = proto.graph
    described = (*graph.node, *graph.input, *graph.output, *graph.initializer)
    for part in (proto, graph, *described):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    graph.ClearField("value_info")
    if not proto.functions:
        proto.ir_version = min(proto.ir_version, IR_VERSION)


def _cause(error: BaseException) -> BaseException:
    """The first of a chain of errors."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


@contextmanager
def _quietly() -> Iterator[None]:
    """Suppress what torch.onnx prints, warns and logs."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            redirect_stdout(io.StringIO()),
            redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
