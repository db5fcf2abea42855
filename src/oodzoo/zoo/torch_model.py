"""PyTorch models: a module on a device, its features, logits, and the outputs of its layers."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from oodzoo.core.errors import InputError
from oodzoo.core.text import count, one_line
from oodzoo.core.threads import thread_seconds
from oodzoo.zoo.model import (
    Collected,
    ModelInfo,
    Network,
    NetworkModel,
    Outputs,
    Pixels,
)
from oodzoo.zoo.preprocessing import Preprocessing
from oodzoo.zoo.spec import LayerPool, ModelSpec, Pooling, choose_pool, unknown_layer

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


def split_head(whole: Module, name: str) -> Module:
    """Split off a layer of a module as its head; its input are the features."""
    import torch

    head = whole.get_submodule(name)
    parent, _, last = name.rpartition(".")
    setattr(whole.get_submodule(parent), last, torch.nn.Identity())
    return torch.nn.ModuleDict({"backbone": whole, "head": head})


def features_and_logits(module: Module, batch: Tensor) -> tuple[Tensor, Tensor | None]:
    """The forward pass of the result of :func:`split_head`; or without logits, of no head."""
    features = module["backbone"](batch).flatten(1)
    return features, module["head"](features) if "head" in module else None


class TorchNetwork(Network):
    """A PyTorch module in eval mode on a device.

    On CUDA neither `prepare` nor `launch` blocks: pixels are copied as bytes from pinned memory on
    a stream of their own, normalised on the device, and the outputs are copied back into pinned
    memory after the forward pass. A caller who launches the next batch before collecting the
    previous one keeps the device busy.
    """

    def __init__(self, built: Built, *, device: str = "cpu", precision: str = "float32") -> None:
        torch: Any = import_module("torch")
        self.device = torch_device(device)
        self.on_cpu = self.device.type == "cpu"
        if precision not in PRECISIONS:
            known = ", ".join(PRECISIONS)
            raise InputError(f"unknown precision {precision!r}; expected one of {known}")
        self._dtype = getattr(torch, precision)
        self._forward = built.forward
        self.module = cast(built.module.eval().requires_grad_(False), self._dtype)
        self.module.to(self.device)
        self._copies: Any = None
        if self.device.type == "cuda":
            self.module.to(memory_format=torch.channels_last)
            self._copies = torch.cuda.Stream(self.device)
        self._mean, self._std = (
            torch.tensor(values, device=self.device).view(1, 3, 1, 1)
            for values in (built.preprocessing.mean, built.preprocessing.std)
        )

    def one_thread(self) -> AbstractContextManager[None]:
        return one_torch_thread()

    def prepare(self, pixels: Pixels) -> _Prepared:
        import torch

        tensor = torch.from_numpy(np.require(pixels, requirements=["C", "W"]))
        if self._copies is None:
            return _Prepared(tensor.to(self.device), None)
        with torch.cuda.stream(self._copies):
            on_device = tensor.pin_memory().to(self.device, non_blocking=True)
            return _Prepared(on_device, _mark(self._copies))

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor | None]:
        """Features and logits of pixels (n, height, width, 3) on the device."""
        # Pixels are channels-last, the layout CUDA convolutions prefer, so it is kept there. The
        # operations follow the order of torchvision's ToTensor and Normalize, for equal floats.
        batch = pixels.permute(0, 3, 1, 2)
        if self.device.type != "cuda":
            batch = batch.contiguous()
        batch = batch.float().div_(255).sub_(self._mean).div_(self._std).to(self._dtype)
        return self._forward(self.module, batch)

    def launch(self, prepared: _Prepared, models: Sequence[TorchModel]) -> _Launched:
        import torch

        stream = None
        if prepared.event is not None:
            stream = torch.cuda.current_stream(self.device)
            stream.wait_event(prepared.event)
            prepared.pixels.record_stream(stream)
        mark = thread_seconds if stream is None else partial(_mark, stream, timing=True)
        with torch.inference_mode():
            start = mark()
            taps = [model.tap for model in models]
            found = run_tapped(lambda: self.forward(prepared.pixels), taps, mark=mark)
            end = mark()
            tensors = [[each for each in outputs if each is not None] for outputs, _ in found]
            marks = [start, *(each or end for _, each in found), end]
            if stream is None:
                return _Launched(tensors, marks, None)
            pinned = [
                [
                    torch.empty(t.shape, dtype=t.dtype, pin_memory=True).copy_(t, non_blocking=True)
                    for t in each
                ]
                for each in tensors
            ]
            return _Launched(pinned, marks, _mark(stream))

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
        if launched.event is None:
            whole = last - start
            return Collected(outputs, [(end - start) / whole for end in ends])
        milliseconds = start.elapsed_time(last)
        shares = [start.elapsed_time(end) / milliseconds for end in ends]
        return Collected(outputs, shares, milliseconds / 1000)


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


def assemble_layers(
    built: Built, specs: Sequence[ModelSpec], *, device: str = "cpu", precision: str = "float32"
) -> list[TorchModel | InputError]:
    """Move a module to a device for several of its layers; an error in place of one that fails.

    Output dimensions are measured on one black image. The fingerprint is computed from the original
    weights, before any change of precision.
    """
    identity = (built.identity, weights_digest(built.module))
    n_parameters = count_parameters(built.module)
    network = TorchNetwork(built, device=device, precision=precision)
    height, width = built.preprocessing.geometry.crop
    cannot_run = f"cannot run on an image of {height}×{width} pixels on {device} in {precision}: "
    try:
        taps = _taps_on_device(network, specs, (height, width))
    except Exception as error:
        raise InputError(f"model {specs[0].name!r} {cannot_run}{one_line(error)}") from error
    found: dict[str, TorchModel | InputError] = {}
    for spec, tap in zip(specs, taps, strict=True):
        if isinstance(tap, InputError):
            found[spec.name] = InputError(f"model {spec.name!r}: {tap}")
            continue
        parts = identity if tap is None else (*identity, f"layer {tap.layer} {tap.pool.pooling}")
        # what a library says about its weights is not about random ones
        pretraining = "none, random weights" if spec.pretrained is False else built.pretraining
        info = ModelInfo(
            name=spec.name,
            preprocessing=built.preprocessing,
            parameters=n_parameters,
            fingerprint=hashlib.sha256("\n".join(parts).encode()).hexdigest(),
            pretraining=spec.pretraining or pretraining,
            licence=spec.licence or built.licence,
            layer=None if tap is None else tap.layer,
            pooling=None if tap is None else tap.pool.pooling,
        )
        found[spec.name] = TorchModel(network, info, tap)
    models = [model for model in found.values() if isinstance(model, TorchModel)]
    if not models:
        return list(found.values())
    black = np.zeros((1, height, width, 3), np.uint8)
    try:
        first, second = (
            network.collect(network.launch(network.prepare(black), models)).outputs
            for _ in range(2)
        )
    except Exception as error:
        raise InputError(f"model {models[0].info.name!r} {cannot_run}{one_line(error)}") from error
    stated = {spec.name: spec.feature_dim for spec in specs}
    for model, outputs, again in zip(models, first, second, strict=True):
        name = model.info.name
        try:
            _require_features(name, outputs, again, precision)
            model.info = model.info.measured(outputs, stated[name])
        except InputError as error:
            found[name] = error
    return [found[spec.name] for spec in specs]


def _taps_on_device(
    network: TorchNetwork, specs: Sequence[ModelSpec], crop: tuple[int, int]
) -> list[Tap | InputError | None]:
    """Find layers by running two black images."""
    import torch

    with torch.inference_mode():
        pixels = torch.zeros((2, *crop, 3), dtype=torch.uint8, device=network.device)
        layers = [(spec.layer, spec.pooling) for spec in specs]
        return find_taps(network.module, lambda: network.forward(pixels), layers, 2, crop)


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


def torch_device(name: str) -> Any:
    """Return the device of a name; reject one that this machine does not have."""
    import torch

    unknown = InputError(f"unknown device {name!r}; expected one of cpu, cuda, cuda:1, mps")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise unknown from error
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
        raise unknown
    return device


def _mark(stream: Any, *, timing: bool = False) -> Any:
    """Record an event on a CUDA stream; waiting for it blocks instead of spinning."""
    torch: Any = import_module("torch")
    event = torch.cuda.Event(blocking=True, enable_timing=timing)
    event.record(stream)
    return event


# --- layers ---------------------------------------------------------------------------------------

_CLASS_TOKENS = ("cls_token", "class_token", "class_embedding", "cls")
"""Names of the parameter with the class token in timm, torchvision, transformers and open_clip."""

_MOST_OF = 0.8
"""Share of the layers of a module in one of its parts, above which the part is looked into."""


@dataclass(frozen=True)
class Tap:
    """A module of a network whose output is taken, and how it is pooled.

    A module that a forward pass calls several times counts with its last call.
    """

    layer: str
    module: Module
    calls: int
    pool: LayerPool


class _Reached(Exception):
    """All outputs are there; the rest of the forward pass is not needed."""


def run_tapped(
    forward: Callable[[], tuple[Tensor, Tensor | None]],
    taps: Sequence[Tap | None],
    *,
    stops: bool = True,
    mark: Callable[[], Any] = time.perf_counter,
) -> list[tuple[tuple[Tensor, Tensor | None], Any]]:
    """Run a forward pass; return the outputs of each tap, and what `mark` returned with them.

    Outputs are features and logits in float32. Those of a tap are a pooled layer without logits;
    None stands for the outputs of the network, which are not marked. If there is no None, the
    forward pass ends after the last tap, unless `stops` is false.
    """
    stops &= None not in taps
    used = [tap for tap in taps if tap is not None]
    left = [tap.calls for tap in used]
    found: list[Any] = [None] * len(used)

    def keep(at: int, output: Any) -> None:
        left[at] -= 1
        if left[at] == 0:
            found[at] = (used[at].pool(_tensor(output)), None), mark()
            if stops and not any(left):
                raise _Reached

    outputs: Any = None
    with _hooks([tap.module for tap in used], keep), suppress(_Reached):
        features, logits = forward()
        outputs = features.float(), None if logits is None else logits.float()
    layers = iter(found)
    return [(outputs, None) if tap is None else next(layers) for tap in taps]


def find_taps(
    module: Module,
    forward: Callable[[], Any],
    layers: Sequence[tuple[str | None, Pooling | None]],
    n: int,
    crop: tuple[int, int],
) -> list[Tap | InputError | None]:
    """Find layers of a network, and how their outputs are pooled.

    `forward` runs the forward pass on `n` images of the size `crop`. A layer that is None stands
    for the features of the network. In place of one that cannot be used, there is an error whose
    message continues "model 'x': ".
    """
    if not any(name is not None for name, _ in layers):
        return [None] * len(layers)
    known = named_layers(module)
    found = [name for name, _ in layers if name in known]
    seen: dict[str | None, list[Any]] = {name: [] for name in found}

    def note(at: int, output: Any) -> None:
        tensor = _tensor(output)
        shape = None if tensor is None else (tuple(tensor.shape), tensor.dtype.is_floating_point)
        seen[found[at]].append(shape)

    with _hooks([known[name] for name in found if name is not None], note):
        forward()
    has_class_token = any(
        name.rpartition(".")[2] in _CLASS_TOKENS for name, _ in module.named_parameters()
    )

    def tap(name: str, pooling: Pooling | None) -> Tap:
        if name not in known:
            raise unknown_layer(name, list(known), stages(known[""]))
        calls = seen[name]
        objection = None
        if not calls:
            objection = "is not called in the forward pass"
        elif calls[-1] is None:
            objection = "gives no tensor"
        elif not calls[-1][1]:
            objection = "gives integers, not features"
        if objection:
            raise InputError(f"layer {name!r} {objection}; choose another one")
        try:
            pool = choose_pool(calls[-1][0], n, crop, pooling, class_token=has_class_token)
        except InputError as error:
            raise InputError(f"layer {name!r} {error}") from error
        return Tap(name, known[name], len(calls), pool)

    taps: list[Tap | InputError | None] = []
    for name, pooling in layers:
        try:
            taps.append(None if name is None else tap(name, pooling))
        except InputError as error:
            taps.append(error)
    return taps


def named_layers(module: Module) -> dict[str, Module]:
    """Return all modules by the name within their library's model, which itself is ''."""
    names = dict(module.named_modules())
    backbone = names.get("backbone")
    if backbone is None or set(dict(module.named_children())) - {"backbone", "head"}:
        return names
    return dict(backbone.named_modules())  # split from its head by the source


def stages(backbone: Module) -> list[str]:
    """List the blocks or stages of a backbone: the parts of the part with most of its layers.

    Only parts with layers of their own are listed; if several have two layers or more, only these.
    Two parts that are not in a list, such as features and classifier, are not blocks.
    """
    import torch

    def n_layers(module: Module) -> int:
        """Count the modules that have parameters of their own."""
        return sum(bool(list(part.parameters(recurse=False))) for part in module.modules())

    name, module = "", backbone
    while True:
        sizes = {part: n_layers(child) for part, child in module.named_children()}
        sizes = {part: size for part, size in sizes.items() if size}
        blocks = [part for part, size in sizes.items() if size > 1]
        parts = blocks if len(blocks) > 1 else list(sizes)
        if not blocks:
            break
        largest = max(sizes, key=lambda part: sizes[part])
        fewest = 2 if isinstance(module, torch.nn.ModuleList | torch.nn.Sequential) else 3
        if len(parts) >= fewest and sizes[largest] <= _MOST_OF * sum(sizes.values()):
            break
        name, module = f"{name}{largest}.", getattr(module, largest)
    return [f"{name}{part}" for part in parts]


def usable_stages(
    module: Module, forward: Callable[[], Any], n: int, crop: tuple[int, int]
) -> list[str]:
    """List the blocks or stages of a network whose outputs can be pooled."""
    names = stages(named_layers(module)[""])
    try:
        taps = find_taps(module, forward, [(name, None) for name in names], n, crop)
    except Exception:  # a module that cannot run without weights: loading will tell
        return names
    return [name for name, tap in zip(names, taps, strict=True) if isinstance(tap, Tap)]


@contextmanager
def _hooks(modules: Sequence[Module], call: Callable[[int, Any], None]) -> Iterator[None]:
    """Call a function with the position of a module and its output, whenever it is called."""

    def hook(at: int) -> Callable[[Module, Any, Any], None]:
        return lambda _, __, output: call(at, output)

    handles = [module.register_forward_hook(hook(at)) for at, module in enumerate(modules)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _tensor(output: Any) -> Tensor | None:
    """The tensor that a module returned; the first one of several."""
    import torch

    if isinstance(output, torch.Tensor):
        return output
    if isinstance(output, Mapping):
        output = list(output.values())
    if isinstance(output, list | tuple):
        return next((each for each in output if isinstance(each, torch.Tensor)), None)
    return None
