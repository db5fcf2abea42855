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
from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, ClassVar

from oodzoo.core.errors import InputError
from oodzoo.core.packages import import_torchvision, optional_package, torchvision_installed
from oodzoo.core.remote.cache import cache_folder
from oodzoo.core.text import did_you_mean, one_line
from oodzoo.zoo.hub import hub_access, hub_card, hub_weights, local_weights
from oodzoo.zoo.model import Model, ModelSize, Trainable, Weights, only_one
from oodzoo.zoo.preprocessing import Preprocessing
from oodzoo.zoo.sources import ModelSource, local_path, path_of
from oodzoo.zoo.spec import ModelSpec
from oodzoo.zoo.torch_model import (
    Built,
    Module,
    Tap,
    Tensor,
    assemble_layers,
    count_parameters,
    find_taps,
    run_tapped,
    usable_stages,
)
from oodzoo.zoo.torch_to_onnx import write_outputs


class TorchSource(ModelSource):
    """A source that builds modules of PyTorch; all else is the same for all of them."""

    takes_untrained: ClassVar[bool] = True

    @abstractmethod
    def build(self, spec: ModelSpec, *, pretrained: bool = True) -> Built:
        """Build a module on the CPU, with its weights unless only shapes are wanted."""

    def load(self, spec: ModelSpec, *, device: str, precision: str) -> Model:
        return only_one(self.load_layers([spec], device=device, precision=precision))

    def load_layers(
        self, specs: Sequence[ModelSpec], *, device: str, precision: str
    ) -> list[Model | InputError]:
        built = self.build(specs[0])
        return [*assemble_layers(built, specs, device=device, precision=precision)]

    def layers(self, spec: ModelSpec) -> list[str]:
        built = self.build_empty(spec)
        module, crop = built.module.eval(), built.preprocessing.geometry.crop
        with on_meta_device(spec):
            import torch

            batch = torch.empty((2, 3, *crop))
            with torch.inference_mode():
                names = usable_stages(module, lambda: built.forward(module, batch), 2, crop)
        if not names:
            raise InputError(
                f"model {spec.name!r}: found no blocks or stages for @all; name layers instead"
            )
        return names

    def trainable(self, spec: ModelSpec, preprocessing: Preprocessing) -> Trainable:
        network, (dim,) = _features_module(self.build(spec), [spec], single=True)
        crop = preprocessing.geometry.crop

        def write(file: Path) -> None:
            write_outputs(network, crop, file, ["features"], name=spec.name)

        return Trainable(spec.name, network, preprocessing, dim, write)

    def trainable_network(self, specs: Sequence[ModelSpec], preprocessing: Preprocessing) -> Module:
        return _features_module(self.build(specs[0]), specs, single=False)[0]

    def build_empty(self, spec: ModelSpec) -> Built:
        """Build a module whose tensors have shapes but no content."""
        with on_meta_device(spec):
            return self.build(spec, pretrained=False)

    def measured(self, spec: ModelSpec, package: str) -> ModelSize:
        """Count the parameters of a model that a version of a package defines."""
        return remembered(
            package, spec, spec.identifier, lambda: measure_module(self.build_empty(spec).module)
        )


class HubSource(ModelSource):
    """A source whose models are on the Hugging Face Hub, or in local folders."""

    module: ClassVar[str]
    """The library to import."""
    marker: ClassVar[str] = "config.json"
    """A file of every folder with a model."""

    @abstractmethod
    def repository(self, spec: ModelSpec) -> tuple[str, tuple[str, ...]]:
        """The repository of a model, and the files in it that may be loaded."""

    def library(self, purpose: str) -> Any:
        """Import the library; `purpose` begins the error if a package is missing."""
        assert self.extra is not None
        optional_package("torch", extra=self.extra, purpose=purpose)
        # transformers imports it if installed, even if it is broken
        if "transformers" not in self.packages or torchvision_installed():
            import_torchvision(extra=self.extra, purpose=purpose)
        return optional_package(self.module, extra=self.extra, purpose=purpose)

    def access(self, spec: ModelSpec, *, needed: bool = True) -> AbstractContextManager[None]:
        """Load a model that may be on the hub, see :func:`oodzoo.zoo.hub.hub_access`."""
        return hub_access(spec, is_local=self.local_path(spec) is not None, needed=needed)

    def checkpoint(self, spec: ModelSpec, objection: str) -> str:
        """The name on the hub, or the folder here; `objection` is to one that has no model."""
        folder = self.local_path(spec)
        if folder is None:
            if Path(spec.identifier).is_dir():  # libraries would load it
                raise InputError(
                    f"model {spec.name!r}: {spec.source} is a name on the hub, but there is a "
                    f"folder {spec.identifier!r} here; write {spec.kind}/./{spec.identifier} for "
                    "it, or work in another folder"
                )
            return spec.identifier
        if not self.is_model(folder):
            raise InputError(f"model {spec.name!r}: {str(folder)!r} {objection}")
        return str(folder)

    def local_path(self, spec: ModelSpec) -> Path | None:
        return path_of(spec, spec.identifier)

    def is_model(self, path: Path) -> bool:
        return (path / self.marker).is_file()

    def files(self, path: Path) -> list[Path]:
        """The weights of a file or folder, with what describes them; never a pickle."""
        found = sorted(path.iterdir()) if path.is_dir() else [path]
        return [file for file in found if file.suffix in (".json", ".safetensors", ".txt")]

    def moved(self, spec: ModelSpec, path: str) -> str:
        return f"./{path}"

    def licence(self, spec: ModelSpec) -> str | None:
        if self.local_path(spec) is not None:
            return None
        return hub_card(self.repository(spec)[0]).licence

    def weights(self, spec: ModelSpec) -> Weights:
        if (path := self.local_path(spec)) is not None:
            return local_weights(path)
        repository, files = self.repository(spec)
        return hub_weights(repository, files, hub_card(repository).size)


def local_dir(spec: ModelSpec) -> Path | None:
    """The folder of an identifier `local-dir:<folder>`, relative to the zoo file that names it."""
    scheme, _, path = spec.identifier.partition(":")
    return spec.folder / path if scheme == "local-dir" else None


def refuse_sha256(spec: ModelSpec) -> None:
    """Reject a sha256 that cannot be verified."""
    if spec.sha256 is not None:
        raise InputError(
            f"model {spec.name!r}: sha256 can be verified only for a model in a single file, not "
            f"for {spec.source}; remove it"
        )


def unknown_name(spec: ModelSpec, subject: str, name: str, known: list[str]) -> InputError:
    """Build the error for a name that is not among those a library knows."""
    near = did_you_mean(name, known)
    hint = f"; {near}" if near else ""
    return InputError(f"model {spec.name!r}: {subject} {name!r}{hint}")


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


def _features_module(
    built: Built, specs: Sequence[ModelSpec], *, single: bool
) -> tuple[Module, list[int]]:
    """A module that returns features, in float32 and in eval mode; the dimension of each model's.

    It returns a tuple, or one tensor of a single model. Weights that the features do not depend on,
    such as those of a classifier, are frozen.
    """
    torch: Any = import_module("torch")
    module, crop = built.module, built.preprocessing.geometry.crop
    module.float().eval().requires_grad_(True)
    batch = torch.zeros((2, 3, *crop))
    layers = [(spec.layer, spec.pooling) for spec in specs]

    class Features(torch.nn.Module):  # type: ignore[misc]
        """Features of a network or of its layers."""

        def __init__(self) -> None:
            super().__init__()
            self.network = module
            self.taps: list[Tap | None] = []
            with torch.no_grad():
                found = find_taps(module, lambda: built.forward(module, batch), layers, 2, crop)
            for spec, tap in zip(specs, found, strict=True):
                if isinstance(tap, InputError):
                    raise InputError(f"model {spec.name!r}: {tap}")
                self.taps.append(tap)

        def forward(self, batch: Tensor) -> Tensor | tuple[Tensor, ...]:
            # export and tracing cannot stop in the middle of a forward pass
            recorded = torch.compiler.is_compiling() or torch.jit.is_tracing()
            found = run_tapped(
                lambda: built.forward(self.network, batch), self.taps, stops=not recorded
            )
            features = tuple(outputs[0] for outputs, _ in found)
            return features[0] if single else features

    try:
        network = Features().eval()
        found = network(batch)
        outputs = [found] if single else list(found)
        weights = list(network.parameters())
        total = sum(output.sum() for output in outputs)
        gradients = torch.autograd.grad(total, weights, allow_unused=True)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"model {specs[0].name!r} cannot be trained: {one_line(error)}") from error
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.requires_grad_(gradient is not None)
    return network, [output.shape[1] for output in outputs]


# --- sizes ----------------------------------------------------------------------------------------


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


def measure_module(module: Module) -> ModelSize:
    """Count the parameters of a module and the bytes of its weights."""
    tensors = module.state_dict().values()
    return ModelSize(
        count_parameters(module), sum(each.numel() * each.element_size() for each in tensors)
    )


def remembered(
    package: str, spec: ModelSpec, name: str, compute: Callable[[], ModelSize]
) -> ModelSize:
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
def _read(path: Path) -> dict[str, ModelSize]:
    known: dict[str, ModelSize] = {}
    with suppress(OSError, UnicodeDecodeError):
        for line in path.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):  # a line that a stopped process has not finished
                entry: Any = json.loads(line)
                match entry:
                    case [str(name), int(parameters), int() | None as size]:
                        known[name] = ModelSize(parameters, size)
    return known
