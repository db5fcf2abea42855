"""Writing to disk so that a kill at any moment loses nothing and leaves nothing half-written."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from oodzoo.errors import DiskError, InputError

_TEMPORARY = ".tmp-"

T = TypeVar("T")


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Write a file whole or not at all: temporary name, fsync, rename, fsync of the folder."""
    with explaining_disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.parent / f"{_TEMPORARY}{path.name}"
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:  # an interruption too
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)


def write_json(path: Path, document: Any) -> None:
    """Write JSON, the same bytes for the same content."""
    text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    # half a pair of surrogates (a path that is no UTF-8) becomes the escape that JSON has for it
    write_bytes(path, text.encode("utf-8", "backslashreplace") + b"\n")


def npy_bytes(array: NDArray[Any]) -> memoryview:
    """The content of a .npy file of an array."""
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(array), allow_pickle=False)
    return buffer.getbuffer()


def read_json(path: Path, what: str) -> dict[str, Any]:
    """Read a JSON object that oodzoo wrote; `what` names it in the message if that fails."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {what} {str(path)!r}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{what} {str(path)!r} is damaged: {error}") from error
    if not isinstance(document, dict):
        raise InputError(f"{what} {str(path)!r} is damaged: it holds no JSON object")
    return document


def structured(document: Any, kind: type[T], what: str) -> T:
    """Convert a JSON document to a typed object; `what` names it in the message if that fails."""
    try:
        return msgspec.convert(document, kind, strict=False)
    except msgspec.ValidationError as error:
        raise InputError(f"{what} is damaged: {error}") from error


def require_schema(document: dict[str, Any], known: int, what: str, advice: str) -> None:
    """Reject a document of another schema; `advice` is for one that is older."""
    found = document.get("schema")
    if found != known:
        newer = isinstance(found, int) and found > known
        raise InputError(
            f"{what} has the schema {found!r}, this version of oodzoo reads {known}; "
            f"{'upgrade oodzoo' if newer else advice}"
        )


def file_digest(path: Path) -> str:
    """SHA-256 of the content of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remove_temporaries(folder: Path) -> None:
    """Remove what a killed writer left below a folder; call it with the folder's lock held."""
    for stale in folder.rglob(f"{_TEMPORARY}*"):
        stale.unlink(missing_ok=True)


def final_name(name: str) -> str:
    """The name that a file has, or will have once its writing is finished."""
    return name.removeprefix(_TEMPORARY)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; it dies with its process. A second writer gets a clear line."""
    with explaining_disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("a+b", buffering=0)
    with file:
        with explaining_disk_errors(folder):
            mine = _try_lock(file.fileno())
        if not mine:
            file.seek(0)
            owner = file.read().decode(errors="replace").strip() or "unknown"
            raise InputError(
                f"{str(folder)!r} is being written by another process ({owner}); "
                "wait until it ends, or write elsewhere"
            )
        file.truncate(0)
        with contextlib.suppress(OSError):  # who writes is a courtesy; the disk may be full
            file.write(f"process {os.getpid()}".encode())
        try:
            yield
        finally:
            file.truncate(0)  # nothing in the folder depends on who wrote it


def _try_lock(descriptor: int) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        # One fixed byte that nobody reads: there a lock keeps others from reading, too.
        os.lseek(descriptor, 1 << 20, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def explaining_disk_errors(path: Path) -> Iterator[None]:
    """Turn the disk's refusals into one line that says what to do."""
    try:
        yield
    except OSError as error:
        advice = {
            errno.ENOSPC: "the disk is full; free some space and run the same command again: "
            "finished work is kept",
            errno.EDQUOT: "your disk quota is used up; free some space and run the same command "
            "again: finished work is kept",
            errno.EROFS: "the disk is read-only; choose another folder",
            errno.EACCES: "you may not write there; choose another folder or change its rights",
            errno.EPERM: "you may not write there; choose another folder or change its rights",
            errno.ENOTDIR: "a part of the path is a file, not a folder",
            errno.EEXIST: "there is a file where a folder is needed",
        }.get(error.errno or 0, error.strerror or str(error))
        raise DiskError(f"cannot write {str(path)!r}: {advice}") from error


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
