"""Sources of PyTorch models: loaded, trained, and counted without weights.

Random weights are drawn so that they can be drawn again. Sizes of models are remembered in
oodzoo's cache folder.
"""

from __future__ import annotations

import hashlib
import json
import logging
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, ClassVar

from oodzoo.core.errors import InputError
from oodzoo.core.packages import optional_package
from oodzoo.core.remote.cache import cache_folder
from oodzoo.core.text import one_line
from oodzoo.zoo.layers_torch import Tap, find_taps, run_tapped
from oodzoo.zoo.model import Model, Trainable
from oodzoo.zoo.preprocessing import Preprocessing
from oodzoo.zoo.sources import ModelSource, get_source
from oodzoo.zoo.spec import ModelSpec, local_path
from oodzoo.zoo.torch_model import (
    Built,
    Module,
    Tensor,
    assemble,
    assemble_layers,
    count_parameters,
)
from oodzoo.zoo.torch_to_onnx import write_features
from oodzoo.zoo.weights import Measured


class TorchSource(ModelSource):
    """A source that builds modules of PyTorch; all else is the same for all of them."""

    takes_untrained: ClassVar[bool] = True

    @abstractmethod
    def build(self, spec: ModelSpec, *, pretrained: bool = True) -> Built:
        """Build a module on the CPU, with its weights unless only shapes are wanted."""

    def load(self, spec: ModelSpec, *, device: str, precision: str) -> Model:
        return assemble(self.build(spec), spec, device=device, precision=precision)

    def load_layers(
        self, specs: Sequence[ModelSpec], *, device: str, precision: str
    ) -> list[Model | InputError]:
        built = self.build(specs[0])
        return [*assemble_layers(built, specs, device=device, precision=precision)]

    def trainable(self, spec: ModelSpec, preprocessing: Preprocessing) -> Trainable:
        return trainable(self.build(spec), spec, preprocessing)

    def trainable_network(self, specs: Sequence[ModelSpec], preprocessing: Preprocessing) -> Module:
        return trainable_network(self.build(specs[0]), specs)


def repeatable(spec: ModelSpec) -> AbstractContextManager[None]:
    """Draw the same weights each time for a model that is not pre-trained."""
    return seeded(spec) if spec.pretrained is False else nullcontext()


@contextmanager
def seeded(spec: ModelSpec) -> Iterator[None]:
    """Draw random weights with a seed that is the name of a model, without the name of a layer.

    The state of PyTorch's generator is restored.
    """
    import torch

    digest = hashlib.sha256(spec.name.partition("@")[0].encode()).digest()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int.from_bytes(digest[:4], "big"))
        yield


# --- training -------------------------------------------------------------------------------------


def trainable(built: Built, spec: ModelSpec, preprocessing: Preprocessing) -> Trainable:
    """The module of one model, in float32 and in eval mode."""
    network, (dim,) = _network(built, [spec], single=True)
    crop = preprocessing.geometry.crop

    def write(file: Path) -> None:
        write_features(network, crop, file, name=spec.name)

    return Trainable(spec.name, network, preprocessing, dim, write)


def trainable_network(built: Built, specs: Sequence[ModelSpec]) -> Module:
    """The module of models that are layers of one network; it returns a tuple of features."""
    network, _ = _network(built, specs, single=False)
    return network


def _network(built: Built, specs: Sequence[ModelSpec], *, single: bool) -> tuple[Module, list[int]]:
    """A module that returns features, and the dimension of those of each model."""
    torch: Any = import_module("torch")

    class Features(torch.nn.Module):  # type: ignore[misc]
        """Features of a network or of its layers."""

        def __init__(self, taps: Sequence[Tap | None]) -> None:
            super().__init__()
            self.network = built.module
            self.taps = tuple(taps)

        def forward(self, batch: Tensor) -> Tensor | tuple[Tensor, ...]:
            tapped = [tap for tap in self.taps if tap is not None]
            # export and tracing cannot stop in the middle of a forward pass
            recorded = torch.compiler.is_compiling() or torch.jit.is_tracing()
            outputs, pooled, _ = run_tapped(
                lambda: built.forward(self.network, batch),
                tapped,
                whole=recorded or len(tapped) < len(self.taps),
            )
            layers = iter(pooled)
            features = tuple(
                outputs[0].float() if tap is None and outputs is not None else next(layers)
                for tap in self.taps
            )
            return features[0] if single else features

    built.module.float().eval().requires_grad_(True)
    batch = torch.zeros((2, 3, *built.preprocessing.geometry.crop))
    try:
        network = Features(_taps(built, specs, batch)).eval()
        features = network(batch)
        outputs = [features] if single else list(features)
        _freeze_unused(network, outputs)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"model {specs[0].name!r} cannot be trained: {one_line(error)}") from error
    return network, [output.shape[1] for output in outputs]


def _taps(built: Built, specs: Sequence[ModelSpec], batch: Tensor) -> list[Tap | None]:
    """The layer of each model; None for the features of the network."""
    import torch

    layers = [(spec.layer, spec.pooling) for spec in specs if spec.layer is not None]
    with torch.no_grad():
        found = iter(
            find_taps(
                built.module,
                lambda: built.forward(built.module, batch),
                layers,
                len(batch),
                built.preprocessing.geometry.crop,
            )
            if layers
            else []
        )
    taps: list[Tap | None] = []
    for spec in specs:
        tap = next(found) if spec.layer is not None else None
        if isinstance(tap, InputError):
            raise InputError(f"model {spec.name!r}: {tap}")
        taps.append(tap)
    return taps


def _freeze_unused(module: Module, outputs: Sequence[Tensor]) -> None:
    """Freeze weights that the features do not depend on, such as those of a classifier."""
    import torch

    weights = list(module.parameters())
    total = sum(output.sum() for output in outputs)
    gradients = torch.autograd.grad(total, weights, allow_unused=True)
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.requires_grad_(gradient is not None)


# --- sizes ----------------------------------------------------------------------------------------


def build_empty(spec: ModelSpec) -> Built:
    """Build a PyTorch model whose tensors have shapes but no content."""
    source = get_source(spec.kind)
    if not isinstance(source, TorchSource):
        raise InputError(f"model {spec.name!r}: {spec.source} is not a PyTorch model")
    with on_meta_device(spec):
        return source.build(spec, pretrained=False)


@contextmanager
def on_meta_device(spec: ModelSpec) -> Iterator[None]:
    """Create tensors without content, and suppress the messages about missing weights."""
    torch = optional_package("torch", extra="torch", purpose=f"model {spec.name!r}")
    before = logging.root.manager.disable
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)


def measure_module(module: Module) -> Measured:
    """Count the parameters of a module and the bytes of its weights."""
    tensors = module.state_dict().values()
    return Measured(
        count_parameters(module), sum(each.numel() * each.element_size() for each in tensors)
    )


def remembered(
    package: str, spec: ModelSpec, name: str, compute: Callable[[], Measured]
) -> Measured:
    """Return the size of a model that a version of a package defines; computed once.

    The file in the cache folder has a line for each model, so several processes can append to it.
    Models in local files are not remembered: the files may change.
    """
    if local_path(spec) is not None or ":" in spec.identifier:
        return compute()
    key = name if spec.input_size is None else f"{name} {spec.input_size}"
    key += spec.variant
    try:
        path = cache_folder() / "sizes" / f"{package}-{version(package)}.jsonl"
    except PackageNotFoundError:
        return compute()  # which says what to install
    known = _read(path)
    if key not in known:
        known[key] = compute()
        line = json.dumps([key, known[key].parameters, known[key].size])
        with suppress(OSError):  # it only saves time
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
    return known[key]


@cache
def _read(path: Path) -> dict[str, Measured]:
    known: dict[str, Measured] = {}
    with suppress(OSError, UnicodeDecodeError):
        for line in path.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):  # a line that a stopped process has not finished
                entry: Any = json.loads(line)
                match entry:
                    case [str(name), int(parameters), int() | None as size]:
                        known[name] = Measured(parameters, size)
    return known
