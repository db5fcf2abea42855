"""Whole objects at URLs: listed, read, written, removed; and why a request failed, in plain words.

Requests are repeated by the clients of the object stores, not here.
"""

from __future__ import annotations

import binascii
import contextlib
import errno
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import msgspec

from oodzoo.core.errors import InputError
from oodzoo.core.packages import optional_package
from oodzoo.core.remote.location import Url
from oodzoo.core.text import did_you_mean, one_line


class RemoteError(InputError):
    """A file at a URL cannot be listed, read or written."""


# by name: the packages that raise them are optional
_NO_CREDENTIALS = {
    "CredentialRetrievalError",
    "DefaultCredentialsError",
    "NoAuthTokenError",
    "NoCredentialsError",
    "PartialCredentialsError",
    "ProfileNotFound",
    "TokenRetrievalError",
    "UnauthorizedSSOTokenError",
}
_UNREACHABLE = {
    "ClientConnectorError",
    "ConnectTimeoutError",
    "EndpointConnectionError",
    "ProxyConnectionError",
    "gaierror",
}
_INVALID = {"ParamValidationError", "InvalidRegionError", "NoRegionError", "UnknownServiceError"}
_EXISTS = {"PreconditionFailed", "412", "ConditionalRequestConflict"}
_PERMANENT = (
    FileExistsError,
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
    NotImplementedError,  # raised by fsspec for what a protocol cannot do, such as writing by https
    TypeError,
    ValueError,
)
_REFUSED = {errno.EINVAL, errno.EPERM, errno.ENOSYS, errno.ENAMETOOLONG, errno.EMSGSIZE}


def reported(error: Exception) -> Exception:
    """What the server has reported: fsspec calls any error of a web server a missing file."""
    cause = error.__cause__ if isinstance(error, FileNotFoundError) else error
    if not isinstance(cause, Exception) or not type(cause).__module__.startswith("aiohttp"):
        return error
    status = getattr(cause, "status", None)
    if status in (404, 410):
        return FileNotFoundError(str(cause))
    if status in (401, 403):
        return PermissionError(f"{status} {getattr(cause, 'message', '')}".strip())
    if isinstance(status, int) and 400 <= status < 500:
        return OSError(errno.EINVAL, one_line(cause))
    return cause


def bucket_is_missing(error: BaseException) -> bool:
    """Whether not only the object but its whole bucket does not exist."""
    return _code(error) == "NoSuchBucket"


def already_exists(error: BaseException) -> bool:
    """Whether an exclusive creation failed because the object exists."""
    return isinstance(error, FileExistsError) or _code(error) in _EXISTS


def explain(error: BaseException, scheme: str) -> str:
    """Say what went wrong and what to do."""
    names = {type(cause).__name__ for cause in _causes(error)}
    if names & _NO_CREDENTIALS:
        return f"there are no credentials ({one_line(error)}); {_CREDENTIALS.get(scheme, _GIVE)}"
    if names & _UNREACHABLE:
        return f"{one_line(error).rstrip('.')}; check the network, and the address of the endpoint"
    if bucket_is_missing(error):
        return "the bucket does not exist; check its name"
    if isinstance(error, FileNotFoundError):
        return "it does not exist; check the URL"
    if isinstance(error, PermissionError):
        return f"access is denied ({one_line(error)}); check the credentials and their permissions"
    if isinstance(error, NotImplementedError):
        return f"{scheme}:// cannot do this; use another protocol"
    if (
        names & _INVALID
        or isinstance(error, _PERMANENT)
        or (isinstance(error, OSError) and error.errno in _REFUSED)
    ):
        return one_line(error)
    return f"{one_line(error).rstrip('.')}; check the network, and rerun the command"


_GIVE = "see the documentation of fsspec"
_S3 = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run aws configure; for a "
    "public bucket set FSSPEC_S3_ANON=true"
)
_GS = "run gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS"
_CREDENTIALS = {"s3": _S3, "s3a": _S3, "gs": _GS, "gcs": _GS}


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(8):
        if error is None:
            return
        yield error
        error = error.__cause__


def _code(error: BaseException) -> str:
    """The error code of S3; empty if there is none."""
    for cause in _causes(error):
        response = getattr(cause, "response", None)
        if isinstance(response, dict):
            return str(response.get("Error", {}).get("Code", ""))
    return ""


BLOCK = 8 * 2**20
"""Bytes of one request; larger objects are read in several."""
_PARALLEL = 4
_TIMES = ("LastModified", "last_modified", "mtime", "modified", "updated", "created")

_PACKAGES = {
    "s3": ("s3fs", "s3"),
    "s3a": ("s3fs", "s3"),
    "gs": ("gcsfs", "gs"),
    "gcs": ("gcsfs", "gs"),
}
"""Protocol: its package, and the extra that installs it."""
_SETTINGS = ("AWS_", "AZURE_", "GOOGLE_")
_CONNECTIONS = 64

_opened: dict[Any, Any] = {}


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
    try:
        found = request(url, "find", detail=True)
    except Exception as error:
        if not isinstance(error, FileNotFoundError) or bucket_is_missing(error):
            raise _failure(url, error) from error
        found = {}
    files = []
    for name, info in found.items():
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
            raise _failure(url, error) from error
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
        request(url, "pipe_file", content)


def create_file(url: Url, content: bytes) -> bool:
    """Write an object if there is none with this URL; return whether it now has this content.

    Of several processes that do this at the same time with different contents, one gets True. On
    protocols without exclusive creation, this is not certain.
    """
    with _explained(url):
        try:
            request(url, "pipe_file", content, mode="create")
        except Exception as error:
            if not already_exists(error):
                raise
            # it may be ours: an attempt of the client whose answer was lost
            file = find_file(url)
            return file is not None and read_file(file) == content
        return True


def remove_files(urls: Iterable[Url]) -> None:
    """Remove objects; those that do not exist are left out."""

    def remove(url: Url) -> None:
        with _explained(url), contextlib.suppress(FileNotFoundError):
            request(url, "rm_file")

    with ThreadPoolExecutor(_PARALLEL) as pool:
        list(pool.map(remove, urls))


# --- requests ----------------------------------------------------------------------------------


def filesystem_class(url: Url) -> Any:
    """The class of fsspec for a protocol; an error if it is unknown or its package is missing."""
    package, extra = _PACKAGES.get(url.scheme, ("fsspec", "remote"))
    purpose = f"{str(url)!r}: {url.scheme}://"
    registry = optional_package("fsspec.registry", extra=extra, purpose=purpose)
    if package != "fsspec":
        optional_package(package, extra=extra, purpose=purpose)
    try:
        return registry.get_filesystem_class(url.scheme)
    except ValueError:
        known = sorted({*registry.known_implementations, *registry.registry})
        raise RemoteError(
            f"{str(url)!r}: unknown protocol {url.scheme!r}; "
            f"{did_you_mean(url.scheme, known) or 'expected one such as s3, gs or https'}"
        ) from None
    except ImportError as error:
        raise RemoteError(f"{str(url)!r}: a package is missing: {one_line(error)}") from error


def open_filesystem(url: Url) -> Any:
    """The filesystem of a URL, to be used by this thread of this process.

    Threads share those with asynchronous requests, whose connections and event loop belong to one
    process; fsspec keeps one of the others for each thread. With other credentials or another
    endpoint in the environment, another one is opened.
    """
    cls = filesystem_class(url)
    options = cls._get_kwargs_from_urls(str(url))
    is_shared = getattr(cls, "async_impl", False)
    settings = tuple(sorted(i for i in os.environ.items() if i[0].startswith(_SETTINGS)))
    key = os.getpid(), url.scheme, repr(sorted(options.items())), settings
    if is_shared and key in _opened:
        return _opened[key]
    try:
        filesystem = cls(use_listings_cache=False, skip_instance_cache=is_shared, **options)
    except Exception as error:
        raise RemoteError(f"{str(url)!r} cannot be opened: {one_line(error)}") from error
    if hasattr(filesystem, "config_kwargs"):  # s3fs
        # Its own attempts contain those of botocore, twice when reading: with the defaults of both,
        # minutes would pass before an endpoint that is not there is reported.
        defaults = {"retries": {"mode": "standard"}, "max_pool_connections": _CONNECTIONS}
        filesystem.config_kwargs = defaults | filesystem.config_kwargs
        filesystem.retries = 3
        filesystem.max_concurrency = 1  # more would ask for the size before each reading
    # connects with its first request, so one that another thread has opened first costs nothing
    return _opened.setdefault(key, filesystem) if is_shared else filesystem


def request(url: Url, method: str, *args: Any, **options: Any) -> Any:
    """Call a method of the filesystem of a URL, such as `cat_file`, on the path of the URL."""
    filesystem = open_filesystem(url)
    try:
        path = filesystem._strip_protocol(str(url))
        return getattr(filesystem, method)(path, *args, **options)
    except Exception as error:
        if (found := reported(error)) is not error:
            raise found from None
        raise


@contextlib.contextmanager
def _explained(url: Url) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise _failure(url, error) from error


def _failure(url: Url, error: Exception) -> Exception:
    """The error of a request as one line that quotes the URL."""
    if isinstance(error, InputError):
        return error
    return RemoteError(f"{str(url)!r}: {explain(error, url.scheme)}")


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
    try:
        content: bytes = request(url, "cat_file", **limits)
    except FileNotFoundError as error:
        if bucket_is_missing(error):
            raise _failure(url, error) from error
        raise _changed(file, "it no longer exists") from error
    except Exception as error:
        raise _failure(url, error) from error
    if size is not None and len(content) != size:
        _require_unchanged(file)
        ended = OSError(f"a response ended early, after {len(content)} of {size} bytes")
        raise _failure(url, ended)
    return content


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
