"""Listing the images of a folder or a CSV table, without opening them."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from oodzoo._text import count
from oodzoo.errors import InputError

# fmt: off
SUFFIXES = frozenset({
    ".avif", ".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff",
    ".webp",
})
# fmt: on


class Sample(NamedTuple):
    """One image: its path relative to the root of the data set, domain, label and group."""

    path: str
    domain: str
    label: str
    group: str | None = None


@dataclass(frozen=True)
class Issue:
    """A problem of a data set; `paths` are the images or folders concerned."""

    kind: str
    message: str
    paths: tuple[str, ...] = ()


@dataclass
class Listing:
    """The samples found below a root, and the issues."""

    root: Path
    samples: list[Sample] = field(default_factory=list)
    issues: list[Issue] = field(default_factory=list)

    def add_issue(self, kind: str, message: str, *paths: str) -> None:
        self.issues.append(Issue(kind, message, paths))


@contextmanager
def explaining_errors(source: str | Path) -> Iterator[None]:
    """Turn an OSError while listing a source into an InputError."""
    try:
        yield
    except OSError as error:
        path = str(error.filename or source)
        raise InputError(f"cannot read {path!r}: {error.strerror}") from error


# --- folders ---------------------------------------------------------------------------------


def list_folder(root: Path) -> Listing:
    """List `root/domain/class/**/image`; follow symbolic links, but not in loops."""
    listing = Listing(root)
    loose = 0
    for domain in _folders(_top(root), listing):
        name, before = domain.path.name, len(listing.samples)
        for label in _folders(domain, listing):
            files = sorted(_images(label, listing))
            if not files:
                listing.add_issue("empty class", f"{_inside(label.path, root)!r} has no images")
            listing.samples += [Sample(f, name, label.path.name) for f in files]
        here = sum(_is_image(entry) for entry in _entries(domain.path))
        if here:
            loose += here
            listing.add_issue(
                "no class",
                f"{name!r} has {count(here, 'image')} outside any class folder; ignored",
            )
        if len(listing.samples) == before:
            listing.add_issue("empty domain", f"{name!r} has no class with images; ignored")
    if not listing.samples:
        level = f"; found {loose} one level too high, as in root/class/image" if loose else ""
        raise InputError(
            f"no image found in {str(root)!r}: expected root/domain/class/image{level}"
        )
    return listing


def list_images(root: Path) -> tuple[list[str], list[Issue]]:
    """List all images below a folder, sorted, by the rules of :func:`list_folder`."""
    listing = Listing(root)
    return sorted(_images(_top(root), listing)), listing.issues


class _Folder(NamedTuple):
    path: Path
    trail: tuple[tuple[int, int], ...]
    """Identities of this folder and those above it, to detect loops of symbolic links."""


def _top(root: Path) -> _Folder:
    return _Folder(root, (_identity(root),))


def _folders(folder: _Folder, listing: Listing) -> Iterator[_Folder]:
    """Yield the folders in a folder, and record broken links and loops."""
    for entry in _entries(folder.path):
        if entry.is_symlink() and not _resolves(entry):
            # a broken link to an image is listed, and reported as unreadable later
            if entry.suffix.lower() not in SUFFIXES:
                name = _inside(entry, listing.root)
                listing.add_issue("broken link", f"{name!r} is a broken link; ignored", name)
        elif entry.is_dir():
            name = _inside(entry, listing.root)
            identity = _identity(entry)
            if identity in folder.trail:
                listing.add_issue(
                    "link loop", f"{name!r} links to a folder above it; ignored", name
                )
            else:
                yield _Folder(entry, (*folder.trail, identity))


def _images(folder: _Folder, listing: Listing) -> Iterator[str]:
    """Yield the images in a folder and the folders below it."""
    pending = [folder]  # not recursive: folders may be nested deeper than Python's stack
    while pending:
        here = pending.pop()
        for entry in _entries(here.path):
            if _is_image(entry):
                yield _inside(entry, listing.root)
        pending += _folders(here, listing)


def _entries(folder: Path) -> list[Path]:
    """List the entries of a folder that are not hidden, sorted by name."""
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))


def _is_image(entry: Path) -> bool:
    return entry.suffix.lower() in SUFFIXES and not (_resolves(entry) and entry.is_dir())


def _resolves(entry: Path) -> bool:
    try:
        entry.stat()
    except OSError:
        return False
    return True


def _identity(folder: Path) -> tuple[int, int]:
    found = folder.stat()
    return found.st_dev, found.st_ino


def _inside(path: Path, root: Path) -> str:
    """Return the path relative to the root, with forward slashes."""
    try:
        path.name.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"a name in {str(path.parent)!r} is not valid UTF-8: {os.fsencode(path.name)!r}; "
            "rename it"
        ) from error
    return path.relative_to(root).as_posix()


# --- tables ----------------------------------------------------------------------------------

_COLUMNS = ("path", "domain", "label")


def list_table(table: Path, root: Path) -> Listing:
    """List the rows of a CSV table `path,domain,label[,group]`; paths are relative to root."""
    if not root.is_dir():
        raise InputError(f"the root of the table is not a folder: {str(root)!r}")
    listing = Listing(root)
    lines: dict[str, int] = {}
    for line, row in _rows(table):
        sample = _sample(row, f"{table.name} line {line}", root)
        if sample.path in lines:
            first = lines[sample.path]
            raise InputError(
                f"{table.name} lists {sample.path!r} twice, in lines {first} and {line}"
            )
        lines[sample.path] = line
        listing.samples.append(sample)
    if not listing.samples:
        raise InputError(f"{str(table)!r} has no rows below its header")
    return listing


def _rows(table: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the rows of a table as dicts, each with the number of its first line."""
    try:
        with table.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, strict=True)
            header = [name.strip() for name in next(reader, [])]
            _check_header(header, table)
            line = reader.line_num + 1
            for cells in reader:
                if any(cell.strip() for cell in cells[len(header) :]):
                    raise InputError(
                        f"{table.name} line {line}: {len(cells)} cells, but the header has "
                        f"{len(header)}: {','.join(cells)!r}; quote cells that contain a comma"
                    )
                if cells:
                    yield line, dict(zip(header, cells, strict=False))
                line = reader.line_num + 1
    except UnicodeDecodeError as error:
        raise InputError(f"{str(table)!r} is not UTF-8 text; save it as UTF-8") from error
    except csv.Error as error:
        raise InputError(f"{str(table)!r} is not a CSV table: {error}") from error


def _check_header(header: list[str], table: Path) -> None:
    line = ",".join(header)
    for column in _COLUMNS:
        if column not in header:
            separators = "; separate the columns by commas" if {";", "\t"} & set(line) else ""
            raise InputError(
                f"{str(table)!r} has no column {column!r}; the first line must be "
                f"path,domain,label[,group], got {line!r}{separators}"
            )
    for column in (*_COLUMNS, "group"):
        if header.count(column) > 1:
            raise InputError(f"{str(table)!r} has the column {column!r} twice: {line!r}")


def _sample(row: dict[str, str], context: str, root: Path) -> Sample:
    for column in _COLUMNS:
        if not row.get(column, "").strip():
            raise InputError(f"{context}: no {column} in {','.join(row.values())!r}")
    given = row["path"].strip()
    path = Path(os.path.normpath(given))
    if path.is_absolute() or path.parts[:1] == ("..",):
        raise InputError(
            f"{context}: the path {given!r} is outside {str(root)!r}; "
            "give the folder that contains all images as root (--root)"
        )
    if not os.path.isfile(root / path):  # noqa: PTH113 - Path.is_file raises on a name too long
        raise InputError(f"{context}: no such file in {str(root)!r}: {given!r}")
    group = row.get("group", "").strip() or None
    return Sample(path.as_posix(), row["domain"].strip(), row["label"].strip(), group)
