"""What a folder contains: a store or not, its newest table, and its models, finished or not."""

from __future__ import annotations

from pathlib import Path

from oodzoo.core.errors import InputError
from oodzoo.core.io import is_temporary, read_json, shown, structured
from oodzoo.store.files import is_missing
from oodzoo.store.index import has_lost_manifest
from oodzoo.store.manifest import Manifest, ModelRecord
from oodzoo.store.places import (
    MANIFEST,
    MODELS,
    mistaken_folder,
    model_folder,
    repair_advice,
    require_no_links,
)
from oodzoo.store.table import SampleTable, read_table, table_file, table_numbers


def require_store(path: Path, *, without_manifest: bool = False) -> None:
    """Reject a path that is not a store."""
    if is_missing(path):
        raise InputError(f"no such feature store: {shown(path)!r}")
    if without_manifest and has_lost_manifest(path):
        return
    is_store = (path / MANIFEST).is_file()
    if not is_store and (what := mistaken_folder(path, "store")):
        raise InputError(f"{shown(path)!r} is not a feature store: {what}")
    require_store_or_empty(path)
    if not (path / MANIFEST).is_file():
        raise InputError(f"{shown(path)!r} is not a feature store: it has no manifest.json")


def require_store_or_empty(path: Path) -> None:
    """Reject a folder with other content than that of a store."""
    if not path.is_dir() or (path / MANIFEST).is_file():
        return
    if has_lost_manifest(path):
        raise InputError(
            f"the store {shown(path)!r} has lost its manifest.json; {repair_advice(path)}"
        )
    for entry in sorted(path.iterdir()):
        if entry.name != ".lock" and not is_temporary(entry.name):
            if (path / MANIFEST).is_file():
                return  # another process has just created the store
            raise InputError(
                f"{shown(path)!r} is neither empty nor a feature store (it contains "
                f"{entry.name!r}); choose another folder"
            )


def newest_table(
    path: Path, manifest: Manifest, *, lost: bool = False
) -> tuple[str | None, SampleTable | None]:
    """Read the newest table and its number; with `lost`, None instead of a damaged one.

    The manifest has another one if a writer was killed before it wrote the manifest.
    """
    numbers = table_numbers(path)
    number = numbers[-1] if numbers else manifest.table
    if number is None:
        return None, SampleTable([])
    try:
        sha256 = manifest.samples if number == manifest.table else None
        return number, read_table(path, number, sha256)
    except InputError:
        if not lost:
            raise
        return number, None


def old_tables(store: Path, manifest: Manifest) -> list[Path]:
    """List the tables before that of the manifest."""
    numbers = [number for number in table_numbers(store) if number < (manifest.table or "")]
    return [table_file(store, number) for number in numbers]


def registered_models(store: Path) -> list[str]:
    """List the models of a store, finished or not."""
    folder = require_no_links(store, store / MODELS)
    return sorted(path.parent.name for path in folder.glob("*/model.json"))


def read_model(store: Path, name: str) -> ModelRecord:
    path = require_no_links(store, model_folder(store, name) / "model.json")
    what = "the record of a model"
    return structured(read_json(path, what), ModelRecord, f"{what} {shown(path)!r}")
