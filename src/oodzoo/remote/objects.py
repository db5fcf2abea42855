"""Whole objects at URLs: listed, read, written, removed."""

from __future__ import annotations

import binascii
import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import msgspec

from oodzoo.errors import InputError
from oodzoo.remote.failures import (
    EndedEarlyError,
    RemoteError,
    already_exists,
    bucket_is_missing,
)
from oodzoo.remote.filesystems import filesystem_class, shared_filesystem
from oodzoo.remote.location import Url
from oodzoo.remote.requests import (
    SECOND_AFTER,
    SLOW,
    call,
    call_s3,
    failure,
    repeated,
    request,
)

BLOCK = 8 * 2**20
"""Bytes of one request; larger objects are read in several."""
_PARALLEL = 4
_UNKNOWN = 64 * 2**20  # for the deadline of an object of unknown size
_LONG = 600 * 2**20  # a listing of many pages: ten minutes
_TIMES = ("LastModified", "last_modified", "mtime", "modified", "updated", "created")


class RemoteFile(msgspec.Struct, frozen=True):
    """An object when it was listed.

    Attributes
    ----------
    url : str
    size : int or None
        None if the server does not tell it.
    version : str
        The MD5 or the ETag if there is one, else its time and size.
    """

    url: str
    size: int | None
    version: str


def list_files(url: Url) -> list[RemoteFile]:
    """List all objects below a URL, sorted by URL; hidden ones too.

    Raises
    ------
    RemoteError
        If the bucket does not exist or cannot be listed. Lists of web servers have no versions.
    """
    if url.scheme in ("http", "https"):
        raise RemoteError(
            f"{str(url)!r}: a web server gives no list of files; give the URLs of files, or a "
            "table of them"
        )
    path = filesystem_class(url)._strip_protocol(str(url)).rstrip("/")
    with _explained(url):
        found = _entries(url)
    files = []
    for name, info in found:
        below = name.removeprefix(path)
        if info.get("type", "file") != "file" or name.endswith("/") or not below.startswith("/"):
            continue  # a folder, or the object that has this URL
        files.append(_remote_file(str(url / below[1:]), info))
    return sorted(files, key=lambda file: file.url)


def find_file(url: Url) -> RemoteFile | None:
    """Look up one object; None if there is none with this URL."""
    try:
        info = request(url, "info")
    except (FileNotFoundError, NotADirectoryError) as error:
        if bucket_is_missing(error):
            raise failure(url, error) from error
        return None
    except Exception as error:
        raise _failure(url, error) from error
    return _remote_file(str(url), info) if info.get("type") == "file" else None


def read_file(file: RemoteFile) -> bytes:
    """Read an object as it was listed.

    Raises
    ------
    RemoteError
        If it cannot be read, or has changed since it was listed.
    """
    blocks = list(iter_blocks(file))
    return blocks[0] if len(blocks) == 1 else b"".join(blocks)


def iter_blocks(file: RemoteFile) -> Iterator[bytes]:
    """Read an object block by block; the last step raises if it has changed since it was listed."""
    digest = hashlib.md5(usedforsecurity=False)
    for block in _blocks(Url(file.url), file):
        digest.update(block)
        yield block
    # On S3 and GCS, the version is the MD5 of the content, unless it was encrypted or uploaded in
    # parts: one request is enough.
    if digest.hexdigest() != file.version:
        _require_unchanged(file)


def write_file(url: Url, content: bytes) -> None:
    """Write an object as a whole; readers get the old one or the new one."""
    with _explained(url):
        request(url, "pipe_file", content, n_bytes=len(content))


def create_file(url: Url, content: bytes) -> bool:
    """Write an object if there is none with this URL; return whether it was written.

    Of several processes that do this at the same time, one gets True; the others must have
    other contents. On protocols without exclusive creation, this is not certain.
    """
    attempts = 0

    def attempt(deadline: float) -> bool:
        nonlocal attempts
        attempts += 1
        try:
            call(url, "pipe_file", content, mode="create", deadline=deadline)
        except Exception as error:
            if not already_exists(error):
                raise
            if attempts == 1:
                return False
            # an attempt whose answer was lost may have succeeded
            file = find_file(url)
            return file is not None and read_file(file) == content
        return True

    with _explained(url):
        return repeated(url, attempt, n_bytes=len(content))


def remove_files(urls: Iterable[Url]) -> None:
    """Remove objects; those that do not exist are left out."""

    def remove(url: Url) -> None:
        with _explained(url), contextlib.suppress(FileNotFoundError):
            request(url, "rm_file")

    with ThreadPoolExecutor(_PARALLEL) as pool:
        list(pool.map(remove, urls))


# --- requests ----------------------------------------------------------------------------------


@contextlib.contextmanager
def _explained(url: Url) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise _failure(url, error) from error


def _failure(url: Url, error: Exception) -> Exception:
    return error if isinstance(error, InputError) else failure(url, error)


def _entries(url: Url) -> list[tuple[str, Mapping[str, Any]]]:
    filesystem = shared_filesystem(url)
    if filesystem is not None and hasattr(filesystem, "_call_s3"):
        return list(_s3_entries(url, filesystem))
    try:
        found = request(url, "find", detail=True, n_bytes=_LONG)
    except FileNotFoundError as error:
        if bucket_is_missing(error):
            raise
        return []
    return list(found.items())


def _s3_entries(url: Url, filesystem: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """List objects in S3 page by page: a page that fails is repeated, not the whole listing."""
    bucket, key, _ = filesystem.split_path(str(url))
    parameters = {"Bucket": bucket, "Prefix": f"{key}/" if key else ""}
    while True:
        page = repeated(
            url,
            lambda deadline: call_s3(filesystem, "list_objects_v2", deadline, **parameters),
        )
        for entry in page.get("Contents", ()):
            yield f"{bucket}/{entry['Key']}", {**entry, "size": entry["Size"]}
        if not page.get("IsTruncated"):
            return
        parameters["ContinuationToken"] = page["NextContinuationToken"]


def _blocks(url: Url, file: RemoteFile) -> Iterator[bytes]:
    if file.size is None or file.size <= BLOCK:
        yield _read(url, file, file.size)
        return
    starts = range(0, file.size, BLOCK)
    with ThreadPoolExecutor(_PARALLEL) as pool:
        for first in range(0, len(starts), _PARALLEL):
            yield from pool.map(
                lambda start: _read(
                    url,
                    file,
                    min(BLOCK, file.size - start),
                    start=start,
                    end=min(start + BLOCK, file.size),
                ),
                starts[first : first + _PARALLEL],
            )


def _read(url: Url, file: RemoteFile, size: int | None, **limits: int) -> bytes:
    def attempt(deadline: float) -> bytes:
        second = SECOND_AFTER + (size or 0) / SLOW
        content: bytes = call(url, "cat_file", deadline=deadline, second_after=second, **limits)
        if size is not None and len(content) != size:
            _require_unchanged(file)
            raise EndedEarlyError(f"a response ended early, after {len(content)} of {size} bytes")
        return content

    try:
        return repeated(url, attempt, n_bytes=_UNKNOWN if size is None else size)
    except FileNotFoundError as error:
        if bucket_is_missing(error):
            raise failure(url, error) from error
        raise _changed(file, "it no longer exists") from error
    except Exception as error:
        raise _failure(url, error) from error


def _require_unchanged(file: RemoteFile) -> None:
    found = find_file(Url(file.url))
    if found is None:
        raise _changed(file, "it no longer exists")
    if found.version != file.version:
        raise _changed(file, "it is another version")


def _changed(file: RemoteFile, what: str) -> RemoteError:
    return RemoteError(
        f"{file.url!r} has changed since it was listed: {what}; run the command again when "
        "nobody writes there"
    )


def _remote_file(url: str, info: Mapping[str, Any]) -> RemoteFile:
    size = info.get("size")
    if digest := info.get("md5Hash"):  # of GCS, in base 64
        return RemoteFile(url, size, binascii.a2b_base64(digest).hex())
    if tag := info.get("ETag") or info.get("etag"):
        return RemoteFile(url, size, str(tag).strip('"'))
    time = next((info[name] for name in _TIMES if info.get(name) is not None), "")
    if isinstance(time, datetime):
        time = time.timestamp()
    return RemoteFile(url, size, f"{time}-{size}")
