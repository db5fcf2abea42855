"""Upgrading a store of the first form in place.

The files of the second form are made next to those of the first; features are linked, not copied,
where the file system allows it. The new manifest replaces the old one at the end, so the store has
one of the two forms at every moment.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec

from oodzoo._io import (
    explaining_disk_errors,
    locked,
    remove_temporaries,
    shown,
    write_bytes,
    write_json,
    write_new,
)
from oodzoo.errors import InputError
from oodzoo.store.contents import require_store
from oodzoo.store.files import is_remote, pulled, remove_files
from oodzoo.store.first_form import (
    FirstModel,
    first_form_files,
    is_first_form,
    read_all_shards,
    read_first_form,
    read_local,
)
from oodzoo.store.index import segment_of, write_segment
from oodzoo.store.manifest import Manifest, read_manifest
from oodzoo.store.places import IMAGES, MANIFEST, MODELS, SAMPLES, file_name, model_folder
from oodzoo.store.shards import Shard, ShardFile, checksum, record_file
from oodzoo.store.table import add_table
from oodzoo.store.writer import StoreWriter


@dataclass(frozen=True)
class Upgrade:
    """Outcome of an upgrade.

    Attributes
    ----------
    upgraded : bool
        False if the store had the second form already.
    damaged : tuple of str
        Shard files that were missing or damaged, and are left out.
    """

    upgraded: bool
    damaged: tuple[str, ...] = ()


def upgrade_store(store: str | Path) -> Upgrade:
    """Upgrade a store to the second form, in place.

    Every checksum is verified; damaged shards are left out and computed again by the next
    extraction. If the upgrade is interrupted, run it again.
    """
    path = pulled(store)
    if is_remote(path) and is_first_form(path):
        raise InputError(
            f"the store {shown(path)!r} was written by an older version, and is at a URL; copy it "
            "to a local folder, upgrade it there, and copy it back"
        )
    if not path.is_dir() or not is_first_form(path):
        require_store(path)
        read_manifest(path)  # rejects a newer form
        with locked(path):
            remove_temporaries(path)
            _remove_first_form(path)
        return Upgrade(upgraded=False)
    with locked(path), explaining_disk_errors(path):
        found = read_all_shards(path)  # before anything is changed
        marker = path / _MARKER
        for folder in (path / name for name in (IMAGES, SAMPLES, MODELS)):
            if not folder.exists():
                continue
            if not marker.exists():  # else left by an interrupted upgrade
                raise InputError(
                    f"the store {shown(path)!r} contains {folder.name!r}, a name that the second "
                    "form uses itself; extract into a new store"
                )
            shutil.rmtree(folder)
        write_new(marker, b"")
        remove_temporaries(path)
        damaged = _write_second_form(path, *found)
        _remove_first_form(path)
    return Upgrade(upgraded=True, damaged=tuple(damaged))


_MARKER = ".upgrading"


def _write_second_form(
    path: Path, images: dict[str, list[str]], models: dict[str, FirstModel]
) -> list[str]:
    segments: dict[str, list[list[str]]] = {}
    for name, members in images.items():
        segments.setdefault(segment_of(name), []).append(members)
    for name, shards in segments.items():
        write_segment(path, name, shards, None)
    damaged = []
    for name, model in models.items():
        folder = model_folder(path, name)
        write_json(folder / "model.json", msgspec.to_builtins(model.record))
        if facts := read_local(path, name):
            write_json(folder / "local.json", facts)
        for shard in model.shards:
            problems = _link(path / name, folder, shard)
            damaged += [f"{name}/{file}" for file in problems]
    if not (path / MANIFEST).is_file():  # no model was finished
        Manifest().write(path)
        return damaged
    table = read_first_form(path).table
    number = add_table(path, None, table)
    with ExitStack() as locks:
        StoreWriter(path, Manifest(), number, table, locks).write_manifest()
    return damaged


def _link(old: Path, new: Path, shard: Shard) -> list[str]:
    """Give the files of a shard their new names and write its record; return damaged files."""
    files, damaged = {}, []
    for output, file in shard.files.items():
        content = (old / file.file).read_bytes() if (old / file.file).is_file() else b""
        if hashlib.sha256(content).hexdigest() != file.sha256:
            damaged.append(file.file)
            continue
        name = file_name(shard.shard, output, file.sha256)
        try:
            os.link(old / file.file, new / name)
        except OSError:  # no hard links on this file system
            shutil.copyfile(old / file.file, new / name)
        files[output] = ShardFile(name, file.sha256, checksum(content))
    if not damaged:
        record = Shard(
            shard.shard,
            files["features"],
            files.get("logits"),
            shard.absent,
            shard.model,
            shard.images,
        )
        write_bytes(record_file(new, shard.shard), record.content)
    return damaged


def _remove_first_form(path: Path) -> None:
    """Remove the files of the first form; the manifest has the second one already."""
    remove_files(first_form_files(path))
    (path / _MARKER).unlink(missing_ok=True)
    for folder, _, _ in os.walk(path, topdown=False):
        if not any(Path(folder).iterdir()):
            Path(folder).rmdir()
