"""Locations that a user gives: paths and URLs."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from oodzoo.core.errors import InputError

# at least two letters: "C:" is a drive
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+)://(?P<rest>.*)", re.DOTALL)
_MANGLED = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9]+):[/\\](?P<rest>[^/\\].*)?", re.DOTALL)
_SCHEMES = {
    "abfs", "abfss", "adl", "az", "file", "ftp", "gcs", "gs", "hdfs", "hf", "http", "https",
    "memory", "oci", "oss", "s3", "s3a", "sftp", "smb", "ssh", "webdav", "webhdfs",
}  # fmt: skip
_BUCKETS = {"gcs", "gs", "s3", "s3a"}


@dataclass(frozen=True)
class Url:
    """A URL, without a slash at its end.

    Nothing in it is decoded: `%20`, `?` and `#` are part of the name of an object.

    Examples
    --------
    >>> url = Url("s3://bucket/photos/") / "cat.jpg"
    >>> str(url), url.name, url.suffix, str(url.parent)
    ('s3://bucket/photos/cat.jpg', 'cat.jpg', '.jpg', 's3://bucket/photos')
    """

    text: str

    def __post_init__(self) -> None:
        found = _URL.fullmatch(self.text)
        if found is None:
            raise InputError(f"{self.text!r} is not a URL such as s3://bucket/folder")
        text = f"{found['scheme'].lower()}://{found['rest'].rstrip('/')}"
        object.__setattr__(self, "text", text)

    def __str__(self) -> str:
        return self.text

    def __truediv__(self, name: str) -> Url:
        return Url(self.text + ("" if self.text.endswith("/") else "/") + name)

    @property
    def scheme(self) -> str:
        """The part before `://`, in lower case."""
        return self.text.partition("://")[0]

    @property
    def name(self) -> str:
        """The last part; empty if there is no part."""
        return self.text.partition("://")[2].rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The suffix of the name, with its dot; empty if there is none."""
        return Path(self.name).suffix

    @property
    def parent(self) -> Url:
        """The URL without its last part."""
        rest = self.text.partition("://")[2]
        return Url(f"{self.scheme}://{rest.rpartition('/')[0]}")


def is_url(text: str) -> bool:
    """Whether a text begins with `scheme://`.

    Examples
    --------
    >>> is_url("s3://bucket/pacs"), is_url("photos/pacs"), is_url("C://photos")
    (True, False, False)
    """
    return _URL.fullmatch(text) is not None


def url_of_path(path: str) -> str | None:
    """The URL that pathlib has turned into a path; None if it is a path.

    Examples
    --------
    >>> url_of_path("s3:/bucket/pacs"), url_of_path("photos/pacs")
    ('s3://bucket/pacs', None)
    """
    found = _MANGLED.fullmatch(path)
    if found is None or found["scheme"].lower() not in _SCHEMES:
        return None
    rest = (found["rest"] or "").replace("\\", "/")
    return f"{found['scheme']}://{rest}"


def parse_location(given: str | os.PathLike[str]) -> Path | Url:
    """Read a location that a user gives: a URL, or a path; `file://` is a path.

    Raises
    ------
    InputError
        If it is a URL that pathlib has changed, or one that names no bucket or has a password.

    Examples
    --------
    >>> parse_location("s3://bucket/pacs")
    Url(text='s3://bucket/pacs')
    """
    text = os.fspath(given)
    if url_of_path(text) is not None:
        raise InputError(
            f"{text!r} is not a URL: it needs two slashes, as {url_of_path(text)}; in Python give "
            "it as text, because pathlib.Path removes one"
        )
    if isinstance(given, os.PathLike) or not is_url(text):
        return Path(given)
    url = Url(text)
    parts = text.partition("://")[2].partition("/")
    if url.scheme == "file":
        if parts[0] not in ("", "localhost"):
            raise InputError(f"{text!r} names the host {parts[0]!r}; a local file is file:///…")
        from urllib.request import url2pathname

        return Path(url2pathname(f"/{parts[2]}"))
    if url.scheme in _BUCKETS and not parts[0]:
        raise InputError(f"{text!r} names no bucket; expected {url.scheme}://bucket/…")
    if ":" in parts[0].rpartition("@")[0]:
        raise InputError(
            f"the {url.scheme}:// URL of {parts[0].rpartition('@')[2]!r} contains a password, "
            "which would be written into files; put it into the configuration of fsspec"
        )
    return url
