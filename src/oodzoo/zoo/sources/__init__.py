"""Sources of models: what a source can do, and the registry by kind.

The kind is the first part of a spec `<kind>/<identifier>`. A source of oodzoo is a file of this
folder and a line of :data:`SOURCES`. One of another package is an entry point of the group
``oodzoo.sources``, whose name is the kind and whose value is a :class:`ModelSource` or a subclass.
Each is imported when its kind is first used.
"""

from __future__ import annotations

import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import ClassVar

from oodzoo.core.errors import InputError
from oodzoo.core.io import require_folder_name
from oodzoo.core.text import did_you_mean, one_line
from oodzoo.zoo.model import Model, ModelSize, Module, Trainable, Weights, only_one
from oodzoo.zoo.preprocessing import Preprocessing
from oodzoo.zoo.prompts import TextTower
from oodzoo.zoo.spec import ModelSpec, read_geometry

SOURCES = {
    "hf": "hf:HuggingFaceSource",
    "onnx": "onnx:OnnxSource",
    "open_clip": "open_clip:OpenClipSource",
    "sentence-transformers": "sentence_transformers:SentenceSource",
    "timm": "timm:TimmSource",
    "torch_hub": "torch_hub:TorchHubSource",
    "torchvision": "torchvision:TorchvisionSource",
}
"""File and class of each source of oodzoo."""

GROUP = "oodzoo.sources"
"""Entry-point group of the sources of other packages."""
_OURS = "oodzoo"


class ModelSource(ABC):
    """A source of models.

    A subclass sets `kind` and defines `load`; all else is optional.

    Attributes
    ----------
    kind : str
        The first part of its specs, and the name of its entry point.
    packages : tuple of str
        Distributions that compute the features. Their versions are recorded in the store.
    extra : str, optional
        The extra of oodzoo that installs the packages; None if nothing must be installed.
    precision : str, optional
        The only precision it computes in; None if the user chooses one.
    takes_arguments : bool
        Whether `load` uses `spec.arguments`.
    takes_untrained : bool
        Whether `load` uses `spec.pretrained`.
    takes_geometry : bool
        Whether `load` uses `spec.geometry`.
    """

    kind: ClassVar[str]
    packages: ClassVar[tuple[str, ...]] = ()
    extra: ClassVar[str | None] = None
    precision: ClassVar[str | None] = None
    takes_arguments: ClassVar[bool] = False
    takes_untrained: ClassVar[bool] = False
    takes_geometry: ClassVar[bool] = False

    @abstractmethod
    def load(self, spec: ModelSpec, *, device: str, precision: str) -> Model:
        """Load a model onto a device: "cpu", "cuda", "cuda:1" or "mps".

        The precision is "float32", "bfloat16" or "float16". Raise an
        :class:`oodzoo.InputError` if the model cannot be loaded.
        """

    def load_layers(
        self, specs: Sequence[ModelSpec], *, device: str, precision: str
    ) -> list[Model | InputError]:
        """Load models that are layers of one network; in place of one that fails, an error.

        A source that does not define this has no layers: `spec.layer` is None for all its models.
        """
        models: list[Model | InputError] = []
        for spec in specs:
            try:
                if spec.layer is not None:
                    raise InputError(
                        f"model {spec.name!r}: a model of the kind {self.kind} has no layers to "
                        f"choose from; remove '@{spec.layer}'"
                    )
                models.append(self.load(spec, device=device, precision=precision))
            except InputError as error:
                models.append(error)
        return models

    def layers(self, spec: ModelSpec) -> list[str]:
        """The layers that `@all` stands for, besides the features of a model."""
        raise InputError(f"model {spec.name!r}: {spec.source} is not a PyTorch model")

    def trainable(self, spec: ModelSpec, preprocessing: Preprocessing) -> Trainable:
        """Load a model as a module of PyTorch that can be trained; by default, it cannot."""
        raise _cannot_be_trained(spec)

    def trainable_network(self, specs: Sequence[ModelSpec], preprocessing: Preprocessing) -> Module:
        """Load models that are layers of one network as one module, which returns a tuple."""
        raise _cannot_be_trained(specs[0])

    def text_tower(self, spec: ModelSpec, *, device: str) -> TextTower | None:
        """Load the text tower of a CLIP-like model, for zero-shot predictions; None without one."""
        return None

    def names(self, pattern: str) -> list[str]:
        """The names of the models that a pattern with wildcards may match."""
        raise InputError(
            f"'{self.kind}/{pattern}': the source {self.kind} cannot list its models; name them"
        )

    def licence(self, spec: ModelSpec) -> str | None:
        """The licence of a model that is not loaded; None if it is unknown."""
        return None

    def measure(self, spec: ModelSpec) -> ModelSize | None:
        """Count the parameters of a model without downloading weights; None if that is unknown."""
        return None

    def weights(self, spec: ModelSpec) -> Weights | None:
        """Where the weights of a model are, or will be; None if that is unknown."""
        return None

    def local_path(self, spec: ModelSpec) -> Path | None:
        """The local file or folder that a spec names; None for a name on a hub."""
        return None

    def is_model(self, path: Path) -> bool:
        """Whether a path that wildcards match is a model."""
        return path.exists()

    def portable(self, spec: ModelSpec) -> str:
        """The source of a model; of a local file or folder, only its name."""
        local = self.local_path(spec)
        return spec.source if local is None else f"{spec.kind}/{local.absolute().name}"

    def files(self, path: Path) -> Sequence[Path] | None:
        """The files of a local model that a predictor copies; None if it must not be saved."""
        return None

    def moved(self, spec: ModelSpec, path: str) -> str:
        """The identifier of a local model if it were at another path."""
        return path


def _cannot_be_trained(spec: ModelSpec) -> InputError:
    return InputError(
        f"model {spec.name!r}: a model of the kind {spec.kind} cannot be trained; only ONNX files "
        "and image models of PyTorch can"
    )


# --- registry -------------------------------------------------------------------------------------


@cache
def _points() -> dict[str, EntryPoint]:
    """Where the source of each kind is. Another package cannot replace one of ours."""
    points = {
        kind: EntryPoint(kind, f"oodzoo.zoo.sources.{place}", GROUP)
        for kind, place in SOURCES.items()
    }
    found = (each for each in entry_points(group=GROUP) if _package(each) != _OURS)
    for point in sorted(found, key=lambda point: (point.name, _package(point))):
        known = points.setdefault(point.name, point)
        if known is not point:
            warnings.warn(
                f"the source of models {point.name!r} of the package {_package(point)!r} is "
                f"ignored: {_package(known)!r} has one of that name",
                stacklevel=2,
            )
    return points


def _package(point: EntryPoint) -> str:
    return _OURS if point.dist is None else point.dist.name


def source_kinds() -> tuple[str, ...]:
    """Return the kinds of all sources: ours first, then those of other packages, sorted.

    Examples
    --------
    >>> "timm" in source_kinds()
    True
    """
    return tuple(_points())


@cache
def get_source(kind: str) -> ModelSource:
    """Return the source of a kind, importing it.

    Examples
    --------
    >>> get_source("timm").packages
    ('timm', 'torch')
    """
    points = _points()
    if kind not in points:
        hint = did_you_mean(kind, points) or f"expected one of {', '.join(points)}"
        raise InputError(f"unknown source {kind!r}; {hint}")
    what = f"the source of models {kind!r} of the package {_package(points[kind])!r}"
    try:
        loaded = points[kind].load()
        source = loaded() if isinstance(loaded, type) else loaded
    except Exception as error:
        raise InputError(
            f"{what} cannot be loaded: {type(error).__name__}: {one_line(error)}; update or "
            "uninstall the package"
        ) from error
    if not isinstance(source, ModelSource):
        raise InputError(f"{what} is not a ModelSource, but {repr(source)[:60]}")
    if getattr(source, "kind", None) != kind:
        raise InputError(f"{what} has the kind {getattr(source, 'kind', None)!r}; they must agree")
    return source


def packages_of(kind: str) -> tuple[str, ...]:
    """Return the distributions that compute the features of a source, as far as installed."""
    package, installed = _package(_points()[kind]), []
    for name in (*get_source(kind).packages, *(() if package == _OURS else (package,))):
        try:
            version(name)
            installed.append(name)
        except PackageNotFoundError:
            pass
    return tuple(dict.fromkeys(installed))


def extras_of(specs: Iterable[ModelSpec]) -> set[str]:
    """Return the extras of oodzoo that install what models need."""
    return {extra for spec in specs if (extra := get_source(spec.kind).extra) is not None}


# --- loading --------------------------------------------------------------------------------------


def load_model(spec: ModelSpec, *, device: str = "cpu", precision: str = "float32") -> Model:
    """Load a model with its weights, ready to run on a device."""
    return only_one(load_network([spec], device=device, precision=precision))


def load_network(
    specs: Sequence[ModelSpec], *, device: str, precision: str
) -> list[Model | InputError]:
    """Load models that are layers of one network; in place of one that fails, an error.

    An error of another package names the package.
    """
    spec = specs[0]
    source, package = get_source(spec.kind), _package(_points()[spec.kind])
    what = f"model {spec.name!r}: the source {spec.kind!r} of the package {package!r}"
    try:
        models = source.load_layers(specs, device=device, precision=precision)
    except Exception as error:
        if package == _OURS or isinstance(error, InputError):
            raise
        raise InputError(f"{what} failed: {type(error).__name__}: {one_line(error)}") from error
    for model in models:
        if not isinstance(model, Model | InputError):
            raise InputError(f"{what} returned {repr(model)[:60]} instead of a Model")
    return models


def load_trainable(spec: ModelSpec, preprocessing: Preprocessing) -> Trainable:
    """Load a model as a module that can be trained.

    Raises
    ------
    InputError
        If its source has no weights that PyTorch can train, or an ONNX file has an operator that
        cannot be converted.
    """
    return get_source(spec.kind).trainable(spec, preprocessing)


def load_trainable_network(specs: Sequence[ModelSpec], preprocessing: Preprocessing) -> Module:
    """Load models that are layers of one network as a single module, as :func:`load_trainable`.

    The module maps a normalised batch to a tuple of features, one for each of the models.
    """
    return get_source(specs[0].kind).trainable_network(specs, preprocessing)


# --- specs ----------------------------------------------------------------------------------------


def local_path(spec: ModelSpec) -> Path | None:
    """The local folder or file that the source of a model names; None for a hub."""
    return get_source(spec.kind).local_path(spec) if spec.kind in source_kinds() else None


def portable_source(spec: ModelSpec) -> str:
    """The source of a model; of a local folder or file, only its name."""
    return get_source(spec.kind).portable(spec) if spec.kind in source_kinds() else spec.source


def onnx_source(path: str) -> str:
    """The source of an ONNX file.

    Examples
    --------
    >>> onnx_source("nets/a.onnx"), onnx_source("./a.onnx"), onnx_source("ONNX/a.onnx")
    ('onnx/nets/a.onnx', 'onnx/a.onnx', 'onnx/a.onnx')
    """
    return "onnx/" + re.sub(r"^(\./|onnx/)", "", path, flags=re.IGNORECASE)


def check_spec(spec: ModelSpec, context: str) -> ModelSpec:
    """Reject an unknown source, a name that cannot be a folder, or a wrong std or geometry."""
    if spec.kind not in source_kinds() or not spec.identifier:
        is_onnx = spec.source.lower().endswith(".onnx")
        hint = f"; for this file, write {onnx_source(spec.source)}" if is_onnx else ""
        raise InputError(
            f"{context}: the source {spec.source!r} is not <kind>/<name> with a kind of "
            f"{', '.join(source_kinds())}{hint}"
        )
    source = get_source(spec.kind)
    for key, taken in (
        ("arguments", source.takes_arguments),
        ("pretrained", source.takes_untrained),
        ("geometry", source.takes_geometry),
    ):
        if getattr(spec, key) is not None and not taken:
            raise InputError(
                f"{context}: the source {spec.source!r} takes no {key}: a model of the kind "
                f"{spec.kind} is loaded as it was saved; remove the key"
            )
    if spec.geometry is not None:
        read_geometry(spec.geometry, context)
    require_folder_name(spec.name, context)
    if spec.std is not None and min(spec.std) <= 0:
        raise InputError(f"{context}: std must be positive, got {list(spec.std)}")
    return spec


def path_of(spec: ModelSpec, text: str) -> Path | None:
    """A path that begins with a dot, a slash or a tilde, relative to the zoo file."""
    if not text.startswith((".", "/", "~")):
        return None
    try:
        return spec.folder / Path(text).expanduser()
    except RuntimeError as error:
        raise InputError(f"the source {spec.source!r}: no such home folder") from error
