"""What a source of images is, what the user says about it, and what all sources have in common.

A source lists samples by role: path or image, label, domain and group. It is an object with
`samples` and `open`, or a function that returns a :class:`~oodzoo.data.listing.Listing`, made by

- :func:`list_labelled`, if the source has images: in memory, or parts of files;
- :func:`list_columns`, if it names files;
- :class:`SourceTable`, if it has columns, one of which has images or names files.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from oodzoo.core.errors import InputError
from oodzoo.core.remote.location import Url, is_url, parse_location
from oodzoo.core.remote.objects import RemoteFile, find_file, list_files
from oodzoo.core.text import count
from oodzoo.core.threads import Prefetch
from oodzoo.data.files import ImageFile, LocalFile, RemoteImage
from oodzoo.data.listing import READ_AHEAD, REMOTE_READERS, Listing, Sample
from oodzoo.data.sources.column_roles import (
    ONE_DOMAIN,
    as_groups,
    as_names,
    find_columns,
    read_metadata,
    split_columns,
)
from oodzoo.data.sources.targets import read_targets
from oodzoo.tasks import Kind


@runtime_checkable
class ImageSource(Protocol):
    """Images with labels and domains; :class:`oodzoo.ImageDomains` takes any object of this form.

    Attributes
    ----------
    samples : sequence of Sample
        Path (unique, for messages and the order), domain, label and group of each image.

    Examples
    --------
    >>> from oodzoo.data.listing import Sample
    >>> class Pixels:
    ...     samples = [Sample(f"{n}.ppm", f"d{n % 2}", f"c{n // 2 % 2}") for n in range(8)]
    ...     def open(self, i):
    ...         return b"P6 1 1 255 " + bytes([i, i, i])
    >>> import oodzoo
    >>> oodzoo.ImageDomains(Pixels())
    ImageDomains('Pixels': 8 images, 2 domains, 2 classes)
    """

    samples: Sequence[Sample]

    def open(self, i: int, /) -> bytes:
        """Return the bytes of the image file of `samples[i]`; called from several threads."""


# --- options --------------------------------------------------------------------------------------


class SourceOptions(NamedTuple):
    """What is known about a source besides the source itself; see :class:`oodzoo.ImageDomains`.

    A single string for `labels`, `domains` or `groups` is that of all samples. With `propose`, a
    source may have no domains, and lists its further columns as metadata. With `classes`, a folder
    may be `root/class/image`: if more images are in folders of these names than in folders below.
    """

    root: str | os.PathLike[str] | None = None
    columns: Mapping[str, str] | None = None
    labels: Iterable[Any] | None = None
    domains: Iterable[Any] | None = None
    groups: Iterable[Any] | None = None
    propose: bool = False
    task: Kind | None = None
    classes: Sequence[str] | None = None

    def given(self, role: str) -> Iterable[Any] | None:
        """Return `labels` for the role label, and so on."""
        return {"label": self.labels, "domain": self.domains, "group": self.groups}[role]

    @property
    def folder(self) -> Path | Url | None:
        """The root, parsed."""
        return None if self.root is None else parse_location(self.root)

    def missing(self, *roles: str) -> tuple[str, ...]:
        """Return those of the roles label and domain that a source must have itself."""
        needed = (role for role in roles if not (self.propose and role == "domain"))
        return tuple(role for role in needed if self.given(role) is None)


def require_root_unused(options: SourceOptions, source: str) -> None:
    """Reject a root of images that are not files."""
    if options.root is not None:
        raise InputError(f"root= is not used with {source!r}: its images are not given by paths")


def require_used(options: SourceOptions, source: str, used: Sequence[str]) -> None:
    """Reject an option that a kind of source does not use."""
    for name, value in options._asdict().items():
        if value is not None and name not in (*used, "propose", "task", "classes"):
            if name == "domains" and isinstance(value, str):  # of a dict of sources by domain
                raise InputError(f"{source!r} has domains of its own; give it without a domain")
            raise InputError(
                f"{name}= is not used with {source!r}; "
                + (f"it takes {' and '.join(used)}" if used else "leave it out")
            )


@dataclass
class SourceTable:
    """What tables have in common: CSV and Parquet files, data frames, data sets with columns.

    Attributes
    ----------
    name : str
        What messages call the source.
    columns : sequence of str
    values : callable
        Returns the values of a column.
    base : Path or Url
        The folder that paths are relative to if there is no root.
    further : sequence of str, optional
        Columns that domains can be proposed by, if they have no role; by default all.
    rows : sequence of int, optional
        The number of each row for messages; by default they are counted from 0.
    unit : str
        What these numbers count.
    """

    name: str
    columns: Sequence[str]
    values: Callable[[str], Sequence[Any]]
    base: Path | Url = Path()
    further: Sequence[str] | None = None
    rows: Sequence[int] | None = None
    unit: str = "row"

    def content(self, options: SourceOptions, default: str) -> str:
        """Return the role of the column with the images: `image` or, if it names files, `path`.

        `default` is the one that a table without either lacks.
        """
        given = options.columns or {}
        if "image" in given or ("image" in self.columns and "path" not in given):
            return "image"
        return "path" if "path" in given or "path" in self.columns else default

    def find(self, options: SourceOptions, content: str) -> dict[str, str]:
        """Find the column of each role; see :func:`find_columns`."""
        needed = (content, *options.missing("label", "domain"))
        others = [role for role in ("path", "label", "domain", "group") if role not in needed]
        return find_columns(self.columns, options.columns, needed, self.name, optional=others)

    def list(
        self,
        found: Mapping[str, str],
        options: SourceOptions,
        images: tuple[Sequence[str], Sequence[ImageFile]] | None = None,
        own: Mapping[str, Any] | None = None,
    ) -> Listing:
        """List the rows.

        Parameters
        ----------
        found : dict of str to str
            The column of each role; of the role path, if there are no images.
        options : SourceOptions
        images : sequence of str and of ImageFile, optional
            The path and the file of each image.
        own : dict of str to sequence, optional
            Labels, domains or groups that are not in a column.
        """
        roles = {**(own or {})}
        roles |= {role: self.values(found[role]) for role in ("domain", "group") if role in found}
        used = {role: split_columns(name, self.columns) for role, name in found.items()}
        if "label" in found:
            roles["label"] = {column: self.values(column) for column in used["label"]}
        if images is not None:
            listing = list_labelled(self.name, *images, roles, options)
        else:
            paths = self.values(found["path"])
            columns = {"path": paths, **collect_roles(self.name, len(paths), options, roles)}
            listing = list_columns(
                self.name,
                columns,
                options.folder,
                self.base,
                options.task,
                rows=self.rows,
                unit=self.unit,
            )
        if options.propose:
            further = self.columns if self.further is None else self.further
            taken = [column for columns in used.values() for column in columns]
            listing.metadata = read_metadata(further, taken, self.values)
        return listing


# --- listings by role -----------------------------------------------------------------------------


def list_labelled(
    name: str,
    paths: Sequence[str],
    files: Sequence[ImageFile],
    own: Mapping[str, Any],
    options: SourceOptions,
) -> Listing:
    """List images; see :func:`collect_roles`.

    Parameters
    ----------
    name : str
        What messages call the source.
    paths : sequence of str
        The path of each image, without the domain where the options name one for all images.
    files : sequence of ImageFile
        Where the bytes of each image are.
    own : dict of str to sequence
        The label, domain and group of each image, where the source has them. Labels may be
        columns by name.
    options : SourceOptions
    """
    if not files:
        raise InputError(f"{name!r} has no images")
    roles = collect_roles(name, len(files), options, own)
    start = f"{options.domains}/" if isinstance(options.domains, str) else ""
    targets = read_targets(roles["label"], name, options.task)
    domains = as_names(roles["domain"], "domain", name)
    groups = as_groups(roles.get("group", [None] * len(files)), name)
    samples = list(map(Sample, [start + path for path in paths], domains, targets.texts, groups))
    return Listing(name, samples, list(files), task=targets.task)


def collect_roles(
    name: str, n: int, options: SourceOptions, own: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the label, domain and, where there is one, group of each of n images.

    What the options give comes before what the source has.

    Raises
    ------
    InputError
        If there are no labels or domains, or not as many as images.
    """
    found: dict[str, Any] = {}
    for role in ("label", "domain", "group"):
        given = options.given(role)
        if isinstance(given, str):
            found[role] = [given] * n
        elif given is not None:
            found[role] = _one_each(given, n, role, name)
        elif role in own:
            found[role] = own[role]
        elif role == "domain" and options.propose:
            found[role] = [ONE_DOMAIN] * n
        elif role != "group":
            other = ", or a dict of data sets by domain" if role == "domain" else ""
            raise InputError(f"{name!r} has no {role}s; give {role}s=, one for each image{other}")
    return found


def _one_each(given: Any, n: int, role: str, name: str) -> Any:
    is_label = role == "label"
    columns: dict[str, list[Any]] = {}
    if is_label and hasattr(given, "columns"):  # a data frame
        columns = {str(column): list(given[column]) for column in given.columns}
    try:
        values = next(iter(columns.values())) if columns else as_list(given)
    except TypeError as error:
        raise InputError(
            f"{role}s= must be a sequence, one for each image; got {type(given).__name__}"
        ) from error
    if len(values) != n:
        raise InputError(
            f"{role}s= has {count(len(values), 'value')}, but {name!r} has {count(n, 'image')}; "
            "give one for each image"
        )
    series = getattr(given, "name", None)
    if is_label and not columns and isinstance(series, str) and series:
        columns = {series: values}
    return columns or values


def row_names(n: int) -> list[str]:
    """Return the paths of images without file names: numbers that are sorted as text.

    Examples
    --------
    >>> row_names(2)
    ['000000', '000001']
    """
    width = max(6, len(str(n - 1)))
    return [f"{row:0{width}d}" for row in range(n)]


def as_list(values: Any) -> list[Any]:
    """Convert a sequence, or an array of NumPy, PyTorch or pandas, to a list of Python objects."""
    to_list = getattr(values, "tolist", None)
    found = list(values) if to_list is None else to_list()
    if not isinstance(found, list):
        raise TypeError(f"{type(values).__name__} is not a sequence")
    return found


# --- files that rows name -------------------------------------------------------------------------


def list_columns(
    name: str,
    columns: Mapping[str, Any],
    root: Path | Url | None,
    base: Path | Url,
    task: Kind | None = None,
    *,
    rows: Sequence[int] | None = None,
    unit: str = "row",
) -> Listing:
    """List images given by columns: path, domain, label and optionally group.

    The paths of the samples are relative to `root`. Without it, they are relative to `base` if it
    contains all images, otherwise to the deepest folder that does; where there is none (several
    buckets, local and remote files), they are absolute.

    Parameters
    ----------
    name : str
        What messages call the source.
    columns : dict of str to sequence
        By role. The labels are what :func:`oodzoo.data.sources.targets.read_targets` takes.
    root : Path or Url, optional
        A folder that contains all images.
    base : Path or Url
        The folder that relative paths are relative to if there is no root.
    task : {"classification", "regression", "multilabel"}, optional
    rows, unit
        See :class:`SourceTable`.

    Raises
    ------
    InputError
        For a path that is outside the root, given twice or without a file; with its row.
    """
    numbers = range(len(columns["path"])) if rows is None else rows

    def place(at: int) -> str:
        return f"{name!r}, {unit} {numbers[at]}"

    paths = [_as_path(value, place, at) for at, value in enumerate(columns["path"])]
    domains = as_names(columns["domain"], "domain", name)
    targets = read_targets(columns["label"], name, task, rows=rows, unit=unit)
    groups = as_groups(columns.get("group", [None] * len(paths)), name)
    if isinstance(root, Path) and not root.is_dir():
        raise InputError(f"the root of {name!r} is not a folder: {str(root)!r}")
    if not paths:
        raise InputError(f"{name!r} has no rows")
    folder = base if root is None else root
    top: str | None = _address(folder)
    first: dict[str, int] = {}
    for at, path in enumerate(paths):
        address = _absolute(path, _address(folder))
        try:
            address.encode()
        except UnicodeEncodeError as error:
            raise InputError(f"{place(at)}: the path is not valid UTF-8: {path!r}") from error
        if (same := first.setdefault(address, at)) != at:
            raise InputError(
                f"{name!r} lists {paths[same]!r} twice, in {unit}s {numbers[same]} and "
                f"{numbers[at]}"
            )
    start = _address(folder).rstrip("/") + "/"
    outside = [at for address, at in first.items() if not f"{address}/".startswith(start)]
    if outside and root is not None:
        raise InputError(
            f"{place(outside[0])}: the path {paths[outside[0]]!r} is outside {str(root)!r}; give "
            "the folder that contains all images as root (--root), or no root"
        )
    listing = Listing(name, task=targets.task)
    if outside:
        top = common_folder(list(first))
        listing.root = None if top is None or is_url(top) else Path(top)
    elif isinstance(folder, Path):
        listing.root = folder
    remote = _remote_files(filter(is_url, first))
    for address, at in first.items():
        path = address if top is None else address[len(top) :].lstrip("/")
        file: ImageFile | None = None
        if is_url(address):
            file = RemoteImage(remote[address]) if address in remote else None
        elif os.path.isfile(address):  # noqa: PTH113 - Path.is_file raises on a name too long
            file = LocalFile(address if listing.root is None else str(listing.root / path))
        if file is None:
            absolute = is_url(paths[at]) or Path(paths[at]).is_absolute()
            advice = "; if paths are relative to another folder, give it as root (--root)"
            raise InputError(
                f"{place(at)}: no such file{'' if absolute else f' in {str(folder)!r}'}: "
                f"{paths[at]!r}{'' if absolute or root is not None else advice}"
            )
        listing.add(Sample(path, domains[at], targets.texts[at], groups[at]), file)
    return listing


def _as_path(value: Any, place: Callable[[int], str], at: int) -> str:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str) or not value.strip():
        what = f"is {value!r}" if isinstance(value, int | bytes) else "is missing"
        raise InputError(f"{place(at)}: the path {what}; give the file of each image")
    return value.strip()


def _absolute(path: str, folder: str) -> str:
    """Return a path as an absolute one with forward slashes, or as a URL."""
    if is_url(path):
        return _address(parse_location(path))
    if not is_url(folder):
        return Path(os.path.normpath(os.path.join(folder, path))).as_posix()  # noqa: PTH118
    if Path(path).is_absolute():
        return _address(Path(path))
    scheme, _, start = folder.partition("://")
    # a key that begins with ".." cannot leave its bucket
    return f"{scheme}://{posixpath.normpath(f'{start}/{path}')}"


def _address(folder: Path | Url) -> str:
    if isinstance(folder, Url):
        return str(folder)
    return Path(os.path.abspath(folder)).as_posix()  # noqa: PTH100 - links stay as they are


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


def _remote_files(urls: Iterable[str]) -> dict[str, RemoteFile]:
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
