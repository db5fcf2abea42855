"""Removing what a store no longer needs: features of removed images, and leftovers of crashes."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from oodzoo.core.errors import InputError
from oodzoo.core.io import explaining_disk_errors, shown
from oodzoo.store.class_embeddings import FILE as CLASS_EMBEDDINGS
from oodzoo.store.contents import old_tables, registered_models, require_store
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.files import fetch_records, folder_size, pulled, remove_files
from oodzoo.store.index import segment_file, segment_of, segment_table
from oodzoo.store.places import (
    CACHE,
    MODELS,
    require_no_links,
)
from oodzoo.store.shards import list_file, read_record, record_file
from oodzoo.store.writer import StoreWriter, writing


@dataclass(frozen=True)
class Pruned:
    """Number of images whose features were removed, and bytes freed."""

    images: int
    bytes: int


def prune_store(store: str | Path, *, unfinished: bool = False, cache: bool = False) -> Pruned:
    """Remove features of images that are not in the table any more, and unused files.

    Shards with rows of removed images are replaced by shards without them; no feature is computed.
    Features of images that an interrupted extraction was adding are kept.

    Parameters
    ----------
    store : path or URL
    unfinished : bool
        Remove features that an interrupted extraction has computed for new images too.
    cache : bool
        Remove the cache too.
    """
    path = pulled(store)
    require_store(path)
    before = folder_size(path)
    with writing(path, exclusive=True) as writer:
        if writer.manifest.table is None:
            raise InputError(
                f"the store {shown(path)!r} has no finished model; finish it with oodzoo extract"
            )
        writer.finish(all_models=True)  # an interrupted command may have left another manifest
        outdated = outdated_segments(writer, unfinished=unfinished)
        removed = writer.index.images() - writer.index.without(outdated).images()
        removed -= set(writer.table.images())
        if outdated:
            _replace(writer, outdated)
        files = list(unused_files(path, writer))
        if cache and (path / CACHE).is_dir():
            folder = require_no_links(path, path / CACHE)
            files += [file for file in folder.rglob("*") if file.is_file()]
        with explaining_disk_errors(path):
            # first, so that their shards do not count any more
            remove_files([segment_file(path, name) for name in outdated])
            remove_files(files)
            _remove_empty_folders(path)
    return Pruned(len(removed), before - folder_size(path))


def outdated_segments(writer: StoreWriter, *, unfinished: bool = False) -> set[str]:
    """Return the segments with images that are not in the table.

    Those of an interrupted extraction, which would add the images, count only with `unfinished`.
    """
    needed = set(writer.table.images())
    outdated = {
        segment_of(shard)
        for shard, images in writer.index.shards.items()
        if not needed.issuperset(images)
    }
    if unfinished:
        return outdated
    current = writer.manifest.table
    return {name for name in outdated if segment_table(writer.path, name) != current}


def _replace(writer: StoreWriter, outdated: set[str]) -> None:
    """Copy the rows that are still needed out of outdated segments, and finish without these."""
    names = registered_models(writer.path)
    old = {name: list(writer.records(name).values()) for name in names}
    models = {name: writer.record(name).stored(name) for name in names}
    index, needed = writer.index, set(writer.table.images())
    writer.index = index.without(outdated)
    if models:
        source = FeatureStore.partial(writer.path, models, writer.table, index, old)
        for name in names:
            writer.copy_rows(source, name, needed)
    writer.finish(all_models=True)


_OURS = re.compile(
    r"[0-9]{5}-[0-9]{5}(\.(features|logits)\.[0-9a-f]{16}\.npy|\.json)|shards\.[0-9a-f]{16}\.json"
)
"""Names of shard files, records and lists."""


_LEFT = ("local.json", CLASS_EMBEDDINGS, ".lock")
"""Files that a killed removal of a model may leave."""


def unused_files(path: Path, writer: StoreWriter) -> Iterator[Path]:
    """Yield the files that neither the manifest nor an unfinished extraction uses."""
    registered = set(registered_models(path))
    for folder in sorted((path / MODELS).glob("*")):
        if folder.is_symlink() or not folder.is_dir():
            continue
        used: set[str] = set()
        if folder.name in registered:
            fetch_records(record_file(folder, shard) for shard in writer.index.shards)
            for shard in writer.index.shards:
                record = read_record(record_file(folder, shard))
                if record is not None:
                    used |= {f"{shard}.json", *(file.file for file in record.files.values())}
        if folder.name in writer.manifest.models:
            used.add(list_file(folder, writer.manifest.models[folder.name].shards).name)
        for file in sorted(folder.iterdir()):
            left = folder.name not in registered and file.name in _LEFT
            if left or (file.name not in used and _OURS.fullmatch(file.name)):
                yield file
    yield from old_tables(path, writer.manifest)


def _remove_empty_folders(path: Path) -> None:
    for folder in (path / MODELS).glob("*"):
        if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
            folder.rmdir()
    if (path / CACHE).is_dir() and not any(f.is_file() for f in (path / CACHE).rglob("*")):
        shutil.rmtree(path / CACHE)
