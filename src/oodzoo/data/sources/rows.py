"""Rows that name image files: the common part of CSV tables, Parquet tables and DataFrames."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from oodzoo.core.errors import InputError
from oodzoo.core.remote.location import Url, is_url, parse_location
from oodzoo.core.remote.objects import RemoteFile, find_file, list_files
from oodzoo.core.threads import Prefetch
from oodzoo.data.contents import READ_AHEAD, REMOTE_READERS
from oodzoo.data.files import ImageFile, LocalFile, RemoteImage
from oodzoo.data.listing import Listing, Sample
from oodzoo.data.sources.columns import as_groups, as_names
from oodzoo.data.sources.targets import read_targets
from oodzoo.tasks import Kind


class Row(NamedTuple):
    """One image: the number of its row or line, and what is written there."""

    number: int
    path: str
    domain: str
    label: str
    group: str | None = None


def list_columns(
    name: str,
    columns: Mapping[str, Any],
    root: Path | Url | None,
    base: Path | Url,
    task: Kind | None = None,
) -> Listing:
    """List images given by columns: path, domain, label and optionally group; see `list_rows`.

    The labels are what :func:`oodzoo.data.sources.targets.read_targets` takes.
    """
    paths = [_as_path(value, row, name) for row, value in enumerate(columns["path"])]
    domains = as_names(columns["domain"], "domain", name)
    targets = read_targets(columns["label"], name, task)
    groups: Sequence[str | None] = [None] * len(paths)
    if "group" in columns:
        groups = as_groups(columns["group"], name)
    rows = map(Row, range(len(paths)), paths, domains, targets.texts, groups)
    listing = list_rows(name, rows, root, base)
    listing.task = targets.task
    return listing


def list_rows(
    name: str,
    rows: Iterable[Row],
    root: Path | Url | None,
    base: Path | Url,
    *,
    unit: str = "row",
) -> Listing:
    """List the images of rows.

    The paths of the samples are relative to `root`. Without it, they are relative to `base` if it
    contains all images, otherwise to the deepest folder that does; where there is none (several
    buckets, local and remote files), they are absolute.

    Parameters
    ----------
    name : str
        What messages call the source.
    rows : iterable of Row
    root : Path or Url, optional
        A folder that contains all images.
    base : Path or Url
        The folder that relative paths are relative to if there is no root.
    unit : str
        What the numbers of the rows count.

    Raises
    ------
    InputError
        For a path that is outside the root, given twice or without a file; with its row.
    """
    if isinstance(root, Path) and not root.is_dir():
        raise InputError(f"the root of {name!r} is not a folder: {str(root)!r}")
    folder = base if root is None else root
    given = list(rows)
    if not given:
        raise InputError(f"{name!r} has no rows")
    places = _places(given, folder, name, unit)
    top: str | None = _address(folder)
    outside = _outside(given, places, _address(folder))
    if outside and root is not None:
        raise InputError(
            f"{name!r}, {unit} {outside[0].number}: the path {outside[0].path!r} is outside "
            f"{str(root)!r}; give the folder that contains all images as root (--root), or no root"
        )
    listing = Listing(name)
    if outside:
        top = common_folder(places)
        listing.root = None if top is None or is_url(top) else Path(top)
    elif isinstance(folder, Path):
        listing.root = folder
    remote = _remote_files([place for place in places if is_url(place)])
    for row, place in zip(given, places, strict=True):
        path = place if top is None else place[len(top) :].lstrip("/")
        file: ImageFile | None = None
        if is_url(place):
            file = RemoteImage(remote[place]) if place in remote else None
        elif os.path.isfile(place):  # noqa: PTH113 - Path.is_file raises on a name too long
            file = LocalFile(place if listing.root is None else str(listing.root / path))
        if file is None:
            raise InputError(f"{name!r}, {unit} {row.number}: {_no_file(row.path, root, base)}")
        listing.add(Sample(path, row.domain, row.label, row.group), file)
    return listing


def _no_file(path: str, root: Path | Url | None, base: Path | Url) -> str:
    if _is_absolute(path):
        return f"no such file: {path!r}"
    if root is not None:
        return f"no such file in {str(root)!r}: {path!r}"
    return (
        f"no such file in {str(base)!r}: {path!r}; if paths are relative to another folder, give "
        "it as root (--root)"
    )


def _as_path(value: Any, row: int, name: str) -> str:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str) or not value.strip():
        what = f"is {value!r}" if isinstance(value, int | bytes) else "is missing"
        raise InputError(f"{name!r}, row {row}: the path {what}; give the file of each image")
    return value.strip()


# --- places: absolute paths with forward slashes, or URLs ------------------------------------


def _places(rows: Sequence[Row], folder: Path | Url, name: str, unit: str) -> list[str]:
    """Return the place of each row; each must occur once."""
    address = _address(folder)
    first: dict[str, Row] = {}
    for row in rows:
        place = _place(row.path, address)
        try:
            place.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"{name!r}, {unit} {row.number}: the path is not valid UTF-8: {row.path!r}"
            ) from error
        same = first.setdefault(place, row)
        if same is not row:
            raise InputError(
                f"{name!r} lists {same.path!r} twice, in {unit}s {same.number} and {row.number}"
            )
    return list(first)


def _address(folder: Path | Url) -> str:
    if isinstance(folder, Url):
        return str(folder)
    return Path(os.path.abspath(folder)).as_posix()  # noqa: PTH100 - links stay as they are


def _place(given: str, address: str) -> str:
    if is_url(given):
        location = parse_location(given)
        return str(location) if isinstance(location, Url) else _address(location)
    if not is_url(address):
        return Path(os.path.normpath(os.path.join(address, given))).as_posix()  # noqa: PTH118
    if _is_absolute(given):
        return _address(Path(given))
    scheme, _, start = address.partition("://")
    # a key that begins with ".." cannot leave its bucket
    return f"{scheme}://{posixpath.normpath(f'{start}/{given}')}"


def _is_absolute(given: str) -> bool:
    return is_url(given) or Path(given).is_absolute()


def _outside(rows: Sequence[Row], places: Sequence[str], folder: str) -> list[Row]:
    start = folder.rstrip("/") + "/"
    pairs = zip(rows, places, strict=True)
    return [row for row, place in pairs if not f"{place}/".startswith(start)]


def common_folder(places: Sequence[str]) -> str | None:
    """Return the deepest folder that contains all places; None if there is none.

    Examples
    --------
    >>> common_folder(["/data/day/1.png", "/data/night/1.png"])
    '/data'
    >>> common_folder(["s3://a/day/1.png", "s3://b/night/1.png"])
    """
    prefix = os.path.commonprefix(places)  # noqa: RUF071 - it is cut at a slash
    folder, slash, _ = prefix.rpartition("/")
    if is_url(prefix):
        return folder if folder.count("/") >= 2 else None
    return folder or "/" if slash else None


def _remote_files(urls: Sequence[str]) -> dict[str, RemoteFile]:
    """Look up remote files by their URLs: by one listing of each bucket or server."""
    found: dict[str, RemoteFile] = {}
    by_server: dict[str, list[str]] = {}
    for url in urls:
        by_server.setdefault("/".join(url.split("/", 3)[:3]), []).append(url)
    for server, here in by_server.items():
        if server.startswith(("http://", "https://")):  # which have no listings
            calls = ((Url(url),) for url in here)
            files = Prefetch(find_file, calls, n_threads=REMOTE_READERS, ahead=READ_AHEAD)
            found |= {file.url: file for file in files if file is not None}
        else:
            folder = common_folder(here)
            assert folder is not None
            found |= {file.url: file for file in list_files(Url(folder))}
    return found
