"""Listing the images of a data set without opening them: from a folder, or from a table."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from oodzoo.errors import InputError

# fmt: off
SUFFIXES = frozenset({
    ".avif", ".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff",
    ".webp",
})
# fmt: on


class Sample(NamedTuple):
    """One image: its path relative to the root of its data set, and what is known of it."""

    path: str
    domain: str
    label: str
    group: str | None = None


@dataclass
class Listing:
    """The samples found below a root, and what was odd: (kind, message, paths)."""

    root: Path
    samples: list[Sample] = field(default_factory=list)
    odd: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)

    def note(self, kind: str, message: str, *paths: str) -> None:
        self.odd.append((kind, message, paths))


# --- folders ---------------------------------------------------------------------------------


def list_folder(root: Path) -> Listing:
    """List `root/domain/class/**/image`; symbolic links are followed, loops are not."""
    listing = Listing(root)
    walk = _Walk(listing)
    trail = (_identity(root),)
    loose = 0
    for domain in walk.folders(root, trail):
        before = len(listing.samples)
        for label in walk.folders(domain.path, domain.trail):
            files = sorted(walk.images(label))
            if not files:
                listing.note("empty class", f"{_inside(label.path, root)!r} holds no image")
            listing.samples += [Sample(f, domain.name, label.name) for f in files]
        here = sum(_is_image(entry) for entry in _entries(domain.path))
        if here:
            loose += here
            listing.note(
                "no class",
                f"{domain.name!r} holds images outside any class folder ({here}): ignored",
            )
        if len(listing.samples) == before:
            listing.note("empty domain", f"{domain.name!r} holds no class with images: ignored")
    if not listing.samples:
        level = f"; {loose} lie one level too high, as in root/class/image" if loose else ""
        raise InputError(
            f"no image found in {str(root)!r}: expected root/domain/class/image{level}"
        )
    return listing


class _Folder(NamedTuple):
    path: Path
    name: str
    trail: tuple[tuple[int, int], ...]  # identities of this folder and those above it


class _Walk:
    """Goes down folders, remembering the way so that a symbolic link cannot lead in circles."""

    def __init__(self, listing: Listing) -> None:
        self.listing = listing

    def folders(self, path: Path, trail: tuple[tuple[int, int], ...]) -> Iterator[_Folder]:
        for entry in _entries(path):
            if entry.is_symlink() and not _resolves(entry):
                # a broken link to an image stays listed, and is reported when it is read
                if entry.suffix.lower() not in SUFFIXES:
                    name = _inside(entry, self.listing.root)
                    self.listing.note("broken link", f"{name!r} leads nowhere: ignored", name)
            elif entry.is_dir():
                name = _inside(entry, self.listing.root)
                identity = _identity(entry)
                if identity in trail:
                    self.listing.note("link loop", f"{name!r} leads back above: ignored", name)
                else:
                    yield _Folder(entry, entry.name, (*trail, identity))

    def images(self, folder: _Folder) -> Iterator[str]:
        pending = [folder]  # not recursion: folders may be deeper than Python's stack
        while pending:
            here = pending.pop()
            for entry in _entries(here.path):
                if _is_image(entry):
                    yield _inside(entry, self.listing.root)
            pending += self.folders(here.path, here.trail)


def _entries(folder: Path) -> list[Path]:
    """What is not hidden in a folder, sorted by name."""
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
    """The name by which a folder or an image is known: its path from the root."""
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
        raise InputError(f"the root of the table, {str(root)!r}, is not a folder")
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
        raise InputError(f"{str(table)!r} has no row below its header")
    return listing


def _rows(table: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a table as dictionaries, each with the number of its first line."""
    try:
        with table.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, strict=True)
            header = [name.strip() for name in next(reader, [])]
            _check_header(header, table)
            line = reader.line_num + 1
            for cells in reader:
                if any(cell.strip() for cell in cells[len(header) :]):
                    raise InputError(
                        f"{table.name} line {line}: {len(cells)} cells, the header names "
                        f"{len(header)}: {','.join(cells)!r}; quote a cell that holds a comma"
                    )
                if cells:
                    yield line, dict(zip(header, cells, strict=False))
                line = reader.line_num + 1
    except UnicodeDecodeError as error:
        raise InputError(f"{str(table)!r} is not UTF-8 text; save it as UTF-8") from error
    except csv.Error as error:
        raise InputError(f"{str(table)!r} is not a CSV table: {error}") from error


def _check_header(header: list[str], table: Path) -> None:
    given = ",".join(header)
    for column in _COLUMNS:
        if column not in header:
            separators = "; separate its columns by commas" if {";", "\t"} & set(given) else ""
            raise InputError(
                f"{str(table)!r} lacks the column {column!r}; its first line must name "
                f"path,domain,label[,group], and is {given!r}{separators}"
            )
    for column in (*_COLUMNS, "group"):
        if header.count(column) > 1:
            raise InputError(f"{str(table)!r} names the column {column!r} twice: {given!r}")


def _sample(row: dict[str, str], where: str, root: Path) -> Sample:
    for column in _COLUMNS:
        if not row.get(column, "").strip():
            raise InputError(f"{where}: no {column} in {','.join(row.values())!r}")
    given = row["path"].strip()
    path = Path(os.path.normpath(given))
    if path.is_absolute() or path.parts[:1] == ("..",):
        raise InputError(
            f"{where}: the path {given!r} leads outside {str(root)!r}; "
            "give the folder that holds all images as root (--root)"
        )
    if not os.path.isfile(root / path):  # noqa: PTH113 - Path.is_file raises on a name too long
        raise InputError(f"{where}: there is no image {given!r} in {str(root)!r}")
    group = row.get("group", "").strip() or None
    return Sample(path.as_posix(), row["domain"].strip(), row["label"].strip(), group)
