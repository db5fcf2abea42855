"""ONNX models: `onnx/<path>`, run by onnxruntime."""

from __future__ import annotations

import functools
import hashlib
import math
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo._io import file_digest
from oodzoo._text import one_line
from oodzoo.errors import InputError
from oodzoo.zoo.model import Model, ModelInfo, Outputs, Pixels
from oodzoo.zoo.preprocessing import Preprocessing, square
from oodzoo.zoo.spec import ModelSpec, verified_file

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class OnnxModel(Model):
    """An ONNX model: an onnxruntime session that returns features and, with a head, logits."""

    def __init__(self, session: Any, info: ModelInfo) -> None:
        self.info = info
        self._session = session
        self.on_cpu = session.get_providers()[0] == "CPUExecutionProvider"
        tensor = session.get_inputs()[0]
        self._input = tensor.name
        self._dtype = _DTYPES[tensor.type]
        self._batch = tensor.shape[0] if isinstance(tensor.shape[0], int) else None

    def prepare(self, pixels: Pixels) -> NDArray[Any]:
        return self.info.preprocessing.normalise(pixels).astype(self._dtype, copy=False)

    def launch(self, prepared: NDArray[Any]) -> list[NDArray[Any]]:
        if self._batch is None:
            return self._run(prepared)
        starts = range(0, len(prepared), self._batch)
        parts = [self._run_padded(prepared[at : at + self._batch]) for at in starts]
        return [np.concatenate(output) for output in zip(*parts, strict=True)]

    def collect(self, launched: list[NDArray[Any]]) -> Outputs:
        features, *logits = (pooled(output, self.info.name) for output in launched)
        return Outputs(features, logits[0] if logits else None)

    def _run(self, batch: NDArray[Any]) -> list[NDArray[Any]]:
        outputs: list[NDArray[Any]] = self._session.run(self.info.outputs, {self._input: batch})
        return outputs

    def _run_padded(self, part: NDArray[Any]) -> list[NDArray[Any]]:
        missing = (self._batch or 0) - len(part)
        padded = np.concatenate([part, np.zeros((missing, *part.shape[1:]), part.dtype)])
        return [output[: len(part)] for output in self._run(padded)]


_DTYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


def load(spec: ModelSpec, *, device: str = "cpu", precision: str = "float32") -> OnnxModel:
    """Open an ONNX file, after checking its sha256 if the zoo file sets one."""
    if precision != "float32":
        raise InputError(
            f"model {spec.name!r}: precision {precision!r} is not supported for ONNX models, "
            "which run in the precision of the file"
        )
    path, digest = verified_file(spec)
    session = _session(path, spec.name, device)
    content = path.read_bytes()
    external = [file_digest(path.parent / name) for name in external_files(content)]
    outputs = _output_names(spec, session)
    info = ModelInfo(
        name=spec.name,
        preprocessing=_preprocessing(spec, session),
        feature_dim=0,
        n_logits=None,
        parameters=spec.parameters or count_parameters(content),
        fingerprint=fingerprint([digest, *external], outputs),
        pretraining=spec.pretraining,
        licence=spec.licence,
        outputs=tuple(outputs),
    )
    model = OnnxModel(session, info)
    model.info = info.measured(_run_once(model), spec.feature_dim)
    return model


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


def _session(path: Path, name: str, device: str) -> Any:
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
    options.intra_op_num_threads = int(cpu_count())
    if _share_memory():
        options.add_session_config_entry("session.use_env_allocators", "1")
    try:
        return onnxruntime.InferenceSession(os.fspath(path), options, providers=providers)
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
    size = spec.input_size or (shape[2] if isinstance(shape[2], int) else 224)
    wrong = [side for side in shape[2:] if isinstance(side, int) and side != size]
    if wrong:
        raise InputError(
            f"model {spec.name!r} takes images of {shape[2]}×{shape[3]} pixels, "
            f"but its zoo file sets input_size = {size}"
        )
    if spec.mean is None or spec.std is None:
        warnings.warn(
            f"model {spec.name!r}: ONNX files do not contain mean and std; using ImageNet's. Set "
            "them in a zoo file if they differ",
            stacklevel=2,
        )
    return square(size, spec.mean or IMAGENET_MEAN, spec.std or IMAGENET_STD)


def _output_names(spec: ModelSpec, session: Any) -> list[str]:
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
        for entry in _values(tensor, _EXTERNAL_DATA):
            pair = dict(_fields(entry))
            if pair.get(1) == b"location":
                names.add(bytes(pair[2]).decode())
    return sorted(names)


def _tensors(proto: bytes) -> Iterator[memoryview]:
    for graph in _values(memoryview(proto), _GRAPH):
        yield from _values(graph, _INITIALIZER)
        for node in _values(graph, _NODE):
            for attribute in _values(node, _ATTRIBUTE):
                yield from (v for v in _values(attribute, _TENSOR) if not isinstance(v, int))


def _values(message: Any, number: int) -> Iterator[Any]:
    """The values of one field of a protobuf message."""
    return (value for key, value in _fields(message) if key == number)


def _weights(tensor: memoryview) -> int:
    dims: list[int] = []
    for key, value in _fields(tensor):
        if key == _DIMS:
            dims += [value] if isinstance(value, int) else _varints(value)
        elif key == _DATA_TYPE and value in _NO_WEIGHTS:
            return 0
    return math.prod(dims) if dims else 0


def _fields(view: Any) -> Iterator[tuple[int, Any]]:
    """The (field number, value) pairs of a protobuf message."""
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


def _varints(view: memoryview) -> Iterator[int]:
    at = 0
    while at < len(view):
        value, at = _varint(view, at)
        yield value


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
