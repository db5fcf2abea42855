"""Atomic file writes, folder locks and JSON documents."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import io
import json
import math
import os
import platform
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import DiskError, InputError

_TEMPORARY = ".tmp-"
_WRITER = re.compile(r"\.tmp-(?P<machine>[0-9a-f]{8})-(?P<pid>[1-9][0-9]{0,8})-[0-9a-f]{16}")
_STALE_SECONDS = 24 * 3600
_MAX_DEPTH = 64
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}

T = TypeVar("T")


_shown_names: dict[str, str] = {}


def name_folder(folder: Path, name: str) -> None:
    """Let messages show a folder, and the files in it, by another name."""
    _shown_names[str(folder)] = name


def shown(path: Path) -> str:
    """Return a path as messages show it."""
    text = str(path)
    for folder, name in _shown_names.items():
        if text == folder or text.startswith(folder + os.sep):
            return name + text.removeprefix(folder).replace(os.sep, "/")
    return text


def write_bytes(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write a file atomically: temporary name, fsync, rename, fsync of the folder.

    Without `durable` there is no fsync: after a power failure the file may be damaged, which is
    for caches whose readers find that out.
    """
    with explaining_disk_errors(path), _temporary(path.parent, content, durable) as temporary:
        temporary.replace(path)


def write_tidily(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write a file atomically, and remove what killed processes left in its folder."""
    remove_stale(path.parent)
    write_bytes(path, content, durable=durable)


def write_new(path: Path, content: bytes) -> bool:
    """Write a file atomically, only if it does not exist.

    Of several processes that write the same path at the same time, also on several machines,
    exactly one gets True. The others get False, and the file is left alone.
    """
    with explaining_disk_errors(path), _temporary(path.parent, content) as temporary:
        created = _rename_to_new(temporary, path)
        temporary.unlink(missing_ok=True)
    return created


def _rename_to_new(temporary: Path, path: Path) -> bool:
    """Give a temporary file its name unless that exists; the temporary name may remain."""
    try:
        if os.name == "nt":
            temporary.rename(path)  # fails if the target exists, on Windows only
        else:
            os.link(temporary, path)
    except FileExistsError:
        # NFS repeats a request whose reply was lost, so the first one may have succeeded
        return temporary.stat().st_nlink > 1
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        # not atomic: two processes may both find no file here, and the later one replaces it
        if os.path.lexists(path):
            return False
        temporary.replace(path)
    return True


@contextlib.contextmanager
def _temporary(folder: Path, content: bytes, durable: bool = True) -> Iterator[Path]:
    """Write a temporary file and, if it is to be durable, fsync it, and at the end the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / temporary_name()
    try:
        with temporary.open("xb") as file:  # O_CREAT | O_EXCL: no link is followed
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        yield temporary
    except FileExistsError:  # it is not ours
        raise
    except BaseException:  # including KeyboardInterrupt
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        _sync_folder(folder)


def temporary_name() -> str:
    """Name a temporary file or folder; other processes can tell whether its writer still runs."""
    # independent of the final name, which may be as long as the disk allows
    return f"{_TEMPORARY}{_machine()}-{os.getpid()}-{secrets.token_hex(8)}"


@functools.cache
def _machine() -> str:
    """Identify this machine and, in a container, its process numbers."""
    name = platform.node()
    with contextlib.suppress(OSError):
        name += str(Path("/proc/self/ns/pid").readlink())
    return hashlib.sha256(name.encode(errors="replace")).hexdigest()[:8]


def json_bytes(document: Any) -> bytes:
    """Serialise a document as JSON with sorted keys: the same content gives the same bytes."""
    text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    # a lone surrogate (from a path that is not UTF-8) becomes a JSON escape
    return text.encode("utf-8", "backslashreplace") + b"\n"


def write_json(path: Path, document: Any) -> None:
    """Write a document as JSON, atomically."""
    write_bytes(path, json_bytes(document))


def npy_bytes(array: NDArray[Any]) -> bytes:
    """Serialise an array in the .npy format."""
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(array), allow_pickle=False)
    return buffer.getvalue()


def read_json(path: Path, what: str) -> dict[str, Any]:
    """Read a file with a JSON object; `what` names it in error messages."""
    try:
        document = json.loads(
            path.read_text(encoding="utf-8"),
            parse_constant=_reject_constant,
            parse_float=_parse_float,
            parse_int=_parse_int,
        )
        _require_shallow(document)
    except OSError as error:
        raise InputError(f"cannot read {what} {shown(path)!r}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{what} {shown(path)!r} is damaged: {error}") from error
    if not isinstance(document, dict):
        raise InputError(f"{what} {shown(path)!r} is damaged: it is not a JSON object")
    return document


def _reject_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _parse_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text} is out of range")
    return value


def _parse_int(text: str) -> int:
    if len(text) > 20 or not -(1 << 63) <= int(text) < 1 << 64:
        raise ValueError(f"the number {text} is out of range")
    return int(text)


def _require_shallow(document: Any) -> None:
    """Reject a document that could not be written again: Python limits recursion."""
    level: list[Any] = [[document]]
    for _ in range(_MAX_DEPTH):
        parts = (part.values() if isinstance(part, dict) else part for part in level)
        level = [value for part in parts for value in part if type(value) in (dict, list)]
        if not level:
            return
    raise ValueError(f"it has more than {_MAX_DEPTH} levels of brackets")


def structured(document: Any, kind: type[T], what: str) -> T:
    """Convert a JSON document to a typed object; `what` names it in error messages.

    Keys may be numbers in the object, which JSON has as strings; values may not. Classes that are
    not plain data have `from_document`.
    """
    try:
        return msgspec.convert(document, kind, str_keys=True, dec_hook=_from_document)
    except (msgspec.ValidationError, UnicodeError) as error:  # of a key
        raise InputError(f"{what} is damaged: {error}") from error


def _from_document(kind: Any, document: Any) -> Any:
    return kind.from_document(document)


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


def require_folder_name(name: str, context: str) -> None:
    """Reject a name that cannot be a folder in a feature store, on any operating system."""
    if (
        not name
        or name.startswith(".")  # hidden, or the parent folder
        or any(c in '/\\:*?"<>|' or not c.isprintable() for c in name)
        or name != name.strip()
        or len(name.encode(errors="replace")) > 180
    ):
        raise InputError(f"{context}: the name {name!r} cannot be the name of a folder")


def is_temporary(name: str) -> bool:
    """Whether a file name is that of a temporary file."""
    return _WRITER.fullmatch(name) is not None


def remove_temporaries(folder: Path) -> None:
    """Remove the temporary files of killed writers anywhere below a folder.

    Files that are being written stay, also those of other machines; no lock is needed.
    """
    for parent, _, names in os.walk(folder):
        for path in (Path(parent, name) for name in names if is_temporary(name)):
            with contextlib.suppress(OSError):  # removed by another process, or not permitted
                if is_stale(path):
                    path.unlink()


def remove_stale(folder: Path) -> None:
    """Remove the temporary files and folders of killed runs in a folder, not in those below it."""
    with contextlib.suppress(OSError):  # not permitted
        for entry in list(folder.iterdir()):
            with contextlib.suppress(OSError):  # removed by another process, or not permitted
                if not is_temporary(entry.name) or not is_stale(entry):
                    continue
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry, ignore_errors=True)
                else:
                    entry.unlink()


def is_stale(temporary: Path) -> bool:
    """Whether nobody writes a temporary file any more."""
    writer = _WRITER.fullmatch(temporary.name)
    if writer is None:
        return False
    if time.time() - temporary.lstat().st_mtime > _STALE_SECONDS:
        return True
    return writer["machine"] == _machine() and not _is_running(int(writer["pid"]))


def _is_running(pid: int) -> bool:
    if os.name == "nt":  # os.kill would end the process there
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # a process of another user
        pass
    return True


@contextlib.contextmanager
def locked(folder: Path, *, shared: bool = False) -> Iterator[None]:
    """Hold the lock of a folder; raise InputError if another process holds it.

    Several processes may hold a shared lock at the same time (not on Windows, where each lock
    is exclusive). The lock is also released when the process ends.
    """
    with explaining_disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = _open_lock(folder / ".lock")
    with file:
        with explaining_disk_errors(folder):
            acquired = _try_lock(file.fileno(), shared=shared)
        if not acquired:
            file.seek(0)
            owner = re.fullmatch(r"process \d+", file.read(64).decode(errors="replace"))
            raise InputError(
                f"{shown(folder)!r} is being written by another process"
                f"{f' ({owner[0]})' if owner else ''}; "
                "wait until it ends, or choose another folder"
            )
        file.truncate(0)  # a killed process has left its number
        if not shared:
            with contextlib.suppress(OSError):  # informational only; the disk may be full
                file.write(f"process {os.getpid()}".encode())
        try:
            yield
        finally:
            if not shared:
                file.truncate(0)  # the content of the folder must not depend on its writer


def _open_lock(path: Path) -> io.FileIO:
    def without_links(name: str, flags: int) -> int:
        return os.open(name, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)

    try:
        return open(path, "a+b", buffering=0, opener=without_links)
    except OSError as error:
        if path.is_symlink():
            raise InputError(
                f"{str(path)!r} is a symbolic link, which is not used as a lock; remove the link"
            ) from error
        raise


def _try_lock(descriptor: int, *, shared: bool) -> bool:
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
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
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
