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
import re
import secrets
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np

from oodzoo.core.errors import InputError
from oodzoo.core.io import (
    explaining_disk_errors,
    file_digest,
    locked,
    read_json,
    remove_temporaries,
    write_bytes,
)
from oodzoo.predictor.card import CARD, is_own_card, model_card, warn_of_edited_card
from oodzoo.predictor.document import (
    FOLDER,
    GAUSSIAN,
    HEAD,
    BundledModel,
    Document,
    Tensors,
    bundle_models,
    is_predictor,
    named_files,
    parse_document,
    to_document,
    to_parts,
    to_tensors,
)
from oodzoo.predictor.models import PredictorModel, new_folder
from oodzoo.predictor.parts import PredictorParts
from oodzoo.store.documents import sealed, unsealed
from oodzoo.store.places import mistaken_folder
from oodzoo.zoo.spec import local_path

_OWN = {HEAD, GAUSSIAN, FOLDER}
_VERSION = re.compile(r"version-(?:[0-9a-f]{8}){1,2}")  # two in a predictor from a URL


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


def write_files(
    parts: PredictorParts, folder: Path, version: str = "", location: str = "model/"
) -> None:
    """Write the files of a predictor, then predictor.json, then the model card.

    The examples in the card load the predictor from `location`.
    """
    card = model_card(parts, location).encode()
    tensors = {version + name: group for name, group in to_tensors(parts).items()}
    for name, content in tensors.items():
        _write_tensors(folder / name, content)
    models = [model for model in parts.models if isinstance(model, PredictorModel)]
    bundled = bundle_models(models, folder, version + FOLDER)
    files = {name: file_digest(folder / name) for name in tensors}
    is_kept = _keeps_card(folder / CARD)
    write_bytes(folder / "predictor.json", sealed(to_document(parts, bundled, files)))
    if not is_kept:
        write_bytes(folder / CARD, card)


def _keeps_card(file: Path) -> bool:
    """Remove the model card, unless somebody has edited it; return whether it is kept."""
    if not file.exists():
        return False
    if file.is_file() and is_own_card(file.read_bytes()):
        file.unlink()
        return False
    warn_of_edited_card(str(file))
    return True


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
    return to_parts(
        document,
        [entry.model(folder) for entry in document.models],
        {name: _read_tensors(file) for name, file in files.items()},
        {name: repr(str(file)) for name, file in files.items()},
    )


def _read_document(folder: Path) -> Document:
    if not folder.is_dir():
        raise InputError(f"no such predictor: {str(folder)!r}; make one with oodzoo fit")
    file = folder / "predictor.json"
    if not file.is_file():
        what = mistaken_folder(folder, "model")
        raise InputError(
            f"{str(folder)!r} is not a predictor: "
            + (what or "it has no predictor.json; make one with oodzoo fit")
        )
    content = read_json(file, "the predictor")
    if not is_predictor(content):
        raise InputError(
            f"{str(folder)!r} is not a predictor: its predictor.json was not written by oodzoo"
        )
    what = f"the predictor {str(folder)!r}"
    try:
        content = unsealed(content, what)
    except InputError as error:
        raise InputError(f"{error}; copy the folder again, or fit again") from error
    document = parse_document(content, what)
    if sorted(Path(name).name for name in document.files) != [GAUSSIAN, HEAD]:
        raise InputError(
            f"{what} is damaged: it must have checksums of {HEAD} and {GAUSSIAN}, got "
            f"{', '.join(document.files) or 'none'}; fit again"
        )
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
