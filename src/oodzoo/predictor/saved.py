"""A predictor on disk: self-contained, checked when read, complete at any moment.

::

    MODEL/predictor.json           schema, classes, models, provenance, checksums
    MODEL/head.safetensors         weights, bias, the columns of each model, and the adaptive head
    MODEL/gaussian.safetensors     Gaussians of the training features
    MODEL/models/<name>.onnx       files of the models; a model from a hub is recorded by its
                                   identifier and fingerprint, one that only has features by its
                                   name, its number of features and their fingerprint
    MODEL/README.md                model card; it is not read

No file is a pickle or names the location of the store or the zoo.

A predictor that replaces another one has its files in MODEL/version-<random>/. Replacing
predictor.json, which names them, is the moment of the change; the old files are removed after it.
The old model card is removed before it and the new one written after it, so that there is never the
card of another predictor. A card that somebody has edited is kept.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import oodzoo
from oodzoo.core.errors import InputError
from oodzoo.core.io import (
    explaining_disk_errors,
    file_digest,
    locked,
    read_json,
    remove_stale,
    remove_temporaries,
    require_schema,
    structured,
    temporary_name,
    write_bytes,
)
from oodzoo.core.text import count
from oodzoo.extraction.columns import Columns
from oodzoo.linear.heads.adaptive import AdaptiveHead, Confusion
from oodzoo.linear.heads.linear import LinearHead
from oodzoo.predictor.card import CARD, keeps_card, model_card
from oodzoo.predictor.gaussian import GaussianScalars, TrainingGaussian
from oodzoo.predictor.models import (
    AnyModel,
    FeatureModel,
    PredictorModel,
    as_preprocessing,
    file_digests,
    local_files,
    onnx_files,
)
from oodzoo.predictor.parts import PredictorParts, Provenance
from oodzoo.predictor.prediction_sets import LeftOut
from oodzoo.store.format import mistaken_folder, sealed, unsealed
from oodzoo.tasks import CLASSIFICATION, Kind, Task, task_of
from oodzoo.zoo import ModelSpec
from oodzoo.zoo.sources import check_spec, get_source, local_path
from oodzoo.zoo.spec import by_network, network_key

SCHEMA = 1
_KIND = "oodzoo predictor"
_DOCUMENT, _FOLDER = "predictor.json", "models"
_HEAD, _GAUSSIAN = "head.safetensors", "gaussian.safetensors"
_OWN = {_HEAD, _GAUSSIAN, _FOLDER}
_VERSION = re.compile(r"version-(?:[0-9a-f]{8}){1,2}")  # two in a predictor from a URL
_ADAPTIVE_HEADS = ("plain", "standardised", "base")

Tensors = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class BundledModel:
    """Entry of a model in predictor.json; paths are relative to the folder of the predictor."""

    name: str
    source: str
    stated: dict[str, Any]
    """The fields of its :class:`ModelSpec`, besides name and source."""
    preprocessing: dict[str, Any]
    feature_dim: int
    precision: str
    fingerprint: str
    files: dict[str, str]
    """SHA-256 of each copied file, by path."""
    parameters: int | None = None
    milliseconds: float | None = None

    def __post_init__(self) -> None:
        check_spec(self.model(Path()).spec, "predictor.json")

    def model(self, folder: Path) -> PredictorModel:
        """Return the model, with its files in the folder of the predictor."""
        fields = {**self.stated, "name": self.name, "source": self.source}
        spec = structured(fields, ModelSpec, f"the spec of model {self.name!r}")
        return PredictorModel(
            replace(spec, folder=folder),
            as_preprocessing(self.preprocessing, f"the preprocessing of model {self.name!r}"),
            self.feature_dim,
            self.precision,
            self.fingerprint,
            self.files,
            self.parameters,
            self.milliseconds,
        )


@dataclass(frozen=True)
class _HeadScalars:
    C: float


@dataclass(frozen=True)
class _AdaptiveScalars:
    """The scalars of an adaptive head."""

    C: dict[str, float]
    """C of each of its heads."""
    noise: float

    def __post_init__(self) -> None:
        if set(self.C) != set(_ADAPTIVE_HEADS) or not 0 <= self.noise < np.inf:
            raise InputError(
                f"an adaptive head must have a C for each of {', '.join(_ADAPTIVE_HEADS)}, and a "
                f"noise of 0 or more, got {self.C} and {self.noise}"
            )


@dataclass(frozen=True)
class _Document:
    """Content of predictor.json, besides its kind, schema and version."""

    classes: list[str | int | float | bool]
    models: list[BundledModel]
    head: _HeadScalars
    out_of_domain: GaussianScalars
    provenance: Provenance
    files: dict[str, str]
    """SHA-256 of the files of arrays."""
    adaptive: _AdaptiveScalars | None
    features: list[FeatureModel]
    """Models that only have features; then there are no `models`."""
    normalised: list[str]
    """Models whose features are divided by their norm."""
    task: Kind
    """What is predicted."""
    left_out: LeftOut | None
    """What was measured on held-out domains."""


@dataclass(frozen=True)
class _Files:
    """The part of an entry of predictor.json that names files."""

    files: dict[str, str]


@dataclass(frozen=True)
class _Names(_Files):
    """The parts of predictor.json that name files."""

    models: list[_Files]


def is_predictor(content: dict[str, Any]) -> bool:
    """Whether the content of a file predictor.json was written by oodzoo."""
    return content.get("kind") == _KIND


def named_files(content: dict[str, Any], what: str) -> dict[str, str]:
    """The files that predictor.json names: path and SHA-256; `what` begins error messages."""
    document = structured(content, _Names, what)
    return {
        name: sha256
        for entry in (document, *document.models)
        for name, sha256 in entry.files.items()
    }


# --- writing -----------------------------------------------------------------------------------


def write_folder(parts: PredictorParts, folder: Path) -> Path:
    """Write a predictor as a folder; at any moment it has the old predictor or the new one."""
    folder = folder.resolve()
    require_free(folder)
    with explaining_disk_errors(folder):
        if not (folder / _DOCUMENT).exists():
            temporary = folder.parent / temporary_name()
            temporary.mkdir(parents=True)
            try:
                remove_stale(folder.parent)
                write_files(parts, temporary)
                if folder.is_dir():  # empty
                    folder.rmdir()
                temporary.rename(folder)
            except BaseException:  # also KeyboardInterrupt
                shutil.rmtree(temporary, ignore_errors=True)
                raise
            return folder
        with locked(folder):
            _remove_unused(folder)  # left by a killed process
            version = f"version-{secrets.token_hex(4)}"
            (folder / version).mkdir()
            try:
                write_files(parts, folder, f"{version}/")
            finally:
                _remove_unused(folder)
    return folder


def require_free(folder: Path) -> None:
    """Raise InputError if anything but a predictor or an empty folder has this path."""
    if not folder.exists():
        return
    if folder.is_dir():
        if not any(folder.iterdir()):
            return
        file = folder / _DOCUMENT
        if file.is_file() and is_predictor(read_json(file, "the file")):
            return
    raise InputError(f"{str(folder)!r} exists and is not a predictor; choose another folder")


def write_files(
    parts: PredictorParts, folder: Path, version: str = "", location: str = "model/"
) -> None:
    """Write the files of a predictor, then predictor.json, then the model card.

    The examples in the card load the predictor from `location`.
    """
    from safetensors.numpy import save

    card, adaptive = model_card(parts, location).encode(), parts.adaptive
    arrays: Tensors = {"weights": parts.head.weights, "bias": parts.head.bias}
    arrays |= {f"columns.{name}": columns for name, columns in parts.columns.by_model.items()}
    scalars = None
    if adaptive is not None:
        heads = {name: getattr(adaptive, name) for name in _ADAPTIVE_HEADS}
        confusion = adaptive.confusion
        scalars = _AdaptiveScalars({name: h.C for name, h in heads.items()}, confusion.noise)
        arrays |= {"adaptive.rates": confusion.rates, "adaptive.reference": confusion.reference}
        for name, head in heads.items():
            arrays[f"adaptive.{name}.weights"] = head.weights
            arrays[f"adaptive.{name}.bias"] = head.bias
    files = {}
    for name, group in ((_HEAD, arrays), (_GAUSSIAN, parts.gaussian.tensors())):
        path = folder / version / name
        write_bytes(path, save({key: np.ascontiguousarray(v) for key, v in group.items()}))
        files[version + name] = path
    models = [model for model in parts.models if isinstance(model, PredictorModel)]
    document = _Document(
        parts.classes,
        _bundle(models, folder, version + _FOLDER),
        _HeadScalars(parts.head.C),
        parts.gaussian.scalars(),
        parts.provenance,
        {name: file_digest(path) for name, path in files.items()},
        scalars,
        [model for model in parts.models if isinstance(model, FeatureModel)],
        sorted(parts.columns.normalised),
        parts.task.kind,
        parts.left_out,
    )
    head = {"kind": _KIND, "schema": SCHEMA, "oodzoo": oodzoo.__version__}
    place = folder / CARD
    found = place.read_bytes() if place.is_file() else b"" if place.exists() else None
    is_kept = keeps_card(found, str(place))
    if not is_kept:
        place.unlink(missing_ok=True)
    write_bytes(folder / _DOCUMENT, sealed(head | asdict(document)))
    if not is_kept:
        write_bytes(place, card)


def _bundle(models: Sequence[PredictorModel], folder: Path, within: str) -> list[BundledModel]:
    """Copy the files of models into a folder within the folder of a predictor.

    Models of one network share its files.
    """
    bundled: dict[str, BundledModel] = {}
    for together in by_network(models, lambda model: network_key(model.spec)):
        spec = together[0].spec
        source, copies = _plan_copies(spec, within)
        files = {}
        for path, file in copies.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with file.open("rb") as reader, target.open("wb") as writer:
                shutil.copyfileobj(reader, writer, 1 << 20)
                writer.flush()
                os.fsync(writer.fileno())
            files[path] = file_digest(target)
        if spec.kind == "onnx" and list(files.values()) != list(file_digests(spec).values()):
            raise InputError(f"model {spec.name!r}: {str(spec.file)!r} changed while it was copied")
        for model in together:
            stated = model.spec.to_dict()
            bundled[model.name] = BundledModel(
                model.name,
                source,
                {key: stated[key] for key in stated if key not in ("name", "source")},
                asdict(model.preprocessing),
                model.feature_dim,
                model.precision,
                model.fingerprint,
                files,
                model.parameters,
                model.milliseconds,
            )
    return [bundled[model.name] for model in models]


def _plan_copies(spec: ModelSpec, within: str) -> tuple[str, dict[str, Path]]:
    """The source of a bundled model, and the files to copy by path within the bundle."""
    home = f"{within}/{spec.name}"
    if spec.kind == "onnx":
        file, *external = onnx_files(spec)
        # a folder per model: external weight files of two models may have the same name
        place = f"{home}/{spec.name}.onnx" if external else f"{home}.onnx"
        copies = {place: file}
        for weights in external:
            relative = weights.relative_to(file.parent)
            if ".." in relative.parts:
                raise InputError(
                    f"model {spec.name!r}: its weight file {str(weights)!r} is outside the folder "
                    "of the model; move it there"
                )
            copies[f"{home}/{relative.as_posix()}"] = weights
        return f"onnx/{place}", copies
    local, wanted = local_path(spec), local_files(spec)
    if local is None:
        return spec.source, {}
    if wanted is None:  # loading a predictor must not run code that it brings
        raise InputError(
            f"model {spec.name!r}: a saved predictor has no code, and {spec.source!r} is code in a "
            "local folder; export the network to ONNX, and use it as onnx/<file>"
        )
    if not any(file.suffix == ".safetensors" for file in wanted):
        raise InputError(
            f"model {spec.name!r}: {str(local)!r} has no .safetensors file, and pickled weights "
            "are not copied into a predictor; convert them to safetensors"
        )
    above = local if local.is_dir() else local.parent
    copies = {f"{home}/{file.relative_to(above).as_posix()}": file for file in wanted}
    place = home if local.is_dir() else f"{home}/{local.name}"
    return f"{spec.kind}/{get_source(spec.kind).moved(spec, place)}", copies


def _remove_unused(folder: Path) -> None:
    """Remove the files of predictors that predictor.json does not name."""
    remove_temporaries(folder)
    content = read_json(folder / _DOCUMENT, "the predictor")
    names = named_files(content, f"the predictor {str(folder)!r}")
    used = {part for name in names for part in Path(name).parts[:1]}
    for entry in list(folder.iterdir()):
        if entry.name in used or not (entry.name in _OWN or _VERSION.fullmatch(entry.name)):
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                entry.unlink()


# --- reading -----------------------------------------------------------------------------------


def read_folder(folder: Path) -> PredictorParts:
    """Read a predictor, and check every file against its checksum."""
    document = read_document(folder)
    models = [entry.model(folder) for entry in document.models]
    for digests in (document.files, *(model.files for model in models)):
        _require_files(folder, digests)
    for model in models:
        location = local_path(model.spec)
        if location is None:  # from a hub
            continue
        location = location.resolve()
        files = [(folder / name).resolve() for name in model.files]
        if not location.is_relative_to(folder.resolve()) or not any(
            file.is_relative_to(location) for file in files
        ):
            raise InputError(
                f"the predictor {str(folder)!r} loads model {model.name!r} from "
                f"{model.spec.source!r}, which is not among its files; fit again"
            )
    arrays = {Path(name).name: _Arrays(folder / name) for name in document.files}
    head, gaussian = arrays[_HEAD], arrays[_GAUSSIAN]
    known: tuple[PredictorModel, ...] | tuple[FeatureModel, ...]
    known = tuple(models) if models else tuple(document.features)
    columns = Columns(
        {model.name: head.columns(model) for model in known}, frozenset(document.normalised)
    )
    n, d = len(document.classes), len(columns)

    def linear(prefix: str, C: float, task: Task = CLASSIFICATION) -> LinearHead:
        weights, bias = head.taken(f"{prefix}weights", (n, d)), head.taken(f"{prefix}bias", (n,))
        return LinearHead(weights, bias, C, task)

    adaptive = None
    if (scalars := document.adaptive) is not None:
        heads = {name: linear(f"adaptive.{name}.", scalars.C[name]) for name in _ADAPTIVE_HEADS}
        rates = head.taken("adaptive.rates", (n, n))
        reference = head.taken("adaptive.reference", (n,))
        adaptive = AdaptiveHead(**heads, confusion=Confusion(rates, reference, scalars.noise))
    shapes = TrainingGaussian.shapes(gaussian.by_name, d)
    return PredictorParts(
        known,
        columns,
        document.classes,
        linear("", document.head.C, task_of(document.task)),
        TrainingGaussian(
            **{name: gaussian.taken(name, shape) for name, shape in shapes.items()},
            rest=document.out_of_domain.rest,
            limit=document.out_of_domain.limit,
            alarms=document.out_of_domain.alarms,
        ),
        document.provenance,
        adaptive,
        document.left_out,
    )


def read_document(folder: Path) -> _Document:
    """Read predictor.json, and check all that it says."""
    if not folder.is_dir():
        raise InputError(f"no such predictor: {str(folder)!r}; make one with oodzoo fit")
    file = folder / _DOCUMENT
    if not file.is_file():
        what = mistaken_folder(folder, "model")
        raise InputError(
            f"{str(folder)!r} is not a predictor: "
            + (what or f"it has no {_DOCUMENT}; make one with oodzoo fit")
        )
    content = read_json(file, "the predictor")
    if not is_predictor(content):
        raise InputError(
            f"{str(folder)!r} is not a predictor: its {_DOCUMENT} was not written by oodzoo"
        )
    what = f"the predictor {str(folder)!r}"
    try:
        content = unsealed(content, what)
    except InputError as error:
        raise InputError(f"{error}; copy the folder again, or fit again") from error
    require_schema(content, SCHEMA, what, "fit it again")
    try:
        document = structured(content, _Document, what)
    except InputError as error:
        raise InputError(f"{error}; fit again") from error
    names = {m.name for m in document.models} | {m.name for m in document.features}
    n = 1 if task_of(document.task).has_probabilities else len(document.classes)
    problem = ""
    if unknown := sorted(set(document.normalised) - names):
        problem = f"it has no model {unknown[0]!r}"
    elif bool(document.models) == bool(document.features):
        problem = "it must have either models or models that only have features"
    elif sorted(Path(name).name for name in document.files) != [_GAUSSIAN, _HEAD]:
        found = ", ".join(document.files) or "none"
        problem = f"it must have checksums of {_HEAD} and {_GAUSSIAN}, got {found}"
    for each in document.left_out.sets if document.left_out else ():
        if len(each.thresholds) != n or not each.coverage or min(each.thresholds) < 0:
            problem = problem or (
                f"prediction sets of coverage {each.level:g} must have {count(n, 'threshold')} and "
                f"a measured coverage, got {each.thresholds}"
            )
    if problem:
        raise InputError(f"{what} is damaged: {problem}; fit again")
    return document


def _require_files(folder: Path, digests: dict[str, str]) -> None:
    for name, expected in digests.items():
        file = folder / name
        if not file.resolve().is_relative_to(folder.resolve()):
            raise InputError(
                f"the predictor {str(folder)!r} names {name!r}, which is not inside its folder; "
                "fit again"
            )
        if not file.is_file():
            raise InputError(
                f"the predictor {str(folder)!r} lacks {name!r}; copy the whole folder, or fit again"
            )
        found = file_digest(file)
        if found != expected:
            raise InputError(
                f"{str(file)!r} has the sha256 {found[:12]}…, but the predictor was saved with "
                f"{expected[:12]}…; copy the folder again, or fit again"
            )


class _Arrays:
    """A file of arrays, each checked when it is taken."""

    def __init__(self, path: Path) -> None:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        self._where = repr(str(path))
        try:
            self.by_name: Tensors = load_file(path)
        except (SafetensorError, OSError, ValueError, TypeError) as error:
            raise InputError(f"{self._where} is damaged: {error}; fit again") from error

    def taken(self, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
        """The array of this name, which must have this shape."""
        found = self.by_name.get(name)
        if found is None:
            raise InputError(f"{self._where} is damaged: it has no {name!r}; fit again")
        if found.shape != shape:
            raise InputError(
                f"{self._where} is damaged: the shape of {name!r} must be {shape}, got "
                f"{found.shape}; fit again"
            )
        if np.isnan(found).any():
            raise InputError(f"{self._where} is damaged: {name!r} contains NaN; fit again")
        return found

    def columns(self, model: AnyModel) -> NDArray[np.int64]:
        """The columns of a model, which must be among its features."""
        columns = self.by_name.get(f"columns.{model.name}", np.empty(0))
        valid = columns.ndim == 1 and columns.dtype == np.int64 and len(columns) > 0
        if not valid or columns.min() < 0 or columns.max() >= model.feature_dim:
            raise InputError(
                f"{self._where} is damaged: the columns of model {model.name!r} are not among its "
                f"{model.feature_dim} features; fit again"
            )
        return columns
