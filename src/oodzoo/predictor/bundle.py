"""Putting a model's files into a folder, and finding them there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from oodzoo._io import file_digest
from oodzoo.errors import InputError
from oodzoo.predictor.models import PredictorModel, file_digests
from oodzoo.zoo import ModelSpec, Preprocessing
from oodzoo.zoo.spec import SOURCES, require_folder_name

_FOLDER = "networks"
_STATED = ("input_size", "mean", "std", "features", "pretraining", "licence")
"""What is written down of a spec beside its name and source."""


def carry(model: PredictorModel, folder: Path) -> dict[str, Any]:
    """Copy the files of a model into a predictor's folder, and write down how to load it.

    A model of a hub has none: its id is written down, and what it is known again by.
    """
    spec = model.spec
    source, copies = _copies(spec)
    files = {}
    for inside, file in copies.items():
        target = folder / inside
        target.parent.mkdir(parents=True, exist_ok=True)
        with file.open("rb") as read, target.open("wb") as written:
            shutil.copyfileobj(read, written, 1 << 20)
            written.flush()
            os.fsync(written.fileno())
        files[inside] = file_digest(target)
    if spec.kind == "onnx" and list(files.values()) != list(file_digests(spec).values()):
        raise InputError(f"model {spec.name!r}: {str(spec.file)!r} changed while it was copied")
    stated = {key: getattr(spec, key) for key in _STATED if getattr(spec, key) is not None}
    return {
        "name": model.name,
        "source": source,
        "stated": stated,
        "preprocessing": model.preprocessing.to_json(),
        "feature_dim": model.feature_dim,
        "precision": model.precision,
        "fingerprint": model.fingerprint,
        "files": files,
    }


def carried(entry: dict[str, Any], folder: Path) -> PredictorModel:
    """The model that :func:`carry` wrote down."""
    require_folder_name(entry["name"], str(folder / "predictor.json"))
    if entry["source"].partition("/")[0] not in SOURCES:
        raise ValueError(f"a model of the source {entry['source']!r}")
    stated = {key: entry["stated"].get(key) for key in _STATED}
    for key in ("mean", "std"):
        stated[key] = None if stated[key] is None else tuple(stated[key])
    spec = ModelSpec(name=entry["name"], source=entry["source"], folder=folder, **stated)
    return PredictorModel(
        spec,
        Preprocessing.from_json(entry["preprocessing"]),
        int(entry["feature_dim"]),
        str(entry["precision"]),
        str(entry["fingerprint"]),
    )


def _copies(spec: ModelSpec) -> tuple[str, dict[str, Path]]:
    """The source of a model once its files are in the folder, and which file goes where."""
    if spec.kind == "onnx":
        return _onnx_copies(spec)
    local = _local(spec)
    if local is None:
        return spec.source, {}
    home = f"{_FOLDER}/{spec.name}"
    found = sorted(local.iterdir()) if local.is_dir() else [local]
    wanted = [file for file in found if file.suffix in (".json", ".safetensors", ".txt")]
    if not any(file.suffix == ".safetensors" for file in wanted):
        raise InputError(
            f"model {spec.name!r}: {str(local)!r} holds no .safetensors file, and a predictor "
            "takes no pickle along; convert its weights"
        )
    copies = {f"{home}/{file.name}": file for file in wanted}
    if not local.is_dir():
        return f"{spec.kind}/{spec.identifier.partition('/')[0]}/./{home}/{local.name}", copies
    return f"{spec.kind}/./{home}" if spec.kind == "hf" else f"{spec.kind}/local-dir:{home}", copies


def _onnx_copies(spec: ModelSpec) -> tuple[str, dict[str, Path]]:
    first, *others = file_digests(spec)
    if not others:
        inside = f"{_FOLDER}/{spec.name}.onnx"
        return f"onnx/{inside}", {inside: first}
    # weights beside the file are found by name: two models may call theirs the same
    home = f"{_FOLDER}/{spec.name}"
    copies = {f"{home}/{spec.name}.onnx": first}
    for file in others:
        relative = file.relative_to(first.parent)
        if ".." in relative.parts:
            raise InputError(
                f"model {spec.name!r}: its weights lie outside of its folder, in {str(file)!r}"
            )
        copies[f"{home}/{relative.as_posix()}"] = file
    return f"onnx/{home}/{spec.name}.onnx", copies


def _local(spec: ModelSpec) -> Path | None:
    """The folder or file on disk that the source of a PyTorch model names, if it does."""
    scheme, colon, path = spec.identifier.partition(":")
    if colon:
        return spec.folder / path if scheme == "local-dir" else None
    tag = spec.identifier.partition("/")[2] if spec.kind == "open_clip" else spec.identifier
    if spec.kind in ("hf", "open_clip") and tag.startswith((".", "/", "~")):
        return spec.folder / Path(tag).expanduser()
    return None
