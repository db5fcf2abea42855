"""A bounded cache of whole objects in a local folder.

A file is named after the URL and the version of its object. It is written under a temporary name
and renamed, so several processes may use the folder at the same time. The time of its last use is
its modification time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Lock
from weakref import WeakValueDictionary

from oodzoo.core.errors import DiskError, InputError
from oodzoo.core.io import explaining_disk_errors, is_stale, is_temporary, temporary_name
from oodzoo.core.remote.location import Url
from oodzoo.core.remote.objects import RemoteFile, iter_blocks

FOLDER, SIZE = "OODZOO_CACHE", "OODZOO_CACHE_SIZE"
"""Environment variables."""
_DEFAULT_SIZE = 20 * 10**9
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,12}")
_IN_USE_SECONDS = 10
"""A file that was used this recently stays: its user may not have opened it yet."""
_CHECKS = 32
"""The folder is measured whenever this process has written this fraction of its bound."""

_unmeasured: dict[Path, int | None] = {}
"""Bytes that this process has written since it measured a folder; None before the first time."""


_locks: WeakValueDictionary[Path, Lock] = WeakValueDictionary()
_guard = Lock()


def cached_file(file: RemoteFile) -> Path:
    """A local copy of an object; fetched unless the cache has it.

    The copy may be removed later, when the cache is full: open it soon, or copy it.
    """
    path = _path(file)
    with _fetching(path):
        if _is_complete(path, file.size):
            with contextlib.suppress(OSError):  # removed in the meantime, or not permitted
                os.utime(path)
                return path
        try:
            with explaining_disk_errors(path):
                _write(path, iter_blocks(file))
        except DiskError as error:
            advice = f"the variable {FOLDER} sets the folder of the cache"
            raise DiskError(f"{error}; {advice}") from error
    _limit(path)
    return path


@contextlib.contextmanager
def _fetching(path: Path) -> Iterator[None]:
    """Let one thread at a time fetch a file: many may need parts of the same one."""
    with _guard:
        lock = _locks.setdefault(path, Lock())
    with lock:
        yield


def keep_copy(file: RemoteFile, content: bytes) -> None:
    """Put the content of an object that was just written into the cache."""
    path = _path(file)
    with explaining_disk_errors(path):
        _write(path, [content])
    _limit(path)


def drop_cached(file: RemoteFile) -> None:
    """Remove the local copy of an object, which may be damaged."""
    with contextlib.suppress(OSError):
        _path(file).unlink()


def cache_folder() -> Path:
    """The folder of the cache: that of the environment, else that of the platform."""
    if given := os.environ.get(FOLDER):
        return Path(given).expanduser().absolute()
    if os.name == "nt":
        base = Path(os.environ.get("LOCALAPPDATA") or "~/AppData/Local")
    elif sys.platform == "darwin":
        base = Path("~/Library/Caches")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return base.expanduser().absolute() / "oodzoo"


def cache_size() -> int:
    """The bound of the cache in bytes: that of the environment, else 20 GB."""
    return size_of_environment(SIZE, _DEFAULT_SIZE)


def size_of_environment(variable: str, default: int) -> int:
    """The bytes that an environment variable has, as `500M` or `20G`."""
    given = os.environ.get(variable)
    if not given:
        return default
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)B?\s*", given, re.IGNORECASE)
    if found is None:
        raise InputError(f"{variable} must be a size such as 500M or 20G, got {given!r}")
    return int(float(found[1]) * _UNITS[found[2].upper()])


def _path(file: RemoteFile) -> Path:
    key = hashlib.sha256(f"{file.url}\n{file.version}".encode(errors="surrogatepass")).hexdigest()
    suffix = Url(file.url).suffix
    name = key + (suffix if _SUFFIX.fullmatch(suffix) else "")
    return cache_folder() / "objects" / key[:2] / name


def _is_complete(path: Path, size: int | None) -> bool:
    try:
        found = path.stat().st_size
    except OSError:
        return False
    return size is None or found == size


def _write(path: Path, blocks: Iterable[bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / temporary_name()
    try:
        with temporary.open("xb") as stream:
            for block in blocks:
                stream.write(block)
        temporary.replace(path)
    except BaseException:  # including KeyboardInterrupt
        temporary.unlink(missing_ok=True)
        raise


def _limit(written: Path) -> None:
    """Remove the least recently used files if there are too many; the new one stays."""
    folder, bound = written.parent.parent, cache_size()
    before = _unmeasured.get(folder)
    with contextlib.suppress(OSError):
        _unmeasured[folder] = (before or 0) + written.stat().st_size
    if before is not None and (_unmeasured[folder] or 0) * _CHECKS < bound:
        return
    _unmeasured[folder] = 0
    files = _measure(folder)
    total = sum(size for _, size, _ in files)
    if total <= bound:
        return
    recent = time.time() - _IN_USE_SECONDS
    for used, size, path in sorted(files):
        if total <= bound * 0.9 or used > recent:
            return
        if path != str(written):
            with contextlib.suppress(OSError):  # removed by another process
                os.unlink(path)  # noqa: PTH108 - many files
            total -= size


def _measure(folder: Path) -> list[tuple[float, int, str]]:
    """Time, size and path of each file; temporary files of killed processes are removed."""
    files = []
    for part in folder.iterdir():
        with contextlib.suppress(OSError), os.scandir(part) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if is_temporary(entry.name):
                        if is_stale(Path(entry.path)):
                            Path(entry.path).unlink()
                        continue
                    found = entry.stat()
                    files.append((found.st_mtime, found.st_size, entry.path))
    return files
