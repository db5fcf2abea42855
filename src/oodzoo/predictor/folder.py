"""A predictor on disk.

::

    MODEL/predictor.json                  what it is: schema, classes, models, origin, checksums
    MODEL/head.safetensors                weights, bias, and the kept columns of each model
    MODEL/gaussian.safetensors            the Gaussian of the training features
    MODEL/models/<name>.onnx            the models' own files; those that come from a hub are
                                          named by their id and known again by a fingerprint

Nothing in it says where the store or the zoo lay, and nothing is a pickle.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import oodzoo
from oodzoo._io import explaining_disk_errors, file_digest, read_json, write_bytes, write_json
from oodzoo.errors import InputError
from oodzoo.features.columns import Columns
from oodzoo.heads.linear import LinearHead
from oodzoo.predictor.bundle import carried, carry
from oodzoo.predictor.gaussian import TrainingGaussian
from oodzoo.predictor.predictor import Origin, Predictor

SCHEMA = 1
_KIND = "oodzoo predictor"
_HEAD, _GAUSSIAN = "head.safetensors", "gaussian.safetensors"

Tensors = dict[str, NDArray[Any]]


def save(predictor: Predictor, folder: Path) -> Path:
    """Write a predictor as a folder, whole or not at all."""
    folder = folder.resolve()
    require_free(folder)
    temporary = folder.parent / f".tmp-{folder.name}-{os.getpid()}"
    with explaining_disk_errors(folder):
        shutil.rmtree(temporary, ignore_errors=True)  # of a process that was killed
        temporary.mkdir(parents=True)
        try:
            _write(predictor, temporary)
            _put(temporary, folder)
        except BaseException:  # an interruption too
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    return folder


def load(
    folder: str | os.PathLike[str], *, device: str = "auto", batch_size: int | None = None
) -> Predictor:
    """Read a predictor that :meth:`Predictor.save` or `oodzoo fit` wrote.

    Every file is checked against its checksum. Models are loaded when the first image comes.

    Parameters
    ----------
    folder : path
    device : str, default "auto"
        Where models run: "cpu", "cuda", "cuda:1", "mps"; "auto" takes the fastest there is.
    batch_size : int, optional
        Images in one forward pass; by default chosen for the device.
    """
    path = Path(folder)
    if not path.is_dir():
        raise InputError(f"there is no predictor {str(path)!r}; make one with oodzoo fit")
    if not (path / "predictor.json").is_file():
        inside = (path / "model" / "predictor.json").is_file()
        hint = f"; did you mean {str(path / 'model')!r}?" if inside else ""
        raise InputError(f"{str(path)!r} is no predictor: it has no predictor.json{hint}")
    document = read_json(path / "predictor.json", "the predictor")
    _require_schema(document, path)
    with _refusing_other_content(path):
        if set(document["files"]) != {_HEAD, _GAUSSIAN}:
            raise ValueError(f"checksums of {', '.join(document['files']) or 'no file'}")
        _require_files(path, document["files"])
        head, gaussian = _read_tensors(path / _HEAD), _read_tensors(path / _GAUSSIAN)
        for entry in document["networks"]:
            _require_files(path, entry["files"])
        models = [carried(entry, path) for entry in document["networks"]]
        columns = {model.name: head[f"columns.{model.name}"] for model in models}
        for model in models:
            _require_columns(columns[model.name], model.feature_dim, model.name, path)
        kept = Columns(columns)
        classes = document["classes"]
        _require_shapes(path / _HEAD, head, {"weights": (len(classes), len(kept))})
        _require_shapes(path / _HEAD, head, {"bias": (len(classes),)})
        _require_shapes(path / _GAUSSIAN, gaussian, TrainingGaussian.shapes(gaussian, len(kept)))
        origin = {field.name: document["origin"][field.name] for field in fields(Origin)}
        origin["domains"] = tuple(origin["domains"])
        return Predictor(
            models,
            kept,
            classes,
            LinearHead(head["weights"], head["bias"], float(document["head"]["strength"])),
            TrainingGaussian.from_tensors(gaussian, document["out_of_domain"]),
            Origin(**origin),
            device=device,
            batch_size=batch_size,
        )


# --- writing -----------------------------------------------------------------------------------


def _write(predictor: Predictor, folder: Path) -> None:
    head: Tensors = {"weights": predictor.head.weights, "bias": predictor.head.bias}
    head |= {f"columns.{name}": c for name, c in predictor.columns.by_model.items()}
    _write_tensors(folder / _HEAD, head)
    _write_tensors(folder / _GAUSSIAN, predictor.gaussian.tensors())
    models = [carry(model, folder) for model in predictor.models]
    document = {
        "kind": _KIND,
        "schema": SCHEMA,
        "oodzoo": oodzoo.__version__,
        "classes": predictor.classes_.tolist(),
        "networks": models,
        "head": {"strength": predictor.head.C},
        "out_of_domain": predictor.gaussian.facts(),
        "origin": asdict(predictor.origin),
        "files": {name: file_digest(folder / name) for name in (_HEAD, _GAUSSIAN)},
    }
    write_json(folder / "predictor.json", document)


def _write_tensors(path: Path, tensors: Tensors) -> None:
    from safetensors.numpy import save as to_bytes

    write_bytes(path, to_bytes({k: np.ascontiguousarray(v) for k, v in tensors.items()}))


def _put(temporary: Path, folder: Path) -> None:
    """Give a finished folder its name; a predictor of that name goes."""
    if not folder.exists():
        temporary.rename(folder)
        return
    old = folder.with_name(f".tmp-{folder.name}-{os.getpid()}-old")
    folder.rename(old)
    try:
        temporary.rename(folder)
    except BaseException:
        old.rename(folder)
        raise
    shutil.rmtree(old)


def require_free(folder: Path) -> None:
    """Refuse to write over anything but a predictor."""
    if not folder.exists():
        return
    if folder.is_dir():
        if not any(folder.iterdir()):
            return
        if (folder / "predictor.json").is_file():
            found = read_json(folder / "predictor.json", "the file")
            if found.get("kind") == _KIND:
                return
    raise InputError(f"{str(folder)!r} is there already and is no predictor; choose another folder")


# --- reading -----------------------------------------------------------------------------------


def _require_schema(document: dict[str, Any], path: Path) -> None:
    if document.get("kind") != _KIND:
        raise InputError(f"{str(path)!r} is no predictor: its predictor.json is another thing's")
    found = document.get("schema")
    if found != SCHEMA:
        newer = isinstance(found, int) and found > SCHEMA
        advice = "upgrade oodzoo" if newer else "fit it again"
        raise InputError(
            f"the predictor {str(path)!r} has the schema {found!r}, this oodzoo reads {SCHEMA}; "
            f"{advice}"
        )


def _require_files(path: Path, digests: dict[str, str]) -> None:
    """Refuse a folder in which a file is missing or not what was written."""
    for name, expected in digests.items():
        file = path / name
        if not file.is_file():
            raise InputError(
                f"the predictor {str(path)!r} lacks {name!r}; copy the whole folder, or fit again"
            )
        found = file_digest(file)
        if found != expected:
            raise InputError(
                f"{str(file)!r} has the sha256 {found[:12]}…, the predictor was saved with "
                f"{expected[:12]}…; copy the folder again, or fit again"
            )


def _read_tensors(path: Path) -> Tensors:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        tensors: Tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{str(path)!r} is damaged: {error}; fit again") from error
    return tensors


def _require_shapes(path: Path, tensors: Tensors, shapes: dict[str, tuple[int, ...]]) -> None:
    for name, shape in shapes.items():
        if name not in tensors or tensors[name].shape != shape:
            found = tensors[name].shape if name in tensors else "nothing"
            raise InputError(
                f"{str(path)!r} is damaged: {name!r} should be {shape} and is {found}; fit again"
            )
        if np.isnan(tensors[name]).any():
            raise InputError(f"{str(path)!r} is damaged: {name!r} holds NaN; fit again")


def _require_columns(columns: NDArray[Any], feature_dim: int, name: str, path: Path) -> None:
    right = columns.ndim == 1 and columns.dtype == np.int64 and len(columns) > 0
    if not right or columns.min() < 0 or columns.max() >= feature_dim:
        raise InputError(
            f"{str(path / _HEAD)!r} is damaged: the columns kept of model {name!r} are not "
            f"among its {feature_dim} features; fit again"
        )


@contextmanager
def _refusing_other_content(path: Path) -> Iterator[None]:
    """Files that are sound but do not hold what those of a predictor hold."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"the predictor {str(path)!r} is damaged: it lacks what it should hold "
            f"({type(error).__name__}: {error}); fit again"
        ) from error
