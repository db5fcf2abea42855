"""A predictor on disk: self-contained, checked when read, complete at any moment.

::

    MODEL/predictor.json           schema, classes, models, provenance, checksums
    MODEL/head.safetensors         weights, bias, the columns of each model, and the adaptive head
    MODEL/gaussian.safetensors     Gaussians of the training features
    MODEL/models/<name>.onnx       files of the models; a model from a hub is recorded by its
                                   identifier and fingerprint, one that only has features by its
                                   name, its number of features and their fingerprint

No file is a pickle or names the location of the store or the zoo.

A predictor that replaces another one has its files in MODEL/version-<random>/. Replacing
predictor.json, which names them, is the moment of the change; the old files are removed after it.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import oodzoo
from oodzoo._io import (
    explaining_disk_errors,
    file_digest,
    locked,
    read_json,
    remove_temporaries,
    require_schema,
    structured,
    write_bytes,
    write_json,
)
from oodzoo.errors import InputError
from oodzoo.features.columns import Columns
from oodzoo.heads.linear import LinearHead
from oodzoo.predictor.adaptive import (
    AdaptiveScalars,
    adaptive_head,
    adaptive_shapes,
    adaptive_tensors,
)
from oodzoo.predictor.bundle import FOLDER, BundledModel, bundle_models
from oodzoo.predictor.feature_models import FeatureModel
from oodzoo.predictor.gaussian import GaussianScalars, TrainingGaussian
from oodzoo.predictor.models import PredictorModel
from oodzoo.predictor.parts import PredictorParts, Provenance
from oodzoo.predictor.temporaries import new_folder
from oodzoo.task import Kind
from oodzoo.zoo.spec import local_path

SCHEMA = 1
SECOND_SCHEMA = 2
"""Of a predictor with one of the keys `_ADDED`, which earlier versions cannot read."""
_ADDED = ("features", "normalised", "texts", "task")
_KIND = "oodzoo predictor"
_HEAD, _GAUSSIAN = "head.safetensors", "gaussian.safetensors"
_OWN = {_HEAD, _GAUSSIAN, FOLDER, "networks"}  # the last one of version 0.1
_VERSION = re.compile(r"version-(?:[0-9a-f]{8}){1,2}")  # two in a predictor from a URL

Tensors = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class _HeadEntry:
    C: float


@dataclass(frozen=True)
class _Document:
    """Content of predictor.json, besides its kind, schema and version."""

    classes: list[Any]
    models: list[BundledModel]
    head: _HeadEntry
    out_of_domain: GaussianScalars
    provenance: Provenance
    files: dict[str, str]
    adaptive: AdaptiveScalars | None = None
    features: list[FeatureModel] = field(default_factory=list)
    """Models that only have features; then there are no `models`."""
    normalised: list[str] = field(default_factory=list)
    """Models whose features are divided by their norm."""
    texts: bool = False
    """Whether the models take texts."""
    task: Kind | None = None
    """What is predicted, if it is not classes."""


@dataclass(frozen=True)
class _Files:
    """The part of an entry of predictor.json that names files."""

    files: dict[str, str]


@dataclass(frozen=True)
class _Names(_Files):
    """The parts of predictor.json that name files."""

    models: list[_Files]


# --- writing -----------------------------------------------------------------------------------


def write_folder(parts: PredictorParts, folder: Path) -> Path:
    """Write a predictor as a folder; at any moment it has the old predictor or the new one."""
    folder = folder.resolve()
    require_free(folder)
    with explaining_disk_errors(folder):
        if (folder / "predictor.json").exists():
            _replace(parts, folder)
        else:
            with new_folder(folder) as temporary:
                write_files(parts, temporary)
    return folder


def require_free(folder: Path) -> None:
    """Raise InputError if anything but a predictor or an empty folder has this path."""
    if not folder.exists():
        return
    if folder.is_dir():
        if not any(folder.iterdir()):
            return
        file = folder / "predictor.json"
        if file.is_file() and is_predictor(read_json(file, "the file")):
            return
    raise InputError(f"{str(folder)!r} exists and is not a predictor; choose another folder")


def _replace(parts: PredictorParts, folder: Path) -> None:
    """Write a predictor next to the one in its folder, and remove that one."""
    with locked(folder):
        _remove_unused(folder)  # left by a killed process
        version = f"version-{secrets.token_hex(4)}"
        (folder / version).mkdir()
        try:
            write_files(parts, folder, f"{version}/")
        finally:
            _remove_unused(folder)


def write_files(parts: PredictorParts, folder: Path, version: str = "") -> None:
    """Write the files of a predictor, and predictor.json last."""
    head: Tensors = {"weights": parts.head.weights, "bias": parts.head.bias}
    head |= {f"columns.{name}": columns for name, columns in parts.columns.by_model.items()}
    if parts.adaptive is not None:
        head |= adaptive_tensors(parts.adaptive)
    tensors = {version + _HEAD: head, version + _GAUSSIAN: parts.gaussian.tensors()}
    for name, content in tensors.items():
        _write_tensors(folder / name, content)
    models = [model for model in parts.models if isinstance(model, PredictorModel)]
    features = [model for model in parts.models if isinstance(model, FeatureModel)]
    document = _Document(
        parts.classes,
        bundle_models(models, folder, version + FOLDER),
        _HeadEntry(parts.head.C),
        parts.gaussian.scalars(),
        parts.provenance,
        {name: file_digest(folder / name) for name in tensors},
        None if parts.adaptive is None else AdaptiveScalars.of(parts.adaptive),
        features,
        sorted(parts.columns.normalised),
        any(model.modality == "text" for model in models),
        None if parts.head.kind == "classification" else parts.head.kind,
    )
    content = asdict(document)
    for key in _ADDED:
        if not content[key]:
            del content[key]  # as earlier versions write and read it
    schema = _schema(content)
    header = {"kind": _KIND, "schema": schema, "oodzoo": oodzoo.__version__}
    write_json(folder / "predictor.json", header | content)


def _remove_unused(folder: Path) -> None:
    """Remove the files of predictors that predictor.json does not name."""
    remove_temporaries(folder)
    content = read_json(folder / "predictor.json", "the predictor")
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


def named_files(content: dict[str, Any], what: str) -> dict[str, str]:
    """The files that predictor.json names: path and SHA-256; `what` begins error messages."""
    document = structured(_upgraded(content), _Names, what)
    return {
        name: sha256
        for entry in (document, *document.models)
        for name, sha256 in entry.files.items()
    }


def _write_tensors(path: Path, tensors: Tensors) -> None:
    from safetensors.numpy import save

    write_bytes(path, save({k: np.ascontiguousarray(v) for k, v in tensors.items()}))


# --- reading -----------------------------------------------------------------------------------


def read_folder(folder: Path) -> PredictorParts:
    """Read a predictor, and check every file against its checksum."""
    document = _read_document(folder)
    for digests in (document.files, *(entry.files for entry in document.models)):
        _require_files(folder, digests)
    for model in document.models:
        _require_bundled(folder, model)
    files = {Path(name).name: folder / name for name in document.files}
    head, gaussian = _read_tensors(files[_HEAD]), _read_tensors(files[_GAUSSIAN])
    models: tuple[PredictorModel, ...] | tuple[FeatureModel, ...] = tuple(document.features)
    if document.models:
        models = tuple(entry.model(folder) for entry in document.models)
    columns = Columns(
        {model.name: _columns(head, model, files[_HEAD]) for model in models},
        frozenset(document.normalised),
    )
    n_classes, n_features = len(document.classes), len(columns)
    _require_shapes(files[_HEAD], head, {"weights": (n_classes, n_features), "bias": (n_classes,)})
    _require_shapes(files[_GAUSSIAN], gaussian, TrainingGaussian.shapes(gaussian, n_features))
    adaptive = None
    if document.adaptive is not None:
        _require_shapes(files[_HEAD], head, adaptive_shapes(n_classes, n_features))
        adaptive = adaptive_head(head, document.adaptive)
    return PredictorParts(
        models,
        columns,
        document.classes,
        LinearHead(
            head["weights"], head["bias"], document.head.C, document.task or "classification"
        ),
        TrainingGaussian.from_tensors(gaussian, document.out_of_domain),
        document.provenance,
        adaptive,
    )


def _read_document(folder: Path) -> _Document:
    if not folder.is_dir():
        raise InputError(f"no such predictor: {str(folder)!r}; make one with oodzoo fit")
    file = folder / "predictor.json"
    if not file.is_file():
        inside = folder / "model"
        hint = f"; did you mean {str(inside)!r}?" if (inside / file.name).is_file() else ""
        raise InputError(f"{str(folder)!r} is not a predictor: it has no predictor.json{hint}")
    content = read_json(file, "the predictor")
    if not is_predictor(content):
        raise InputError(
            f"{str(folder)!r} is not a predictor: its predictor.json was not written by oodzoo"
        )
    what = f"the predictor {str(folder)!r}"
    require_schema(content, _schema(content), what, "fit it again")
    try:
        document = structured(_upgraded(content), _Document, what)
    except InputError as error:
        raise InputError(f"{error}; fit again") from error
    if sorted(Path(name).name for name in document.files) != [_GAUSSIAN, _HEAD]:
        raise InputError(
            f"{what} is damaged: it must have checksums of {_HEAD} and {_GAUSSIAN}, got "
            f"{', '.join(document.files) or 'none'}; fit again"
        )
    names = {model.name for model in document.models}
    names |= {model.name for model in document.features}
    if unknown := sorted(set(document.normalised) - names):
        raise InputError(f"{what} is damaged: it has no model {unknown[0]!r}; fit again")
    if bool(document.models) == bool(document.features):
        raise InputError(
            f"{what} is damaged: it must have either models or models that only have features; "
            "fit again"
        )
    return document


def _schema(content: dict[str, Any]) -> int:
    """The schema of a predictor with this content."""
    return SECOND_SCHEMA if any(content.get(key) for key in _ADDED) else SCHEMA


def is_predictor(content: dict[str, Any]) -> bool:
    """Whether the content of a file predictor.json was written by oodzoo."""
    return str(content.get("kind")).endswith(" predictor")  # the package had another name


def _upgraded(content: dict[str, Any]) -> dict[str, Any]:
    """Rename the keys that version 0.1 wrote, and add what predictors did not record then."""
    renamed = {"networks": "models", "origin": "provenance"}
    content = {renamed.get(key, key): value for key, value in content.items()}
    head = content.get("head")
    if isinstance(head, dict) and "strength" in head:
        content["head"] = {"C": head["strength"]}
    provenance = content.get("provenance")
    if isinstance(provenance, dict) and "choice" not in provenance:
        combined = "ensemble" if provenance.get("threshold") is None else "selection"
        choice = combined if provenance.get("scores") else "named"
        content["provenance"] = provenance | {"choice": choice}
    return content


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


def _require_bundled(folder: Path, entry: BundledModel) -> None:
    """Reject a model that is loaded from a file or folder other than its checked files."""
    location = local_path(replace(entry.spec, folder=folder))
    if location is None:  # from a hub
        return
    location = location.resolve()
    files = [(folder / name).resolve() for name in entry.files]
    if not location.is_relative_to(folder.resolve()) or not any(
        file.is_relative_to(location) for file in files
    ):
        raise InputError(
            f"the predictor {str(folder)!r} loads model {entry.name!r} from {entry.source!r}, "
            "which is not among its files; fit again"
        )


def _read_tensors(path: Path) -> Tensors:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        tensors: Tensors = load_file(path)
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise InputError(f"{str(path)!r} is damaged: {error}; fit again") from error
    return tensors


def _columns(head: Tensors, model: PredictorModel | FeatureModel, path: Path) -> NDArray[np.int64]:
    columns = head.get(f"columns.{model.name}", np.empty(0))
    valid = columns.ndim == 1 and columns.dtype == np.int64 and len(columns) > 0
    if not valid or columns.min() < 0 or columns.max() >= model.feature_dim:
        raise InputError(
            f"{str(path)!r} is damaged: the columns of model {model.name!r} are not among its "
            f"{model.feature_dim} features; fit again"
        )
    return columns


def _require_shapes(path: Path, tensors: Tensors, shapes: dict[str, tuple[int, ...]]) -> None:
    for name, shape in shapes.items():
        if name not in tensors:
            raise InputError(f"{str(path)!r} is damaged: it has no {name!r}; fit again")
        found = tensors[name].shape
        if found != shape:
            raise InputError(
                f"{str(path)!r} is damaged: the shape of {name!r} must be {shape}, got {found}; "
                "fit again"
            )
        if np.isnan(tensors[name]).any():
            raise InputError(f"{str(path)!r} is damaged: {name!r} contains NaN; fit again")
