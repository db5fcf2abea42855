"""Verifying every checksum of a store, and removing what is damaged."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from oodzoo.core.errors import DiskError, InputError
from oodzoo.core.events import Progress
from oodzoo.core.io import explaining_disk_errors, locked, read_json, require_schema, shown
from oodzoo.store.class_embeddings import FILE, read_class_embeddings
from oodzoo.store.format import (
    CACHE,
    MANIFEST,
    NEW_STORE,
    SAMPLES,
    SCHEMA,
    Manifest,
    model_folder,
    read_manifest,
    require_no_links,
    unsealed_bytes,
)
from oodzoo.store.mirror import (
    each,
    fetch_records,
    mirror_of,
    pulled,
    remove_files,
    write_bytes,
)
from oodzoo.store.shards import (
    ShardFile,
    checksum,
    list_file,
    read_list,
    read_record,
    record_file,
    record_files,
)
from oodzoo.store.table import (
    ImageIndex,
    read_model,
    read_table,
    registered_models,
    require_store,
    segment_file,
    segment_names,
    table_file,
    table_numbers,
)
from oodzoo.store.writer import writing


@dataclass(frozen=True)
class Damage:
    """A missing or changed file of a store; `path` is relative to the store."""

    path: str
    problem: str


@dataclass(frozen=True)
class Check:
    """Result of checking a store."""

    files: int
    damage: tuple[Damage, ...]
    unfinished: tuple[str, ...]
    """Models without features of some images."""


def check_store(
    path: str | Path, *, repair: bool = False, progress: Progress | None = None
) -> Check:
    """Compare every file of a feature store with its checksum.

    With `repair`, damaged files are removed and the manifest is written again without the models
    that they belong to; the next extraction computes the missing features.
    """
    store = pulled(path, anew=True)
    require_store(store, without_manifest=True)
    _require_known_schema(store)
    parts = [*_document_parts(store), *_shard_parts(store), *_cache_parts(store)]
    damage = []
    problems = each(store, _FileCheck.problem, parts)
    for number, (part, found) in enumerate(zip(parts, problems, strict=True), start=1):
        if found is not None:
            damage.append(Damage(part.path.relative_to(store).as_posix(), found))
        if progress is not None:
            progress(number, len(parts))
    if repair:  # without damage too: an earlier repair may have been killed
        _repair(store, damage)
    return Check(len(parts), tuple(damage), _unfinished(store))


def _require_known_schema(store: Path) -> None:
    """Reject a store of another schema, which must not be repaired."""
    try:
        document = read_json(store / MANIFEST, "the manifest")
    except InputError:  # missing or damaged
        return
    if isinstance(document.get("schema"), int):
        require_schema(document, SCHEMA, f"the store {shown(store)!r}", NEW_STORE)


class _FileCheck(NamedTuple):
    """A file, and a function that raises an InputError if it is damaged."""

    path: Path
    function: Callable[..., object]
    arguments: tuple[Any, ...]

    def problem(self) -> str | None:
        try:
            self.function(*self.arguments)
        except DiskError:  # nothing is known of the file
            raise
        except InputError as error:
            return str(error)
        return None


def _document_parts(store: Path) -> Iterator[_FileCheck]:
    """Yield the manifest, the table, the index and the lists of shards."""
    yield _FileCheck(store / MANIFEST, read_manifest, (store,))
    try:
        manifest = read_manifest(store)
    except InputError:
        manifest = Manifest()
    for number in sorted({*table_numbers(store), *([manifest.table] if manifest.table else [])}):
        expected = manifest.samples if number == manifest.table else None
        yield _FileCheck(table_file(store, number), read_table, (store, number, expected))
    for name in sorted({*segment_names(store), *manifest.segments}):
        known = {name: manifest.segments.get(name)}
        yield _FileCheck(segment_file(store, name), ImageIndex.read, (store, known))
    for name, model in manifest.models.items():
        folder = model_folder(store, name)
        listed = list_file(folder, model.shards)
        yield _FileCheck(listed, read_list, (store, folder, model.shards))


def _shard_parts(store: Path) -> Iterator[_FileCheck]:
    """Yield the descriptions of the models, the records of their shards, and the files of these."""
    for name in registered_models(store):
        folder = require_no_links(store, model_folder(store, name))
        yield _FileCheck(folder / "model.json", read_model, (store, name))
        if (folder / FILE).is_file():
            yield _FileCheck(folder / FILE, _read_class_embeddings, (store, name))
        files = record_files(folder)
        fetch_records(files)
        for path in files:
            record = read_record(path)
            if record is None:
                yield _FileCheck(path, _reject, ("is not the record of a shard",))
                continue
            for file in record.files.values():
                yield _FileCheck(folder / file.file, _verify, (store, folder / file.file, file))


def _reject(problem: str) -> None:
    raise InputError(problem)


def _read_class_embeddings(store: Path, name: str) -> None:
    record = read_model(store, name)
    read_class_embeddings(store, name, record.identity, record.feature_dim)


def _cache_parts(store: Path) -> Iterator[_FileCheck]:
    if (store / CACHE).is_symlink():  # nothing outside the store is read
        return
    for file in sorted((store / CACHE).rglob("*.*")):
        if file.suffix in (".npz", ".safetensors"):
            yield _FileCheck(file, _read_cache, (store, file))


def _read_cache(store: Path, file: Path) -> None:
    unsealed_bytes(require_no_links(store, file))


def _verify(store: Path, path: Path, file: ShardFile) -> None:
    require_no_links(store, path)
    mirror = mirror_of(path)
    try:
        content = path.read_bytes() if mirror is None else mirror.read(path)
    except FileNotFoundError as error:
        raise InputError("is missing") from error
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}") from error
    found = hashlib.sha256(content).hexdigest()
    fast = checksum(content)
    if found != file.sha256:
        raise InputError(f"has the sha256 {found[:12]}… instead of {file.sha256[:12]}…")
    if fast != file.xxh3:
        raise InputError(f"has the checksum {fast} instead of {file.xxh3}")


def _unfinished(store: Path) -> tuple[str, ...]:
    try:
        complete = set(read_manifest(store).models)
    except InputError:
        complete = set()
    return tuple(sorted(set(registered_models(store)) - complete))


# --- repair ----------------------------------------------------------------------------------


def _repair(store: Path, damage: list[Damage]) -> None:
    """Remove damaged files, and write the manifest of what is left."""
    for entry in damage:
        _require_readable(store / entry.path)
    with locked(store), explaining_disk_errors(store):
        for path in (store / entry.path for entry in damage):
            if path.suffix == ".npy":
                remove_files([record_file(path.parent, path.name.partition(".")[0])])
            if path == store / MANIFEST:
                write_bytes(require_no_links(store, path), Manifest().content)
            elif path.parent != store / SAMPLES:
                remove_files([path])
    if not any(entry.path.startswith(f"{SAMPLES}/") for entry in damage):  # else `sync` is needed
        with writing(store, exclusive=True) as writer:
            writer.finish(all_models=True)


def _require_readable(path: Path) -> None:
    """Reject a file that cannot be read now, which is not a damaged one."""
    try:
        path.open("rb").close()
    except (FileNotFoundError, IsADirectoryError):
        pass
    except OSError as error:
        raise InputError(
            f"cannot read {shown(path)!r}: {error.strerror}; nothing was repaired"
        ) from error
