"""Filesystems of fsspec: one for each protocol, opened in each process."""

from __future__ import annotations

import os
from collections import deque
from typing import Any

from oodzoo._packages import optional_package
from oodzoo._text import did_you_mean, one_line
from oodzoo.remote.failures import RemoteError
from oodzoo.remote.location import Url

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
_idle: dict[Any, deque[Any]] = {}


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


def shared_filesystem(url: Url) -> Any | None:
    """The filesystem of this process for asynchronous requests; None if its requests block.

    It is not shared over a fork: its connections and its event loop belong to one process. It is
    opened again if the environment gets other credentials or another endpoint.
    """
    cls = filesystem_class(url)
    if not getattr(cls, "async_impl", False):
        return None
    key = _key(url, cls)
    if key not in _opened:
        _opened.setdefault(key, _open(url, cls))  # connects with its first request
    return _opened[key]


def take_filesystem(url: Url) -> Any:
    """A filesystem for blocking requests that nobody else uses; see :func:`give_back`."""
    cls = filesystem_class(url)
    try:
        return _idle.setdefault(_key(url, cls), deque()).pop()
    except IndexError:
        return _open(url, cls)


def give_back(url: Url, filesystem: Any) -> None:
    """Keep a filesystem for the next request; leave it out if its request has failed."""
    _idle.setdefault(_key(url, filesystem_class(url)), deque()).append(filesystem)


def _key(url: Url, cls: Any) -> Any:
    settings = tuple(sorted(i for i in os.environ.items() if i[0].startswith(_SETTINGS)))
    options = repr(sorted(cls._get_kwargs_from_urls(str(url)).items()))
    return os.getpid(), url.scheme, options, settings


def _open(url: Url, cls: Any) -> Any:
    try:
        filesystem = cls(
            use_listings_cache=False,
            skip_instance_cache=True,
            **cls._get_kwargs_from_urls(str(url)),
        )
    except Exception as error:
        raise RemoteError(f"{str(url)!r} cannot be opened: {one_line(error)}") from error
    if hasattr(filesystem, "config_kwargs"):  # s3fs
        # Requests are repeated, and have their deadlines, in oodzoo.remote.requests only.
        defaults = {
            "retries": {"max_attempts": 0},
            "read_timeout": 3600,
            "max_pool_connections": _CONNECTIONS,
        }
        filesystem.config_kwargs = defaults | filesystem.config_kwargs
        filesystem.retries = 1
        filesystem.max_concurrency = 1  # more would ask for the size before each reading
    return filesystem
