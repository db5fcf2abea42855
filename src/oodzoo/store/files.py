"""Files of a store, in a local folder or in the mirror of a URL."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from oodzoo.core import io as _io
from oodzoo.core.io import json_bytes, shown
from oodzoo.core.remote.location import Url, parse_location
from oodzoo.store.mirror import has_mirrors, in_parallel, mirror_of, open_mirror
from oodzoo.store.places import part_of_run

T = TypeVar("T")
R = TypeVar("R")


def store_folder(given: str | os.PathLike[str]) -> Path:
    """Return the folder of a store that a user names: of a URL, the folder of its mirror.

    The folder of a run stands for its store.
    """
    location = parse_location(given)
    if isinstance(location, Url):
        return open_mirror(location).path
    return part_of_run(location, "store")


def pulled(given: str | os.PathLike[str]) -> Path:
    """Return the folder of a store, as it is now at the remote side."""
    path = store_folder(given)
    pull(path)
    return path


def pull(path: Path, *, anew: bool = False) -> None:
    """Bring the mirror of a store up to date; with `anew`, all documents are read again."""
    if (mirror := mirror_of(path)) is not None:
        mirror.pull(anew=anew)


def push(path: Path) -> None:
    """Upload what an interrupted command has left in the mirror of a store."""
    if (mirror := mirror_of(path)) is not None:
        mirror.push()


def is_remote(path: Path) -> bool:
    """Whether a store is at a URL."""
    return mirror_of(path) is not None


def location(path: Path) -> str:
    """Return the URL of a store, or its absolute path: other processes can open it."""
    return shown(path) if is_remote(path) else str(path.resolve())


def is_missing(path: Path) -> bool:
    """Whether there is no folder, or no file at a URL."""
    mirror = mirror_of(path)
    return not path.is_dir() if mirror is None else mirror.is_empty()


def free_space(path: Path) -> int | None:
    """Return the free bytes on the disk of a folder; None if they are not known."""
    return None if is_remote(path) else shutil.disk_usage(path).free


# --- writing -----------------------------------------------------------------------------------


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically, see :func:`oodzoo.core.io.write_bytes`."""
    mirror = mirror_of(path)
    if mirror is None:
        _io.write_bytes(path, content)
    else:
        mirror.write(path, content)


def write_new(path: Path, content: bytes) -> bool:
    """Write a file only if it does not exist, see :func:`oodzoo.core.io.write_new`.

    At a URL, the remote side decides; a file that exists there is then here, too.
    """
    mirror = mirror_of(path)
    return _io.write_new(path, content) if mirror is None else mirror.create(path, content)


def write_json(path: Path, document: Any) -> None:
    """Write a document as JSON, atomically."""
    write_bytes(path, json_bytes(document))


def remove_files(files: Sequence[Path]) -> None:
    """Remove files of one store; those that do not exist are left out."""
    mirror = mirror_of(files[0]) if files else None
    if mirror is not None:
        mirror.remove(files)
        return
    for file in files:
        file.unlink(missing_ok=True)


def remove_folder(folder: Path) -> None:
    """Remove a folder of a store with all files in it."""
    if is_remote(folder):
        remove_files([path for path in sorted(folder.rglob("*")) if path.name != ".lock"])
        shutil.rmtree(folder, ignore_errors=True)
    else:
        shutil.rmtree(folder)


# --- reading -----------------------------------------------------------------------------------


def fetch_records(paths: Iterable[Path]) -> None:
    """Read records that the mirror of a store does not have yet, several at a time."""
    paths = list(paths) if has_mirrors() else []
    if paths and (mirror := mirror_of(paths[0])) is not None:
        mirror.fetch(paths)


def fetch_shards(paths: Sequence[Path]) -> None:
    """Read shard files that will be opened soon, several at a time."""
    if paths and (mirror := mirror_of(paths[0])) is not None:
        in_parallel(mirror.copy_of, paths)


def open_shard_file(path: Path) -> BinaryIO:
    """Open a shard file."""
    mirror = mirror_of(path)
    if mirror is None:
        return path.open("rb")
    for _ in range(_ATTEMPTS):
        copy = mirror.copy_of(path)
        try:
            return copy.open("rb")
        except FileNotFoundError:  # another process needed the space
            continue
    return copy.open("rb")


_ATTEMPTS = 5


def drop_copy(path: Path) -> bool:
    """Remove the local copy of a shard file at a URL; False for a local file."""
    mirror = mirror_of(path)
    if mirror is not None:
        mirror.drop_copy(path)
    return mirror is not None


def read_shard_file(path: Path) -> bytes:
    """Read a shard file where it is stored, not from a cache."""
    mirror = mirror_of(path)
    return path.read_bytes() if mirror is None else mirror.read(path)


def each(path: Path, function: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """Call a function for each item, several at a time for a store at a URL."""
    if not is_remote(path):
        yield from map(function, items)
        return
    for start in range(0, len(items), _TOGETHER):
        yield from in_parallel(function, items[start : start + _TOGETHER])


_TOGETHER = 64


def file_size(path: Path) -> int:
    """Return the size of a file, at the remote side if it is there."""
    mirror = mirror_of(path)
    return path.lstat().st_size if mirror is None else mirror.size(path)


def folder_size(folder: Path) -> int:
    """Return the number of bytes of the files in a folder and below."""
    files = (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)
    return sum(map(file_size, files))
