"""PyTorch models: the code shared by timm, torchvision, transformers and open_clip."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from oodzoo.core.errors import InputError
from oodzoo.core.text import count, did_you_mean, one_line
from oodzoo.core.threads import thread_seconds
from oodzoo.zoo.layers_torch import Tap, find_taps, run_tapped
from oodzoo.zoo.model import Collected, ModelInfo, Network, NetworkModel, Outputs, Pixels
from oodzoo.zoo.model_spec import Pooling
from oodzoo.zoo.preprocessing import Preprocessing
from oodzoo.zoo.spec import ModelSpec

Module = Any  # torch.nn.Module; torch is imported only when a model needs it
Tensor = Any  # torch.Tensor

Forward = Callable[[Module, Tensor], tuple[Tensor, Tensor | None]]
"""Maps a module and a normalised batch (n, 3, height, width) to features and logits."""

PRECISIONS = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Built:
    """A module as built by its source, before it is moved to a device.

    `identity` describes the architecture and which output is used, independently of where the
    weights came from. It is hashed into the fingerprint together with the weights, so the strings
    must never change.
    """

    module: Module
    forward: Forward
    preprocessing: Preprocessing
    identity: str
    pretraining: str | None = None
    licence: str | None = None


class TorchNetwork(Network):
    """A PyTorch module in eval mode on a device.

    On CUDA neither `prepare` nor `launch` blocks: pixels are copied as bytes from pinned memory on
    a stream of their own, normalised on the device, and the outputs are copied back into pinned
    memory after the forward pass. A caller who launches the next batch before collecting the
    previous one keeps the device busy.
    """

    def __init__(self, built: Built, *, device: str = "cpu", precision: str = "float32") -> None:
        torch: Any = import_module("torch")
        self.preprocessing = built.preprocessing
        self._device = torch_device(device)
        self.on_cpu = self._device.type == "cpu"
        if precision not in PRECISIONS:
            known = ", ".join(PRECISIONS)
            raise InputError(f"unknown precision {precision!r}; expected one of {known}")
        self._dtype = getattr(torch, precision)
        self._forward = built.forward
        self._module = cast(built.module.eval().requires_grad_(False), self._dtype)
        self._module.to(self._device)
        self._copies: Any = None
        if self._device.type == "cuda":
            self._module.to(memory_format=torch.channels_last)
            self._copies = torch.cuda.Stream(self._device)
        self._mean, self._std = (
            torch.tensor(values, device=self._device).view(1, 3, 1, 1)
            for values in (built.preprocessing.mean, built.preprocessing.std)
        )

    def one_thread(self) -> AbstractContextManager[None]:
        return one_torch_thread()

    def prepare(self, pixels: Pixels) -> _Prepared:
        import torch

        tensor = torch.from_numpy(np.require(pixels, requirements=["C", "W"]))
        if self._copies is None:
            return _Prepared(tensor.to(self._device), None)
        with torch.cuda.stream(self._copies):
            on_device = tensor.pin_memory().to(self._device, non_blocking=True)
            return _Prepared(on_device, _mark(self._copies))

    def launch(self, prepared: _Prepared, models: Sequence[TorchModel]) -> _Launched:
        import torch

        stream = None
        if prepared.event is not None:
            stream = torch.cuda.current_stream(self._device)
            stream.wait_event(prepared.event)
            prepared.pixels.record_stream(stream)
        taps = [model.tap for model in models if model.tap is not None]
        mark = thread_seconds if stream is None else partial(_mark, stream, timing=True)
        with torch.inference_mode():
            start = mark()
            batch = self._normalised(prepared.pixels)
            outputs, pooled, marks = run_tapped(
                lambda: self._forward(self._module, batch),
                taps,
                whole=len(taps) < len(models),
                mark=mark,
            )
            found = iter(zip(pooled, marks, strict=True))
            tensors, times = [], []
            for model in models:
                if model.tap is not None:
                    tensor, end = next(found)
                    tensors.append([tensor])
                    times.append(end)
                else:
                    assert outputs is not None
                    tensors.append([t.float() for t in outputs if t is not None])
                    times.append(None)
            end = mark()
            marks = [start, *(each or end for each in times), end]
            if stream is None:
                return _Launched(tensors, marks, None)
            tensors = [[_to_pinned(t) for t in each] for each in tensors]
            return _Launched(tensors, marks, _mark(stream))

    def collect(self, launched: _Launched) -> Collected:
        if launched.event is not None:
            launched.event.synchronize()
        outputs = []
        for tensors in launched.outputs:
            # A copy on CUDA, so that features kept by a caller do not hold pinned memory.
            features, *logits = (
                t.numpy().copy() if launched.event is not None else t.cpu().numpy() for t in tensors
            )
            outputs.append(Outputs(features, logits[0] if logits else None))
        start, *ends, last = launched.marks
        whole = _elapsed(start, last)
        shares = [_elapsed(start, end) / whole for end in ends]
        return Collected(outputs, shares, None if launched.event is None else whole / 1000)

    def find_taps(self, layers: Sequence[tuple[str, Pooling | None]]) -> list[Tap | InputError]:
        """Find layers by running two black images."""
        import torch

        crop = self.preprocessing.geometry.crop
        with torch.inference_mode():
            pixels = torch.zeros((2, *crop, 3), dtype=torch.uint8, device=self._device)
            batch = self._normalised(pixels)
            return find_taps(
                self._module, lambda: self._forward(self._module, batch), layers, 2, crop
            )

    def _normalised(self, pixels: Tensor) -> Tensor:
        # Pixels are channels-last, the layout CUDA convolutions prefer, so it is kept there. The
        # operations follow the order of torchvision's ToTensor and Normalize, for equal floats.
        batch = pixels.permute(0, 3, 1, 2)
        if self._device.type != "cuda":
            batch = batch.contiguous()
        return batch.float().div_(255).sub_(self._mean).div_(self._std).to(self._dtype)


class _Prepared(NamedTuple):
    pixels: Tensor
    event: Any


class _Launched(NamedTuple):
    outputs: list[list[Tensor]]
    """Features and, with a head, logits of each model."""
    marks: list[Any]
    """CPU times, or events, at the start, at the outputs of each model, and at the end."""
    event: Any


class TorchModel(NetworkModel):
    """A PyTorch model: the features and logits of a network, or one of its layers."""

    def __init__(self, network: TorchNetwork, info: ModelInfo, tap: Tap | None = None) -> None:
        super().__init__(network, info)
        self.tap = tap


def assemble(
    built: Built, spec: ModelSpec, *, device: str = "cpu", precision: str = "float32"
) -> TorchModel:
    """Move a module to a device and measure its output dimensions on one black image.

    The fingerprint is computed from the original weights, before any change of precision.
    """
    (model,) = assemble_layers(built, [spec], device=device, precision=precision)
    if isinstance(model, InputError):
        raise model
    return model


def _pretraining(built: Built, spec: ModelSpec) -> str | None:
    """What a library says about its weights; not about random ones."""
    return "none, random weights" if spec.pretrained is False else built.pretraining


def assemble_layers(
    built: Built, specs: Sequence[ModelSpec], *, device: str = "cpu", precision: str = "float32"
) -> list[TorchModel | InputError]:
    """Move a module to a device for several of its layers; an error in place of one that fails."""
    identity = (built.identity, weights_digest(built.module))
    n_parameters = count_parameters(built.module)
    network = TorchNetwork(built, device=device, precision=precision)
    layers = [(spec.layer, spec.pooling) for spec in specs if spec.layer is not None]
    try:
        taps = iter(network.find_taps(layers) if layers else [])
    except Exception as error:
        raise _cannot_run(specs[0].name, built.preprocessing, device, precision, error) from error
    models: list[TorchModel] = []
    failed: dict[str, InputError] = {}
    for spec in specs:
        tap = next(taps) if spec.layer is not None else None
        if isinstance(tap, InputError):
            failed[spec.name] = InputError(f"model {spec.name!r}: {tap}")
            continue
        parts = identity if tap is None else (*identity, f"layer {tap.layer} {tap.pool.pooling}")
        info = ModelInfo(
            name=spec.name,
            preprocessing=built.preprocessing,
            feature_dim=0,
            n_logits=None,
            parameters=n_parameters,
            fingerprint=hashlib.sha256("\n".join(parts).encode()).hexdigest(),
            pretraining=spec.pretraining or _pretraining(built, spec),
            licence=spec.licence or built.licence,
            layer=None if tap is None else tap.layer,
            pooling=None if tap is None else tap.pool.pooling,
        )
        models.append(TorchModel(network, info, tap))
    stated = {spec.name: spec.feature_dim for spec in specs}
    first, second = _run_twice(models, device, precision)
    for model, outputs, again in zip(models, first, second, strict=True):
        try:
            _require_features(model.info.name, outputs, again, precision)
            model.info = model.info.measured(outputs, stated[model.info.name])
        except InputError as error:
            failed[model.info.name] = error
    usable = {model.info.name: model for model in models}
    return [failed.get(spec.name) or usable[spec.name] for spec in specs]


def weights_digest(module: Module) -> str:
    """Compute the SHA-256 of the names, types, shapes and bytes of all weights and buffers."""
    import torch

    digest = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        tensor = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def count_parameters(module: Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def cast(module: Module, dtype: Any) -> Module:
    """Convert the weights to a precision; batch normalisation stays in float32.

    Casting once is faster than autocast, which converts the weights in every forward pass. The
    kernels of batch normalisation take half-precision inputs with float32 statistics, and rounding
    those statistics would cost accuracy for nothing.
    """
    import torch

    if dtype == torch.float32:
        return module.float()
    for part in module.modules():
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
            continue
        for tensor in (*part.parameters(recurse=False), *part.buffers(recurse=False)):
            if tensor.is_floating_point():
                tensor.data = tensor.data.to(dtype)
    return module


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Limit PyTorch to the calling thread."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def no_unpickling() -> Iterator[None]:
    """Force `torch.load` to read only tensors and plain containers, whoever calls it.

    Libraries call `torch.load` in many places, and before torch 2.6 it unpickled anything by
    default.
    """
    variable = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(variable)
    os.environ[variable] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(variable, None)
        else:
            os.environ[variable] = before


def cannot_load(spec: ModelSpec, error: BaseException, remedy: str) -> InputError:
    """Build the error for weights that a library could not download or read."""
    return InputError(
        f"model {spec.name!r}: cannot load {spec.source}: {one_line(error)}; {remedy}"
    )


def unknown_name(spec: ModelSpec, subject: str, name: str, known: list[str]) -> InputError:
    """Build the error for a name that is not among those a library knows."""
    near = did_you_mean(name, known)
    hint = f"; {near}" if near else ""
    return InputError(f"model {spec.name!r}: {subject} {name!r}{hint}")


def local_identifier(spec: ModelSpec) -> str:
    """The identifier, with a `local-dir:` path made relative to the zoo file that names it."""
    scheme, _, path = spec.identifier.partition(":")
    return f"local-dir:{spec.folder / path}" if scheme == "local-dir" else spec.identifier


def refuse_sha256(spec: ModelSpec) -> None:
    """Reject a sha256 that cannot be verified."""
    if spec.sha256 is not None:
        raise InputError(
            f"model {spec.name!r}: sha256 can be verified only for a model in a single file, not "
            f"for {spec.source}; remove it"
        )


def scaled(preprocessing: Preprocessing, spec: ModelSpec) -> Preprocessing:
    """Override a preprocessing with the input size, mean and std of a zoo file.

    A different input size keeps the ratio between the resized image and the crop.
    """
    geometry = preprocessing.geometry
    if spec.input_size is not None:
        size = spec.input_size
        height, width = (
            round(side * size / crop)
            for side, crop in zip(geometry.resize, geometry.crop, strict=True)
        )
        geometry = replace(geometry, resize=(height, width), crop=(size, size))
    return Preprocessing(geometry, spec.mean or preprocessing.mean, spec.std or preprocessing.std)


def torch_device(name: str) -> Any:
    """Return the device of a name; reject one that this machine does not have."""
    import torch

    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(
            f"unknown device {name!r}; expected one of cpu, cuda, cuda:1, mps"
        ) from error
    if device.type == "cuda":
        found = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= found:
            raise InputError(
                f"device {name!r} is not available: torch {torch.__version__} finds "
                f"{count(found, 'CUDA device')}"
            )
    elif device.type == "mps" and not torch.backends.mps.is_available():
        raise InputError(f"device {name!r} is not available: torch finds no Apple GPU")
    elif device.type not in ("cpu", "mps"):
        raise InputError(f"unknown device {name!r}; expected one of cpu, cuda, cuda:1, mps")
    return device


def _mark(stream: Any, *, timing: bool = False) -> Any:
    """Record an event on a CUDA stream; waiting for it blocks instead of spinning."""
    torch: Any = import_module("torch")
    event = torch.cuda.Event(blocking=True, enable_timing=timing)
    event.record(stream)
    return event


def _to_pinned(tensor: Tensor) -> Tensor:
    import torch

    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return host.copy_(tensor, non_blocking=True)


def _elapsed(start: Any, end: Any) -> float:
    """Time between two marks: seconds, or milliseconds between events of CUDA."""
    if isinstance(start, float):
        return float(end - start)
    return float(start.elapsed_time(end))


def _cannot_run(
    name: str, preprocessing: Preprocessing, device: str, precision: str, error: Exception
) -> InputError:
    height, width = preprocessing.geometry.crop
    return InputError(
        f"model {name!r} cannot run on an image of {height}×{width} pixels "
        f"on {device} in {precision}: {one_line(error)}"
    )


def _run_twice(
    models: Sequence[TorchModel], device: str, precision: str
) -> tuple[list[Outputs], list[Outputs]]:
    """Run a black image twice through the network of models."""
    if not models:
        return [], []
    network, name = models[0].network, models[0].info.name
    preprocessing = models[0].info.preprocessing
    black = np.zeros((1, *preprocessing.geometry.crop, 3), np.uint8)
    try:
        first, second = (
            network.collect(network.launch(network.prepare(black), models)).outputs
            for _ in range(2)
        )
    except Exception as error:
        raise _cannot_run(name, preprocessing, device, precision, error) from error
    return first, second


def _require_features(name: str, outputs: Outputs, again: Outputs, precision: str) -> None:
    """Reject outputs that are not deterministic, finite features."""
    for output in outputs:
        if output is not None and output.ndim != 2:
            raise InputError(
                f"model {name!r} returns an output of shape {output.shape}; expected (n, d)"
            )
    if not np.isfinite(outputs.features).all():
        other = "; run it in bfloat16 or float32" if precision == "float16" else ""
        raise InputError(f"model {name!r} returns NaN or infinite features in {precision}{other}")
    if not np.allclose(outputs.features, again.features, rtol=0.01, atol=0.01):
        raise InputError(f"model {name!r} returns different features each time for the same image")
