"""Names of the files of a store; nothing outside the store is read or written.

Layout on disk::

    STORE/manifest.json                      written last: table, index and complete models
    STORE/samples/00000.json                 table of samples: path, domain, class, group, image
    STORE/images/00000.json                  index: the images of each shard
    STORE/models/<model>/model.json          description of a model
    STORE/models/<model>/local.json          its timings and location; not part of the fingerprint
    STORE/models/<model>/class_embeddings.json   of its text tower; can be added and replaced
    STORE/models/<model>/00000-00000.json    record of a finished shard
    STORE/models/<model>/shards.<digest>.json    all records of a complete model
    STORE/models/<model>/00000-00000.features.<digest>.npy, 00000-00000.logits.<digest>.npy
    STORE/cache/                             arrays computed from the features
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from oodzoo.core.errors import InputError
from oodzoo.core.io import require_folder_name, shown
from oodzoo.core.text import typed

SCHEMA = 2
NEW_STORE = "extract into a new store"
"""What to do about a store of another schema."""

MANIFEST = "manifest.json"
PREDICTOR = "predictor.json"
RUN = "run.json"
_FILES = {"store": MANIFEST, "model": PREDICTOR}
"""What the parts of a run contain, by the names of their folders."""
SAMPLES = "samples"
IMAGES = "images"
MODELS = "models"
CACHE = "cache"

_FILE_NAME = re.compile(r"[0-9]{5}-[0-9]{5}\.(features|logits)\.[0-9a-f]{16}\.npy", re.ASCII)


def model_folder(store: Path, model: str) -> Path:
    require_folder_name(model, f"the store {shown(store)!r}")
    return store / MODELS / model


def file_name(shard: str, output: str, digest: str) -> str:
    """Return the name of a shard file; it contains its digest, so equal names mean equal files."""
    return f"{shard}.{output}.{digest[:16]}.npy"


def is_file_name(name: str) -> bool:
    """Whether a name from a manifest can only mean a shard file in the folder of its model."""
    return _FILE_NAME.fullmatch(name) is not None


def require_no_links(store: Path, path: Path) -> Path:
    """Return a path inside a store; reject symbolic links between the store and it."""
    here = store
    for part in path.relative_to(store).parts:
        here = here / part
        if os.path.islink(here):  # noqa: PTH114 - faster, called for every shard
            raise InputError(
                f"{shown(here)!r} is a symbolic link; a store contains none: remove it, or extract "
                "into a new store"
            )
    return path


def part_of_run(path: Path, wanted: str) -> Path:
    """Return the feature store or the predictor of a run if the folder of the run is given.

    Parameters
    ----------
    path : Path
    wanted : {"store", "model"}

    Returns
    -------
    Path
        The given one if it is not the folder of a run, or the run has no such part.
    """
    is_run = (path / RUN).is_file() and not (path / _FILES[wanted]).is_file()
    return path / wanted if is_run and (path / wanted).is_dir() else path


def mistaken_folder(path: Path, wanted: str) -> str:
    """Say that a folder is a predictor and no feature store, or the reverse, and what to give.

    Parameters
    ----------
    path : Path
    wanted : {"store", "model"}

    Returns
    -------
    str
        Empty if it is neither.
    """
    other = "model" if wanted == "store" else "store"
    if not (path / _FILES[other]).is_file():
        return ""
    what = "it is a predictor" if wanted == "store" else "it is a feature store"
    meant = path.parent / wanted
    if (meant / _FILES[wanted]).is_file():
        advice = f"did you mean {shown(meant)!r}?"
    elif wanted == "model":
        advice = f"make a predictor of it with `oodzoo fit {typed(shown(path))} --out MODEL`"
    else:
        advice = "give the feature store that it was fitted to"
    return f"{what}; {advice}"


def repair_advice(store: Path) -> str:
    """Say how damaged or missing shards are repaired."""
    return (
        f"remove damaged files with `oodzoo store check {typed(shown(store))} --repair`, "
        "then rerun `oodzoo extract`"
    )
