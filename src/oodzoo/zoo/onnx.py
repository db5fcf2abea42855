"""ONNX models: `onnx/<path>`, run by onnxruntime."""

from __future__ import annotations

import functools
import hashlib
import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.core.io import file_digest
from oodzoo.core.text import one_line
from oodzoo.zoo.layers_onnx import (
    FLOATS,
    Graph,
    cut_tensors,
    fields,
    read_graph,
    values,
    varints,
    with_outputs,
    with_pooled,
)
from oodzoo.zoo.model import (
    Collected,
    Model,
    ModelInfo,
    Module,
    Network,
    NetworkModel,
    Outputs,
    Pixels,
    Trainable,
)
from oodzoo.zoo.model_spec import Pool, choose_pool
from oodzoo.zoo.preprocessing import Geometry, Preprocessing
from oodzoo.zoo.sources import ModelSource
from oodzoo.zoo.spec import ModelSpec, read_geometry, verified_file
from oodzoo.zoo.weights import Measured, Weights

T = TypeVar("T")

MOST_LAYERS = 12
"""Most tensors that `@all` stands for."""

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


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
        self._options = _run_options() if partial else None
        self._preprocessing = preprocessing
        self.on_cpu = session.get_providers()[0] == "CPUExecutionProvider"
        tensor = session.get_inputs()[0]
        self._input = tensor.name
        self._dtype = _DTYPES[tensor.type]
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
            return self._run(prepared, names)
        starts = range(0, len(prepared), self._batch)
        parts = [self._run_padded(prepared[at : at + self._batch], names) for at in starts]
        return [np.concatenate(output) for output in zip(*parts, strict=True)]

    def _run(self, batch: NDArray[Any], names: Sequence[str]) -> list[NDArray[Any]]:
        outputs: list[NDArray[Any]] = self._session.run(
            list(names), {self._input: batch}, self._options
        )
        return outputs

    def _run_padded(self, part: NDArray[Any], names: Sequence[str]) -> list[NDArray[Any]]:
        missing = (self._batch or 0) - len(part)
        padded = np.concatenate([part, np.zeros((missing, *part.shape[1:]), part.dtype)])
        return [output[: len(part)] for output in self._run(padded, names)]


class OnnxModel(NetworkModel):
    """An ONNX model: the outputs of a session with features and, with a head, logits."""

    def __init__(self, network: OnnxNetwork, info: ModelInfo, fetched: Sequence[str]) -> None:
        super().__init__(network, info)
        self.fetched = tuple(fetched)
        """Outputs of the session: features and logits, or a pooled layer."""


class _Tap(NamedTuple):
    tensor: str
    pool: Pool
    dtype: str
    output: str = ""
    """The pooled tensor, an output of the extended model."""


class _Launched(NamedTuple):
    arrays: dict[str, NDArray[Any]]
    models: Sequence[OnnxModel]


_DTYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


@functools.cache
def _run_options() -> Any:
    """Compute only what the requested outputs depend on."""
    import onnxruntime

    options = onnxruntime.RunOptions()
    options.only_execute_path_to_fetches = True
    return options


class OnnxSource(ModelSource):
    """ONNX files."""

    kind = "onnx"
    packages = ("onnxruntime",)
    precision = "float32"  # of inputs and outputs; the precision inside is that of the file
    takes_geometry = True

    def load(self, spec: ModelSpec, *, device: str, precision: str) -> Model:
        return load(spec, device=device, precision=precision)

    def load_layers(
        self, specs: Sequence[ModelSpec], *, device: str, precision: str
    ) -> list[Model | InputError]:
        return [*load_layers(specs, device=device, precision=precision)]

    def trainable(self, spec: ModelSpec, preprocessing: Preprocessing) -> Trainable:
        trainable: Trainable = _converter().trainable(spec, preprocessing)
        return trainable

    def trainable_network(self, specs: Sequence[ModelSpec], preprocessing: Preprocessing) -> Module:
        return _converter().trainable_network(specs, preprocessing)

    def local_path(self, spec: ModelSpec) -> Path | None:
        return spec.file

    def is_model(self, path: Path) -> bool:
        return path.is_file()

    def measure(self, spec: ModelSpec) -> Measured:
        return Measured(_parsed(count_parameters, spec))

    def weights(self, spec: ModelSpec) -> Weights:
        folder = spec.file.parent
        files = [spec.file, *(folder / name for name in _parsed(external_files, spec))]
        return Weights(folder, True, sum(file.stat().st_size for file in files if file.is_file()))


def _parsed(parse: Callable[[bytes], T], spec: ModelSpec) -> T:
    try:
        return parse(spec.file.read_bytes())
    except OSError as error:
        reason = error.strerror
    except (IndexError, KeyError, ValueError):
        reason = "it is not an ONNX file"
    raise InputError(f"model {spec.name!r}: cannot read {str(spec.file)!r}: {reason}")


def _converter() -> Any:
    return import_module("oodzoo.zoo.onnx_to_torch")  # it imports this module


def load(spec: ModelSpec, *, device: str = "cpu", precision: str = "float32") -> OnnxModel:
    """Open an ONNX file, after checking its sha256 if the zoo file sets one."""
    (model,) = load_layers([spec], device=device, precision=precision)
    if isinstance(model, InputError):
        raise model
    return model


def load_layers(
    specs: Sequence[ModelSpec], *, device: str = "cpu", precision: str = "float32"
) -> list[OnnxModel | InputError]:
    """Open an ONNX file once for several of its layers; an error in place of one that fails."""
    first = specs[0]
    if precision != "float32":
        raise InputError(
            f"model {first.name!r}: precision {precision!r} is not supported for ONNX models, "
            "which run in the precision of the file"
        )
    path, digest = verified_file(first)
    session = open_session(path, first.name, device)
    reopen = functools.partial(open_session, path, first.name, device)
    content = path.read_bytes()
    digests = [digest, *(file_digest(path.parent / name) for name in external_files(content))]
    n_parameters = count_parameters(content)
    preprocessing = _preprocessing(first, session)
    taps: dict[ModelSpec, _Tap | InputError] = {}
    if layers := [spec for spec in specs if spec.layer is not None]:
        content, taps = add_layers(layers, path, content, preprocessing)
        reopen = functools.partial(reopen, content=content)
        session = reopen()
    network = OnnxNetwork(
        session, preprocessing, lambda threads: reopen(threads=threads), partial=bool(layers)
    )
    models: list[OnnxModel | InputError] = []
    for spec in specs:
        info = ModelInfo(
            name=spec.name,
            preprocessing=preprocessing,
            feature_dim=0,
            n_logits=None,
            parameters=spec.parameters or n_parameters,
            fingerprint="",
            pretraining=spec.pretraining,
            licence=spec.licence,
        )
        tap = taps.get(spec)
        try:
            if isinstance(tap, InputError):
                raise InputError(f"model {spec.name!r}: {tap}")
            if tap is None:
                outputs = output_names(spec, session)
                identity = fingerprint(digests, outputs)
                info = replace(info, fingerprint=identity, outputs=tuple(outputs))
                model = OnnxModel(network, info, outputs)
            else:
                identity = layer_fingerprint(digests, tap.tensor, tap.pool.pooling)
                info = replace(
                    info, fingerprint=identity, layer=tap.tensor, pooling=tap.pool.pooling
                )
                model = OnnxModel(network, info, [tap.output])
            model.info = info.measured(_run_once(model), spec.feature_dim)
            models.append(model)
        except InputError as error:
            models.append(error)
    return models


def add_layers(
    specs: Sequence[ModelSpec], path: Path, content: bytes, preprocessing: Preprocessing
) -> tuple[bytes, dict[ModelSpec, _Tap | InputError]]:
    """Add the pooled outputs of layers to the content of a file.

    In place of a layer that cannot be used, the error continues "model 'x': ".
    """
    graph = read_graph(content)
    taps = _find_taps(specs, path, content, graph, preprocessing)
    usable = {spec: tap for spec, tap in taps.items() if isinstance(tap, _Tap)}
    content, names = with_pooled(content, graph, [tap[:3] for tap in usable.values()])
    outputs = dict(zip(usable, names, strict=True))
    return content, taps | {spec: usable[spec]._replace(output=outputs[spec]) for spec in usable}


def _find_taps(
    specs: Sequence[ModelSpec],
    path: Path,
    content: bytes,
    graph: Graph,
    preprocessing: Preprocessing,
) -> dict[ModelSpec, _Tap | InputError]:
    """Find the tensors of layers; their shapes are those for a batch of black images."""
    tensors: dict[ModelSpec, str] = {}
    taps: dict[ModelSpec, _Tap | InputError] = {}
    for spec in specs:
        try:
            tensors[spec] = graph.tensor(spec.layer or "")
        except InputError as error:
            taps[spec] = error
    if not tensors:
        return taps
    names = list(dict.fromkeys(tensors.values()))
    content = with_outputs(content, graph, names)
    session = open_session(path, specs[0].name, "cpu", content=content)
    batch = session.get_inputs()[0].shape[0]
    n, crop = batch if isinstance(batch, int) else 2, preprocessing.geometry.crop
    network = OnnxNetwork(session, preprocessing, lambda _: session, partial=True)
    arrays = network.run(network.prepare(np.zeros((n, *crop, 3), np.uint8)), names)
    types = {output.name: output.type for output in session.get_outputs()}
    found = dict(zip(names, arrays, strict=True))
    for spec, name in tensors.items():
        try:
            if types[name] not in FLOATS:
                raise InputError(f"gives {types[name]}, not features; choose another one")
            pool = choose_pool(found[name].shape, n, crop, spec.pooling)
            taps[spec] = _Tap(name, pool, types[name])
        except InputError as error:
            taps[spec] = InputError(f"layer {spec.layer!r} {error}")
    return taps


def spread_layers(spec: ModelSpec) -> list[str]:
    """List a dozen tensors at most, spread over the depth of a network.

    They are tensors on which alone all that follows depends, such as the outputs of the blocks of a
    residual network.
    """
    path, _ = verified_file(spec)
    content = path.read_bytes()
    open_session(path, spec.name, "cpu")  # reports a file that is not ONNX
    graph = read_graph(content)
    cuts = cut_tensors(graph)
    session = open_session(path, spec.name, "cpu", content=with_outputs(content, graph, cuts))
    known = {output.name: output for output in session.get_outputs()}
    usable = [
        name
        for name in cuts
        if known[name].type in FLOATS and len(known[name].shape or ()) in (2, 3, 4)
    ]
    if not usable:
        raise InputError(f"model {spec.name!r}: found no tensors for @all; name layers instead")
    if len(usable) <= MOST_LAYERS:
        return usable
    step = (len(usable) - 1) / (MOST_LAYERS - 1)
    return [usable[round(step * number)] for number in range(MOST_LAYERS)]


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


def _preprocessing(spec: ModelSpec, session: Any) -> Preprocessing:
    inputs = session.get_inputs()
    shape = inputs[0].shape if len(inputs) == 1 else []
    if len(shape) != 4 or inputs[0].type not in _DTYPES or shape[1] != 3:
        described = ", ".join(f"{i.name} {i.type} {i.shape}" for i in inputs) or "none"
        raise InputError(
            f"model {spec.name!r} must take one float tensor (n, 3, height, width); "
            f"it takes {described}"
        )
    geometry = _geometry(spec, shape[2:])
    if spec.mean is None or spec.std is None:
        warnings.warn(
            f"model {spec.name!r}: ONNX files do not contain mean and std; using ImageNet's. Set "
            "them in a zoo file if they differ",
            stacklevel=2,
        )
    return Preprocessing(geometry, spec.mean or IMAGENET_MEAN, spec.std or IMAGENET_STD)


def _geometry(spec: ModelSpec, sides: Sequence[int | str]) -> Geometry:
    """The geometry of a zoo file, or a squashed square; `sides` are those that the file takes."""
    if spec.geometry is None:
        size = spec.input_size or (sides[0] if isinstance(sides[0], int) else 224)
        geometry, stated = Geometry((size, size), (size, size)), f"input_size = {size}"
    else:
        geometry = read_geometry(spec.geometry, f"model {spec.name!r}")
        stated = f"crop = {list(geometry.crop)} in geometry"
        if spec.input_size not in (None, *geometry.crop):
            raise InputError(
                f"model {spec.name!r}: its zoo file sets input_size = {spec.input_size}, but "
                f"{stated}; remove input_size"
            )
    if any(isinstance(a, int) and a != b for a, b in zip(sides, geometry.crop, strict=True)):
        raise InputError(
            f"model {spec.name!r} takes images of {sides[0]}×{sides[1]} pixels, "
            f"but its zoo file sets {stated}"
        )
    return geometry


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


def _run_once(model: OnnxModel) -> Outputs:
    height, width = model.info.preprocessing.geometry.crop
    try:
        return model(np.zeros((1, height, width, 3), np.uint8))
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"model {model.info.name!r} cannot run on an image of {height}×{width} pixels: "
            f"{one_line(error)}"
        ) from error


def fingerprint(digests: Sequence[str], outputs: Sequence[str]) -> str:
    """Identify a model by the digests of its files and the names of the outputs in use."""
    return hashlib.sha256("\n".join(["onnx", *digests, *outputs]).encode()).hexdigest()


def layer_fingerprint(digests: Sequence[str], tensor: str, pooling: str | None) -> str:
    """Identify a layer of a model."""
    return fingerprint(digests, ["layer", tensor, pooling or "none"])


# --- reading the protobuf ----------------------------------------------------------------------

# Field numbers of the ONNX schema: reading the wire format directly avoids the `onnx` package.
_GRAPH, _NODE, _INITIALIZER, _ATTRIBUTE, _TENSOR = 7, 1, 5, 5, 5
_DIMS, _DATA_TYPE, _EXTERNAL_DATA = 1, 2, 13
_NO_WEIGHTS = frozenset({7, 8, 9})  # int64, string, bool: shapes, axes and masks


def count_parameters(proto: bytes) -> int:
    """Count the weights in an ONNX file: the elements of its initializers and constants.

    Shapes and indices are not weights, nor are scalars such as the epsilon of a layer norm.
    """
    return sum(_weights(tensor) for tensor in _tensors(proto))


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
        yield from values(graph, _INITIALIZER)
        for node in values(graph, _NODE):
            for attribute in values(node, _ATTRIBUTE):
                yield from (v for v in values(attribute, _TENSOR) if not isinstance(v, int))


def _weights(tensor: memoryview) -> int:
    dims: list[int] = []
    for key, value in fields(tensor):
        if key == _DIMS:
            dims += [value] if isinstance(value, int) else varints(value)
        elif key == _DATA_TYPE and value in _NO_WEIGHTS:
            return 0
    return math.prod(dims) if dims else 0
