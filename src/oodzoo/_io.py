"""Atomic file writes, folder locks and JSON documents."""

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


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically: temporary name, fsync, rename, fsync of the folder."""
    with explaining_disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.parent / f"{_TEMPORARY}{path.name}"
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:  # including KeyboardInterrupt
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)


def write_json(path: Path, document: Any) -> None:
    """Write JSON with sorted keys: the same content gives the same bytes."""
    text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    # a lone surrogate (from a path that is not UTF-8) becomes a JSON escape
    write_bytes(path, text.encode("utf-8", "backslashreplace") + b"\n")


def npy_bytes(array: NDArray[Any]) -> bytes:
    """Serialise an array in the .npy format."""
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(array), allow_pickle=False)
    return buffer.getvalue()


def read_json(path: Path, what: str) -> dict[str, Any]:
    """Read a file with a JSON object; `what` names it in error messages."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {what} {str(path)!r}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{what} {str(path)!r} is damaged: {error}") from error
    if not isinstance(document, dict):
        raise InputError(f"{what} {str(path)!r} is damaged: it is not a JSON object")
    return document


def structured(document: Any, kind: type[T], what: str) -> T:
    """Convert a JSON document to a typed object; `what` names it in error messages."""
    try:
        return msgspec.convert(document, kind, strict=False)
    except msgspec.ValidationError as error:
        raise InputError(f"{what} is damaged: {error}") from error


def require_schema(document: dict[str, Any], known: int, what: str, advice: str) -> None:
    """Reject a document of another schema; `advice` says what to do with an older one."""
    found = document.get("schema")
    if found != known:
        newer = isinstance(found, int) and found > known
        raise InputError(
            f"{what} has the schema {found!r}, this version of oodzoo reads {known}; "
            f"{'upgrade oodzoo' if newer else advice}"
        )


def file_digest(path: Path) -> str:
    """Compute the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remove_temporaries(folder: Path) -> None:
    """Remove the temporary files of a killed writer; the caller holds the lock of the folder."""
    for stale in folder.rglob(f"{_TEMPORARY}*"):
        stale.unlink(missing_ok=True)


def final_name(name: str) -> str:
    """Return the final name of a file, which may still have its temporary one."""
    return name.removeprefix(_TEMPORARY)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the exclusive lock of a folder; raise InputError if another process holds it.

    The lock is also released when the process ends.
    """
    with explaining_disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("a+b", buffering=0)
    with file:
        with explaining_disk_errors(folder):
            acquired = _try_lock(file.fileno())
        if not acquired:
            file.seek(0)
            owner = file.read().decode(errors="replace").strip() or "unknown"
            raise InputError(
                f"{str(folder)!r} is being written by another process ({owner}); "
                "wait until it ends, or choose another folder"
            )
        file.truncate(0)
        with contextlib.suppress(OSError):  # informational only; the disk may be full
            file.write(f"process {os.getpid()}".encode())
        try:
            yield
        finally:
            file.truncate(0)  # the content of the folder must not depend on its writer


def _try_lock(descriptor: int) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        # A byte beyond the content: on Windows a locked byte cannot be read by others.
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
    """Turn an OSError of a write into a :class:`DiskError` that says what to do."""
    try:
        yield
    except OSError as error:
        advice = {
            errno.ENOSPC: f"the disk is full; {_RESUME}",
            errno.EDQUOT: f"the disk quota is exceeded; {_RESUME}",
            errno.EROFS: "the disk is read-only; choose another folder",
            errno.EACCES: _DENIED,
            errno.EPERM: _DENIED,
            errno.ENOTDIR: "a part of the path is a file, not a folder",
            errno.EEXIST: "there is a file where a folder is needed",
        }.get(error.errno or 0, error.strerror or str(error))
        raise DiskError(f"cannot write {str(path)!r}: {advice}") from error


_RESUME = "free some space and rerun the command to resume: finished work is kept"
_DENIED = "permission denied; choose another folder or change its permissions"


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
