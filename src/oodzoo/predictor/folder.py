"""A predictor on disk: self-contained, checked when read, replaced as a whole.

::

    MODEL/predictor.json           schema, classes, models, provenance, checksums
    MODEL/head.safetensors         weights, bias, and the columns of each model
    MODEL/gaussian.safetensors     Gaussians of the training features
    MODEL/models/<name>.onnx       files of the models; a model from a hub is recorded by its
                                   identifier and fingerprint

No file is a pickle or names the location of the store or the zoo.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import oodzoo
from oodzoo._io import (
    explaining_disk_errors,
    file_digest,
    read_json,
    require_schema,
    structured,
    write_bytes,
    write_json,
)
from oodzoo.errors import InputError
from oodzoo.features.columns import Columns
from oodzoo.heads.linear import LinearHead
from oodzoo.predictor.bundle import BundledModel, bundle_model
from oodzoo.predictor.gaussian import GaussianScalars, TrainingGaussian
from oodzoo.predictor.models import PredictorModel
from oodzoo.predictor.parts import PredictorParts, Provenance

SCHEMA = 1
_KIND = "oodzoo predictor"
_HEAD, _GAUSSIAN = "head.safetensors", "gaussian.safetensors"

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


# --- writing -----------------------------------------------------------------------------------


def write_folder(parts: PredictorParts, folder: Path) -> Path:
    """Write a predictor as a folder, completely or not at all; an existing one is replaced."""
    folder = folder.resolve()
    require_free(folder)
    temporary = folder.with_name(f".tmp-{folder.name}-{os.getpid()}")
    with explaining_disk_errors(folder):
        shutil.rmtree(temporary, ignore_errors=True)  # left by a killed process with this id
        temporary.mkdir(parents=True)
        try:
            _write(parts, temporary)
            _move_into_place(temporary, folder)
        except BaseException:  # also KeyboardInterrupt
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    _remove_stale(folder)
    return folder


def require_free(folder: Path) -> None:
    """Raise InputError if anything but a predictor or an empty folder has this path."""
    if not folder.exists():
        return
    if folder.is_dir():
        if not any(folder.iterdir()):
            return
        file = folder / "predictor.json"
        if file.is_file() and _is_predictor(read_json(file, "the file")):
            return
    raise InputError(f"{str(folder)!r} exists and is not a predictor; choose another folder")


def _write(parts: PredictorParts, folder: Path) -> None:
    head: Tensors = {"weights": parts.head.weights, "bias": parts.head.bias}
    head |= {f"columns.{name}": columns for name, columns in parts.columns.by_model.items()}
    _write_tensors(folder / _HEAD, head)
    _write_tensors(folder / _GAUSSIAN, parts.gaussian.tensors())
    document = _Document(
        parts.classes,
        [bundle_model(model, folder) for model in parts.models],
        _HeadEntry(parts.head.C),
        parts.gaussian.scalars(),
        parts.provenance,
        {name: file_digest(folder / name) for name in (_HEAD, _GAUSSIAN)},
    )
    header = {"kind": _KIND, "schema": SCHEMA, "oodzoo": oodzoo.__version__}
    write_json(folder / "predictor.json", header | asdict(document))


def _write_tensors(path: Path, tensors: Tensors) -> None:
    from safetensors.numpy import save

    write_bytes(path, save({k: np.ascontiguousarray(v) for k, v in tensors.items()}))


def _move_into_place(temporary: Path, folder: Path) -> None:
    """Rename a finished folder; a predictor with its name is removed."""
    if not folder.exists():
        temporary.rename(folder)
        return
    old = temporary.with_name(f"{temporary.name}-old")
    shutil.rmtree(old, ignore_errors=True)  # left by a killed process with this id
    folder.rename(old)
    try:
        temporary.rename(folder)
    except BaseException:
        old.rename(folder)
        raise
    shutil.rmtree(old)


def _remove_stale(folder: Path) -> None:
    """Remove the temporary folders of processes that were killed."""
    name = re.compile(re.escape(f".tmp-{folder.name}-") + r"(\d+)(-old)?")
    for path in folder.parent.glob(".tmp-*"):
        if (match := name.fullmatch(path.name)) and not _is_running(int(match[1])):
            shutil.rmtree(path, ignore_errors=True)


def _is_running(process: int) -> bool:
    if os.name == "nt":
        return True  # unknown: there, os.kill ends the process
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # of another user
        pass
    return True


# --- reading -----------------------------------------------------------------------------------


def read_folder(folder: Path) -> PredictorParts:
    """Read a predictor, and check every file against its checksum."""
    document = _read_document(folder)
    for digests in (document.files, *(entry.files for entry in document.models)):
        _require_files(folder, digests)
    head, gaussian = _read_tensors(folder / _HEAD), _read_tensors(folder / _GAUSSIAN)
    models = tuple(entry.model(folder) for entry in document.models)
    columns = Columns({model.name: _columns(head, model, folder / _HEAD) for model in models})
    n_classes, n_features = len(document.classes), len(columns)
    _require_shapes(
        folder / _HEAD, head, {"weights": (n_classes, n_features), "bias": (n_classes,)}
    )
    _require_shapes(folder / _GAUSSIAN, gaussian, TrainingGaussian.shapes(gaussian, n_features))
    return PredictorParts(
        models,
        columns,
        document.classes,
        LinearHead(head["weights"], head["bias"], document.head.C),
        TrainingGaussian.from_tensors(gaussian, document.out_of_domain),
        document.provenance,
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
    if not _is_predictor(content):
        raise InputError(
            f"{str(folder)!r} is not a predictor: its predictor.json was not written by oodzoo"
        )
    what = f"the predictor {str(folder)!r}"
    require_schema(content, SCHEMA, what, "fit it again")
    try:
        document = structured(_upgraded(content), _Document, what)
    except InputError as error:
        raise InputError(f"{error}; fit again") from error
    if set(document.files) != {_HEAD, _GAUSSIAN}:
        raise InputError(
            f"{what} is damaged: it must have checksums of {_HEAD} and {_GAUSSIAN}, got "
            f"{', '.join(document.files) or 'none'}; fit again"
        )
    return document


def _is_predictor(content: dict[str, Any]) -> bool:
    return str(content.get("kind")).endswith(" predictor")  # the package had another name


def _upgraded(content: dict[str, Any]) -> dict[str, Any]:
    """Rename the keys that version 0.1 wrote."""
    renamed = {"networks": "models", "origin": "provenance"}
    content = {renamed.get(key, key): value for key, value in content.items()}
    head = content.get("head")
    if isinstance(head, dict) and "strength" in head:
        content["head"] = {"C": head["strength"]}
    return content


def _require_files(folder: Path, digests: dict[str, str]) -> None:
    for name, expected in digests.items():
        file = folder / name
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


def _read_tensors(path: Path) -> Tensors:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        tensors: Tensors = load_file(path)
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise InputError(f"{str(path)!r} is damaged: {error}; fit again") from error
    return tensors


def _columns(head: Tensors, model: PredictorModel, path: Path) -> NDArray[np.int64]:
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
