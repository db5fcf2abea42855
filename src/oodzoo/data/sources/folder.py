"""A folder of images, without opening them: `root/domain/class/image`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from oodzoo._text import count, some_of
from oodzoo.data.files import LocalFile
from oodzoo.data.listing import SUFFIXES, Issue, Listing, Sample
from oodzoo.errors import InputError

FOLLOW = "OODZOO_FOLLOW_LINKS"
"""Environment variable: whether to follow links to folders outside of the one that is listed."""


def list_folder(root: Path) -> Listing:
    """List `root/domain/class/**/image`; follow links to folders in the root, but not in loops."""
    listing = Listing(str(root), root=root)
    top = _top(root)
    loose: dict[str, int] = {}
    for domain in _folders(top, listing):
        name, before = domain.path.name, len(listing.samples)
        for label in _folders(domain, listing):
            files = sorted(_images(label, listing))
            if not files:
                listing.add_issue("empty class", f"{_inside(label.path, root)!r} has no images")
            for path in files:
                listing.add(Sample(path, name, label.path.name), LocalFile(str(root / path)))
        here = sum(_is_image(entry) for entry in _entries(domain.path))
        if here:
            loose[name] = here
            listing.add_issue(
                "no class",
                f"{name!r} has {count(here, 'image')} outside any class folder; ignored",
            )
        if len(listing.samples) == before:
            listing.add_issue("empty domain", f"{name!r} has no class with images; ignored")
    _warn_of_links(top)
    require_level(listing, "root", loose)
    return listing


_ONE_DOMAIN = ": give the folder above it, or --domains one (domains='one') for a single domain"


def require_level(
    listing: Listing, root: str, loose: Mapping[str, int], advice: str = _ONE_DOMAIN
) -> None:
    """Reject a listing without images, or with a few in folders whose images are mostly loose.

    `loose` has the number of images in root/class/image by folder.
    """
    n, name, above = len(listing.samples), listing.name, sum(loose.values())
    if n and (n >= above or {sample.domain for sample in listing.samples} - set(loose)):
        return
    level = f"; found {above:,} one level too high, as in {root}/class/image" if above else ""
    found = f"no image found in {name!r}: expected"
    if n:
        found = f"{name!r} has only {count(n, 'image')} in"
    raise InputError(f"{found} {root}/domain/class/image{level}{advice if above else ''}")


def list_images(root: Path) -> tuple[list[str], list[Issue]]:
    """List all images below a folder, sorted, by the rules of :func:`list_folder`."""
    listing = Listing(str(root), root=root)
    top = _top(root)
    found = sorted(_images(top, listing))
    _warn_of_links(top)
    return found, listing.issues


class _Folder(NamedTuple):
    path: Path
    trail: tuple[tuple[int, int], ...]
    """Identities of this folder and those above it, to detect loops of symbolic links."""
    root: Path | None
    """Links to folders outside of it are ignored; None if they are followed."""
    ignored: list[str]
    """These links, of all folders below the root."""


def _top(root: Path) -> _Folder:
    follow = os.environ.get(FOLLOW, "").strip().lower() not in ("", "0", "no", "off", "false")
    return _Folder(root, (_identity(root),), None if follow else root.resolve(), [])


def _warn_of_links(top: _Folder) -> None:
    if top.ignored:
        links = count(len(top.ignored), "link")
        warnings.warn(
            f"{str(top.path)!r} has {links} to folders outside of it, ignored: "
            f"{some_of(top.ignored)}; set the variable {FOLLOW}=1 to follow them",
            stacklevel=1,  # said once, whoever lists the folder
        )


def _folders(folder: _Folder, listing: Listing) -> Iterator[_Folder]:
    """Yield the folders in a folder, and record broken links and loops."""
    for entry in _entries(folder.path):
        if entry.is_symlink() and not _resolves(entry):
            # a broken link to an image is listed, and reported as unreadable later
            if entry.suffix.lower() not in SUFFIXES:
                name = _inside(entry, Path(listing.name))
                listing.add_issue("broken link", f"{name!r} is a broken link; ignored", name)
        elif entry.is_dir():
            name = _inside(entry, Path(listing.name))
            identity, root = _identity(entry), folder.root
            if root and entry.is_symlink() and not entry.resolve().is_relative_to(root):
                folder.ignored.append(name)
            elif identity in folder.trail:
                listing.add_issue(
                    "link loop", f"{name!r} links to a folder above it; ignored", name
                )
            else:
                yield folder._replace(path=entry, trail=(*folder.trail, identity))


def _images(folder: _Folder, listing: Listing) -> Iterator[str]:
    """Yield the images in a folder and the folders below it."""
    pending = [folder]  # not recursive: folders may be nested deeper than Python's stack
    while pending:
        here = pending.pop()
        for entry in _entries(here.path):
            if _is_image(entry):
                yield _inside(entry, Path(listing.name))
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
