"""Registry of sources of models by kind, the first part of a spec `<kind>/<identifier>`.

A source is an entry point of the group ``oodzoo.sources`` whose name is the kind and whose value
is a :class:`ModelSource` or a subclass of it. An entry point is loaded when its kind is first used.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import ClassVar

from oodzoo.core.errors import InputError
from oodzoo.core.text import did_you_mean, one_line
from oodzoo.zoo.model import Model, Module, Trainable
from oodzoo.zoo.model_spec import ModelSpec
from oodzoo.zoo.preprocessing import Preprocessing
from oodzoo.zoo.prompts import TextTower
from oodzoo.zoo.weights import Measured, Weights

GROUP = "oodzoo.sources"
"""Entry-point group of sources of models."""
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
            if spec.layer is not None:
                models.append(
                    InputError(
                        f"model {spec.name!r}: a model of the kind {self.kind} has no layers to "
                        f"choose from; remove '@{spec.layer}'"
                    )
                )
                continue
            try:
                models.append(self.load(spec, device=device, precision=precision))
            except InputError as error:
                models.append(error)
        return models

    def names(self, pattern: str) -> list[str]:
        """The names of the models that a pattern with wildcards may match."""
        raise InputError(
            f"'{self.kind}/{pattern}': the source {self.kind} cannot list its models; name them"
        )

    def licence(self, spec: ModelSpec) -> str | None:
        """The licence of a model that is not loaded; None if it is unknown."""
        return None

    def measure(self, spec: ModelSpec) -> Measured | None:
        """Count the parameters of a model without downloading weights; None if that is unknown."""
        return None

    def weights(self, spec: ModelSpec) -> Weights | None:
        """Where the weights of a model are, or will be; None if that is unknown."""
        return None

    def trainable(self, spec: ModelSpec, preprocessing: Preprocessing) -> Trainable:
        """Load a model as a module of PyTorch that can be trained; by default, it cannot."""
        raise _cannot_be_trained(spec)

    def trainable_network(self, specs: Sequence[ModelSpec], preprocessing: Preprocessing) -> Module:
        """Load models that are layers of one network as one module, which returns a tuple."""
        raise _cannot_be_trained(specs[0])

    def text_tower(self, spec: ModelSpec, *, device: str) -> TextTower | None:
        """Load the text tower of a CLIP-like model, for zero-shot predictions; None without one."""
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


def weight_files(path: Path) -> list[Path]:
    """The weights of a file or folder, with what describes them; never a pickle."""
    found = sorted(path.iterdir()) if path.is_dir() else [path]
    return [file for file in found if file.suffix in (".json", ".safetensors", ".txt")]


def local_dir(spec: ModelSpec) -> Path | None:
    """The folder of an identifier `local-dir:<folder>`."""
    scheme, _, path = spec.identifier.partition(":")
    return spec.folder / path if scheme == "local-dir" else None


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
    """Return the source of a kind, loading its entry point.

    Examples
    --------
    >>> get_source("timm").packages
    ('timm', 'torch')
    """
    points = _points()
    if kind not in points:
        hint = did_you_mean(kind, points) or f"expected one of {', '.join(points)}"
        raise InputError(f"unknown source {kind!r}; {hint}")
    return _load(points[kind])


def load_model(spec: ModelSpec, *, device: str = "cpu", precision: str = "float32") -> Model:
    """Load a model with its weights, ready to run on a device."""
    (model,) = load_network([spec], device=device, precision=precision)
    if isinstance(model, InputError):
        raise model
    return model


def load_network(
    specs: Sequence[ModelSpec], *, device: str, precision: str
) -> list[Model | InputError]:
    """Load models that are layers of one network; in place of one that fails, an error.

    An error of another package names the package.
    """
    spec = specs[0]
    source, package = get_source(spec.kind), _package(_points()[spec.kind])
    try:
        models = source.load_layers(specs, device=device, precision=precision)
    except Exception as error:
        if package == _OURS or isinstance(error, InputError):
            raise
        raise InputError(
            f"model {spec.name!r}: the source {spec.kind!r} of the package {package!r} failed: "
            f"{type(error).__name__}: {one_line(error)}"
        ) from error
    for model in models:
        if not isinstance(model, Model | InputError):
            raise InputError(
                f"model {spec.name!r}: the source {spec.kind!r} of the package {package!r} "
                f"returned {repr(model)[:60]} instead of a Model"
            )
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


def packages_of(kind: str) -> tuple[str, ...]:
    """Return the distributions that compute the features of a source, as far as installed."""
    package = _package(_points()[kind])
    names = (*get_source(kind).packages, *(() if package == _OURS else (package,)))
    return tuple(name for name in dict.fromkeys(names) if _is_installed(name))


def extras_of(specs: Iterable[ModelSpec]) -> set[str]:
    """Return the extras of oodzoo that install what models need."""
    return {extra for spec in specs if (extra := get_source(spec.kind).extra) is not None}


def path_of(spec: ModelSpec, text: str) -> Path | None:
    """A path that begins with a dot, a slash or a tilde, relative to the zoo file."""
    if not text.startswith((".", "/", "~")):
        return None
    try:
        return spec.folder / Path(text).expanduser()
    except RuntimeError as error:
        raise InputError(f"the source {spec.source!r}: no such home folder") from error


def require_not_here(spec: ModelSpec) -> None:
    """Reject a name on the hub that is also a folder here: libraries would load the folder."""
    if Path(spec.identifier).is_dir():
        raise InputError(
            f"model {spec.name!r}: {spec.source} is a name on the hub, but there is a folder "
            f"{spec.identifier!r} here; write {spec.kind}/./{spec.identifier} for it, or work in "
            "another folder"
        )


@cache
def _points() -> dict[str, EntryPoint]:
    """The entry points by kind. Another package cannot replace one of ours."""
    found = list(entry_points(group=GROUP))
    ours = [point for point in found if _package(point) == _OURS]
    if not ours:
        raise InputError(
            "the installation of oodzoo has no sources of models; install it again: pip install "
            "--force-reinstall --no-deps oodzoo"
        )
    points = {point.name: point for point in sorted(ours, key=lambda point: point.name)}
    for point in sorted(found, key=lambda point: (point.name, _package(point))):
        known = points.setdefault(point.name, point)
        if known is not point:
            warnings.warn(
                f"the source of models {point.name!r} of the package {_package(point)!r} is "
                f"ignored: {_package(known)!r} has one of that name",
                stacklevel=2,
            )
    return points


def _load(point: EntryPoint) -> ModelSource:
    what = f"the source of models {point.name!r} of the package {_package(point)!r}"
    try:
        loaded = point.load()
        source = loaded() if isinstance(loaded, type) else loaded
    except Exception as error:
        raise InputError(
            f"{what} cannot be loaded: {type(error).__name__}: {one_line(error)}; update or "
            "uninstall the package"
        ) from error
    if not isinstance(source, ModelSource):
        raise InputError(f"{what} is not a ModelSource, but {repr(source)[:60]}")
    if getattr(source, "kind", None) != point.name:
        raise InputError(f"{what} has the kind {getattr(source, 'kind', None)!r}; they must agree")
    return source


def _is_installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "unknown"
