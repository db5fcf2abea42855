"""Files of a store, in a local folder or at a URL, of which there is a local mirror.

All other code works on the folder of the mirror. Documents are there, as far as a reader needs
them. Shard files and their records are empty until they are read; the content of a shard file is
then in the cache of objects. A file that is not known at the remote side is not uploaded yet: the
next writer does it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

from oodzoo.core import io
from oodzoo.core.errors import DiskError
from oodzoo.core.io import shown
from oodzoo.core.remote import objects
from oodzoo.core.remote.cache import cache_folder, cached_file, drop_cached, keep_copy
from oodzoo.core.remote.location import Url, parse_location
from oodzoo.core.remote.objects import (
    RemoteError,
    RemoteFile,
    create_file,
    find_file,
    list_files,
    read_file,
    write_file,
)
from oodzoo.store.format import CACHE, IMAGES, MANIFEST, part_of_run

_PARALLEL = 16
_TOGETHER = 64
_ATTEMPTS = 5
_STALE_SECONDS = 24 * 3600
_RECORD = re.compile(r"models/[^/]+/[0-9]{5}-[0-9]{5}\.json", re.ASCII)
_SEGMENT = re.compile(rf"{IMAGES}/[0-9]{{5}}\.json", re.ASCII)
_DEPTH = 3
_UNSAFE = re.compile(r'[\\:*?"<>|\x00-\x1f\x7f]')
_RESUME = "rerun the command to resume: finished work is kept on this machine, and uploaded then"

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


def pulled(given: str | os.PathLike[str], *, anew: bool = False) -> Path:
    """Return the folder of a store, as it is now at the remote side; see :func:`pull`."""
    path = store_folder(given)
    pull(path, anew=anew)
    return path


def pull(path: Path, *, anew: bool = False) -> None:
    """Bring the mirror of a store up to date; with `anew`, all documents are read again."""
    if (mirror := mirror_of(path)) is not None:
        mirror.pull(anew=anew)


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


# --- writing --------------------------------------------------------------------------------------


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically, see :func:`oodzoo.core.io.write_bytes`."""
    mirror = mirror_of(path)
    if mirror is None:
        io.write_bytes(path, content)
    else:
        mirror.write(path, content)


def write_new(path: Path, content: bytes) -> bool:
    """Write a file only if it does not exist, see :func:`oodzoo.core.io.write_new`.

    At a URL, the remote side decides; a file that exists there is then here, too.
    """
    mirror = mirror_of(path)
    return io.write_new(path, content) if mirror is None else mirror.create(path, content)


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


# --- reading --------------------------------------------------------------------------------------


def fetch_records(paths: Iterable[Path]) -> None:
    """Read records that the mirror of a store does not have yet, several at a time."""
    paths = list(paths) if _mirrors else []
    if paths and (mirror := mirror_of(paths[0])) is not None:
        mirror.fetch(paths)


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


def each(path: Path, function: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """Call a function for each item, several at a time for a store at a URL."""
    if not is_remote(path):
        yield from map(function, items)
        return
    for start in range(0, len(items), _TOGETHER):
        yield from in_parallel(function, items[start : start + _TOGETHER])


def file_size(path: Path) -> int:
    """Return the size of a file, at the remote side if it is there."""
    mirror = mirror_of(path)
    return path.lstat().st_size if mirror is None else mirror.size(path)


def folder_size(folder: Path) -> int:
    """Return the number of bytes of the files in a folder and below."""
    files = (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)
    return sum(map(file_size, files))


# --- mirrors --------------------------------------------------------------------------------------

_mirrors: dict[Path, Mirror] = {}
"""The mirrors of this process, by their folders."""


def open_mirror(url: Url) -> Mirror:
    """Return the mirror of a URL; it may be empty or out of date until it is pulled."""
    digest = hashlib.sha256(str(url).encode(errors="surrogatepass")).hexdigest()[:32]
    folder = cache_folder() / "stores" / digest
    mirror = Mirror(url, folder)
    io.name_folder(mirror.path, str(url))
    return _mirrors.setdefault(mirror.path, mirror)


def mirror_of(path: Path) -> Mirror | None:
    """Return the mirror that a path belongs to; None if it is a local one."""
    for folder, mirror in _mirrors.items():
        if path == folder or path.is_relative_to(folder):
            return mirror
    return None


class Mirror:
    """A folder with the files of a store at a URL; see :func:`open_mirror`.

    Several processes may use the same folder at the same time.

    Attributes
    ----------
    url : Url
    path : path
        The folder of the store; its parent also has the state.
    """

    def __init__(self, url: Url, folder: Path) -> None:
        self.url = url
        self.path = folder / "files"
        self._state = folder / "state.db"
        self._known: dict[str, Known] = {}
        self._written: list[str] = []

    # --- from the remote side --------------------------------------------------------------------

    def pull(self, *, anew: bool = False) -> None:
        """Bring the folder up to date with the remote side, the manifest last.

        With `anew`, documents are read again even if they have not changed.
        """
        for remaining in reversed(range(_ATTEMPTS)):
            with changing(self._state) as state:
                # What a manifest names was there before it and is removed after the next one.
                before = find_file(self.url / MANIFEST)
                present = self._present()  # before the listing: other processes upload files
                listed = self._list()
                try:
                    self._apply(state, listed, present, anew=anew)
                except RemoteError:
                    if remaining and find_file(self.url / MANIFEST) != before:
                        continue
                    raise
                self._known = state.read()
            if find_file(self.url / MANIFEST) == before:
                return

    def _list(self) -> dict[str, RemoteFile]:
        """List the files of the store; of something else, only one file."""
        prefix = f"{self.url}/"
        listed = {file.url.removeprefix(prefix): file for file in list_files(self.url)}
        files = {name: file for name, file in listed.items() if _is_ours(name)}
        is_store = any(name == MANIFEST or _SEGMENT.fullmatch(name) for name in files)
        others = [name for name in listed if name.rpartition("/")[2] != ".lock"]
        if is_store or not others:
            return files
        return {_UNSAFE.sub("_", others[0].partition("/")[0]).lstrip(".") or "_": listed[others[0]]}

    def _apply(
        self,
        state: MirrorState,
        listed: dict[str, RemoteFile],
        present: dict[str, int],
        *,
        anew: bool,
    ) -> None:
        known = state.read()
        current = set() if anew else {n for n in listed if self._is_current(n, listed[n], known)}
        foreign = [name for name in known if name not in listed and not _is_ours(name)]
        for name in foreign:  # a folder of the store may have this name
            self._unlink(name)
        documents = [name for name in listed if _is_document(name) and name not in current]

        def fetch(name: str) -> None:
            newest = _read_newest(listed[name])
            if newest is None:
                del listed[name]
            else:
                listed[name], content = newest
                _write(self.path / name, content)

        in_parallel(fetch, (name for name in documents if name != MANIFEST))
        for name in listed:
            if not _is_document(name) and name not in current and present.get(name) != 0:
                self._empty(name)
        if MANIFEST in documents:
            fetch(MANIFEST)
        gone = [name for name in known if name not in listed and name not in foreign]
        gone += [n for n, size in present.items() if not size and n not in {**known, **listed}]
        for name in gone:
            self._unlink(name)
        state.drop([*gone, *foreign])
        found = {name: Known(file.version, file.size) for name, file in listed.items()}
        state.put((name, each) for name, each in found.items() if known.get(name) != each)

    def _is_current(self, name: str, file: RemoteFile, known: dict[str, Known]) -> bool:
        """Whether a document or record is here; the content of a shard file never is."""
        path = self.path / name
        if name.endswith(".npy") or not path.is_file():
            return False
        size = path.stat().st_size
        if file.size not in (None, size) and (size or _is_document(name)):
            return False
        if name in known and known[name].version == file.version:
            return True
        # written here, but the process was killed before it noted so
        return _md5(path.read_bytes()) == file.version

    def _present(self) -> dict[str, int]:
        """Return the size of each file of the store that is here."""
        found: dict[str, int] = {}
        folders = [""]
        while folders:
            folder = folders.pop()
            with suppress(FileNotFoundError), os.scandir(self.path / folder) as entries:
                for entry in entries:
                    name = folder + entry.name
                    if entry.name.startswith(".") or name == CACHE:  # a lock, or being written
                        continue
                    if entry.is_dir():
                        folders.append(f"{name}/")
                    else:
                        with suppress(FileNotFoundError):  # removed by another process
                            found[name] = entry.stat().st_size
        return found

    def fetch(self, paths: Iterable[Path]) -> None:
        """Read records that are not here yet."""
        names = [self._name(path) for path in paths if _is_empty(path)]

        def fetch(name: str) -> None:
            newest = _read_newest(self._remote_file(name))
            if newest is not None:
                _write(self.path / name, newest[1])

        with _explained():
            in_parallel(fetch, names)

    def copy_of(self, path: Path) -> Path:
        """Return a local file with the content of a shard file; it may be removed later."""
        if not _is_empty(path):
            path.stat()  # raises if it does not exist
            return path
        file = self._remote_file(self._name(path))
        with _explained():
            try:
                return cached_file(file)
            except RemoteError:
                found = find_file(Url(file.url))
                if found is None or found == file:
                    raise
                self._known[self._name(path)] = Known(found.version, found.size)
                return cached_file(found)

    def drop_copy(self, path: Path) -> None:
        """Remove the local copy of a shard file, which may be damaged."""
        if _is_empty(path):
            drop_cached(self._remote_file(self._name(path)))

    def read(self, path: Path) -> bytes:
        """Read a shard file at the remote side, or here if it is not uploaded yet."""
        if not _is_empty(path):
            return path.read_bytes()
        with _explained():
            return read_file(self._remote_file(self._name(path)))

    def size(self, path: Path) -> int:
        """Return the size that a file has at the remote side."""
        known = self._known.get(self._name(path)) if _is_empty(path) else None
        return path.lstat().st_size if known is None else known.size or 0

    def is_empty(self) -> bool:
        """Whether there is no file, here or at the remote side."""
        return not self._present()

    def _remote_file(self, name: str) -> RemoteFile:
        known = self._known.get(name)
        if known is None:  # of another process
            with _explained():
                found = find_file(self.url / name)
            if found is None:
                raise FileNotFoundError(str(self.url / name))
            known = self._known[name] = Known(found.version, found.size)
        return RemoteFile(str(self.url / name), known.size, known.version)

    # --- to the remote side ----------------------------------------------------------------------

    def write(self, path: Path, content: bytes) -> None:
        """Write a file; a shard file is uploaded before the next other file."""
        name = self._name(path)
        if name.endswith(".npy"):
            with changing(self._state) as state:
                state.drop([name])
            self._known.pop(name, None)
            _write(path, content)
            self._written.append(name)
            return
        self._upload_written()
        with _explained(_RESUME), changing(self._state) as state:
            write_file(self.url / name, content)
            self._keep(state, name, content)

    def create(self, path: Path, content: bytes) -> bool:
        """Write a file only if it does not exist at the remote side, which decides.

        If it exists, it is read. If the upload fails, the file is kept here.
        """
        name = self._name(path)
        try:
            self._upload_written()
            with _explained(_RESUME), changing(self._state) as state:
                return self._create(state, name, content)
        except BaseException:  # including KeyboardInterrupt
            if not path.exists():
                io.write_new(path, content)
            raise

    def push(self) -> None:
        """Upload the files that an interrupted command has left here, the manifest last."""
        with _explained(_RESUME), changing(self._state) as state:
            known, present = state.read(), self._present()
            left = [n for n, size in present.items() if size and n not in known and _is_ours(n)]
            shards = [name for name in left if name.endswith(".npy")]
            finished = [name for name in shards if self._has_record(name)]
            in_parallel(self._upload, finished)
            state.put((name, self._known[name]) for name in finished)
            for name in sorted(set(left) - set(shards), key=lambda name: (name == MANIFEST, name)):
                self._create(state, name, (self.path / name).read_bytes())
        for name in set(shards) - set(finished):
            with suppress(OSError):  # else another process may be writing the record
                if time.time() - (self.path / name).stat().st_mtime > _STALE_SECONDS:
                    (self.path / name).unlink()

    def remove(self, paths: Iterable[Path]) -> None:
        """Remove files, first at the remote side."""
        names = [self._name(path) for path in paths]
        with _explained(_RESUME), changing(self._state) as state:
            objects.remove_files(self.url / name for name in names if _is_ours(name))
            state.drop(names)
            for name in names:
                self._known.pop(name, None)
                self._unlink(name)

    def _upload_written(self) -> None:
        """Upload the shard files that this process has written."""
        written, self._written = self._written, []
        if not written:
            return
        with _explained(_RESUME):
            in_parallel(self._upload, written)
            with changing(self._state) as state:
                state.put((name, self._known[name]) for name in written)

    def _upload(self, name: str) -> None:
        """Upload a shard file; its content is then in the cache of objects."""
        content = (self.path / name).read_bytes()
        write_file(self.url / name, content)
        self._known[name] = Known(_md5(content), len(content))
        with suppress(DiskError):
            keep_copy(self._remote_file(name), content)
        self._empty(name)

    def _has_record(self, name: str) -> bool:
        """Whether a record that is here names a shard file."""
        path = self.path / name
        record = path.with_name(path.name.partition(".")[0] + ".json")
        return record.is_file() and json.dumps(path.name).encode() in record.read_bytes()

    def _create(self, state: MirrorState, name: str, content: bytes) -> bool:
        while True:
            if create_file(self.url / name, content):
                self._keep(state, name, content)
                return True
            file = find_file(self.url / name)
            newest = None if file is None else _read_newest(file)
            if newest is not None:  # else it was removed meanwhile
                self._keep(state, name, newest[1], newest[0].version)
                return False

    def _keep(
        self, state: MirrorState, name: str, content: bytes, version: str | None = None
    ) -> None:
        _write(self.path / name, content)
        # S3 and GCS give it this version; with other protocols, it is read again when it is pulled
        self._known[name] = Known(version or _md5(content), len(content))
        state.put([(name, self._known[name])])

    # --- files of the folder ---------------------------------------------------------------------

    def _name(self, path: Path) -> str:
        return path.relative_to(self.path).as_posix()

    def _empty(self, name: str) -> None:
        """Make an empty file in place of one at the remote side."""
        path = self.path / name
        if path.exists():
            _write(path, b"")  # a process may have opened the old one
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()

    def _unlink(self, name: str) -> None:
        path = self.path / name
        path.unlink(missing_ok=True)
        for folder in path.relative_to(self.path).parents:
            with suppress(OSError):  # not empty
                if folder.name and {e.name for e in (self.path / folder).iterdir()} <= {".lock"}:
                    (self.path / folder / ".lock").unlink(missing_ok=True)
                    (self.path / folder).rmdir()


# --- which version of each remote file a mirror has: a small database beside it ------------------

_PATIENCE = 3600
"""Seconds to wait for another process, which may upload many files."""


class Known(NamedTuple):
    """A remote file as it was last seen; the version is empty if it was written here."""

    version: str
    size: int | None


class MirrorState:
    """The remote files that a mirror knows, by name; opened by :func:`changing`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def read(self) -> dict[str, Known]:
        """Return all files."""
        rows = self._connection.execute("SELECT name, version, size FROM files")
        return {name: Known(version, size) for name, version, size in rows}

    def put(self, files: Iterable[tuple[str, Known]]) -> None:
        """Add or replace files."""
        rows = [(name, *known) for name, known in files]
        self._connection.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", rows)

    def drop(self, names: Iterable[str]) -> None:
        """Forget files."""
        self._connection.executemany("DELETE FROM files WHERE name = ?", [(n,) for n in names])


@contextmanager
def changing(file: Path) -> Iterator[MirrorState]:
    """Change the state; nothing is changed if an error is raised, or if the process is killed.

    This is also a lock: other processes and threads that want to change the state wait.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with closing(sqlite3.connect(file, timeout=_PATIENCE, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = OFF")  # the store has all that matters
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS files (name TEXT PRIMARY KEY, version TEXT, size INT)"
            )
            yield MirrorState(connection)
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise DiskError(
            f"cannot use {str(file)!r}: {error}; delete this folder, or set OODZOO_CACHE to another"
        ) from error


# --- requests and files --------------------------------------------------------------------------


def in_parallel(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Call a function in threads; after an error, calls that have not started are left out."""
    with ThreadPoolExecutor(_PARALLEL) as pool:
        futures = [pool.submit(function, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _write(path: Path, content: bytes) -> None:
    """Write a file of the mirror: atomically, but it may be lost if the power fails."""
    with io.explaining_disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(io.temporary_name())
        try:
            temporary.write_bytes(content)
            temporary.replace(path)
        except BaseException:  # including KeyboardInterrupt
            temporary.unlink(missing_ok=True)
            raise


def _read_newest(file: RemoteFile) -> tuple[RemoteFile, bytes] | None:
    """Read a file that others may be replacing; None if it was removed."""
    for _ in range(_ATTEMPTS):
        try:
            return file, read_file(file)
        except RemoteError:
            found = find_file(Url(file.url))
            if found is None:
                return None
            if found == file:
                raise
            file = found
    return file, read_file(file)


@contextmanager
def _explained(advice: str = "") -> Iterator[None]:
    """Raise errors of requests as those of a disk: all other work would fail, too."""
    try:
        yield
    except RemoteError as error:
        raise DiskError(f"{error}; {advice}" if advice else str(error)) from error


def _is_ours(name: str) -> bool:
    """Whether a remote file can belong to a store; others are left alone."""
    parts = name.split("/")
    return (
        len(parts) <= _DEPTH
        and parts[0] != CACHE
        and name.endswith((".json", ".npy"))
        and all(part and part[0] != "." for part in parts)
        and not _UNSAFE.search(name)
        and name.isprintable()
    )


def _is_document(name: str) -> bool:
    return name.endswith(".json") and not _RECORD.fullmatch(name)


def _is_empty(path: Path) -> bool:
    return path.is_file() and path.stat().st_size == 0


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
