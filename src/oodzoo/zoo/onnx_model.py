"""ONNX models run by onnxruntime: sessions, their outputs, and the pooled outputs of layers."""

from __future__ import annotations

import functools
import hashlib
import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.core.text import one_line
from oodzoo.zoo.model import Collected, ModelInfo, Network, NetworkModel, Outputs, Pixels
from oodzoo.zoo.onnx_protobuf import (
    FLOATS,
    fields,
    read_graph,
    values,
    varints,
    with_outputs,
    with_pooled,
)
from oodzoo.zoo.preprocessing import Preprocessing
from oodzoo.zoo.spec import ModelSpec, Pool, choose_pool

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
    pool: Pool
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
_GRAPH, _NODE, _INITIALIZER, _ATTRIBUTE, _TENSOR = 7, 1, 5, 5, 5
_DIMS, _DATA_TYPE, _EXTERNAL_DATA = 1, 2, 13
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
        yield from values(graph, _INITIALIZER)
        for node in values(graph, _NODE):
            for attribute in values(node, _ATTRIBUTE):
                yield from (v for v in values(attribute, _TENSOR) if not isinstance(v, int))
