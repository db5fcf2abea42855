"""Files at URLs (`s3://`, `gs://`, `memory://`, …): listing, reading, writing, a local cache."""

from __future__ import annotations

from oodzoo.remote.cache import cached_file, drop_cached
from oodzoo.remote.failures import RemoteError
from oodzoo.remote.location import Url, is_url, parse_location
from oodzoo.remote.objects import (
    RemoteFile,
    create_file,
    find_file,
    list_files,
    read_file,
    remove_files,
    write_file,
)

__all__ = [
    "RemoteError",
    "RemoteFile",
    "Url",
    "cached_file",
    "create_file",
    "drop_cached",
    "find_file",
    "is_url",
    "list_files",
    "parse_location",
    "read_file",
    "remove_files",
    "write_file",
]
