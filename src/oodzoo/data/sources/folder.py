"""Folders of images, local or remote: `root/domain/class/image`, or one domain without labels."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from oodzoo.core.errors import InputError
from oodzoo.core.remote.location import Url, is_url, parse_location
from oodzoo.core.remote.objects import RemoteFile, list_files
from oodzoo.core.text import count, some_of
from oodzoo.data.files import ImageFile, LocalFile, RemoteImage
from oodzoo.data.listing import SUFFIXES, ImageFiles, Issue, Listing, Sample, explaining_errors
from oodzoo.data.sources.base import SourceOptions
from oodzoo.data.sources.column_roles import ONE_DOMAIN

FOLLOW = "OODZOO_FOLLOW_LINKS"
"""Environment variable: whether to follow links to folders outside of the one that is listed."""


def list_folder(
    location: Path | Url, remote: Iterable[RemoteFile], options: SourceOptions
) -> Listing:
    """List `root/domain/class/**/image`, or `root/class/**/image` where the options allow it.

    Parameters
    ----------
    location : Path or Url
        Links in a local folder are followed to folders in it, but not in loops.
    remote : iterable of RemoteFile
        All files below a URL.
    options : SourceOptions
        With `propose` or `classes`, there may be no folders of domains.
    """
    if options.propose or options.classes is not None:
        files, issues = images_below(location, remote)
        if is_by_class(list(files), options.classes or ()):
            name = location.name if isinstance(location, Url) else location.resolve().name
            listing = Listing(str(location), issues=issues)
            listing.root = None if isinstance(location, Url) else location
            loose = add_classes(listing, files, name or ONE_DOMAIN)
            listing.add_loose(str(location), loose)
            return listing
    if isinstance(location, Url):
        return list_by_path(str(location), _remote_images(location, remote), "url")
    return _list_local(location)


def add_classes(
    listing: Listing, files: Mapping[str, ImageFile], domain: str, start: str = ""
) -> int:
    """Add the images `class/**/image` of one domain; return the number of those without a class.

    `start` comes before each path.
    """
    loose = 0
    for path, file in files.items():
        label, *rest = filter(None, path.split("/"))
        if rest:
            listing.add(Sample(start + path, domain, label), file)
        loose += not rest
    return loose


def _list_local(root: Path) -> Listing:
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
            listing.add_loose(name, here)
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


# --- by path, of sources that are not local folders -----------------------------------------------


def list_by_path(name: str, images: Iterable[tuple[str, ImageFile]], expected: str) -> Listing:
    """List images by their paths, by the rules of a folder; `expected` is for messages."""
    listing = Listing(name)
    loose: dict[str, int] = {}
    for path, file in images:
        domain, *rest = filter(None, path.split("/"))  # an object may have "a//b" in its name
        if len(rest) >= 2:
            listing.add(Sample(path, domain, rest[0]), file)
        elif rest:  # else it is beside the domains, and ignored
            loose[domain] = loose.get(domain, 0) + 1
    require_level(listing, expected, loose, advice="")
    for domain, n in loose.items():
        listing.add_loose(domain, n)
    return listing


def images_below(
    root: Path | Url, remote: Iterable[RemoteFile] | None = None
) -> tuple[dict[str, ImageFile], list[Issue]]:
    """List all images below a folder or URL by their paths, sorted, and the problems found.

    `remote` has all files below a URL, if they are listed already.
    """
    if isinstance(root, Url):
        files = list_files(root) if remote is None else remote
        return dict(sorted(_remote_images(root, files))), []
    paths, issues = list_images(root)
    return {path: LocalFile(str(root / path)) for path in paths}, issues


def _remote_images(root: Url, files: Iterable[RemoteFile]) -> Iterator[tuple[str, ImageFile]]:
    """Yield the images that are not hidden, with their paths relative to a URL."""
    start = len(str(root).rstrip("/")) + 1
    for file in files:
        path = file.url[start:]
        parts = path.split("/")
        if any(part.startswith(".") for part in parts):
            continue
        if "." + parts[-1].rpartition(".")[2].lower() in SUFFIXES and "." in parts[-1]:
            yield path, RemoteImage(file)


def is_by_class(paths: Sequence[str], classes: Sequence[str]) -> bool:
    """Whether paths are `class/image` rather than `domain/class/image`.

    They are if more images have one of the classes as their first folder than as their second; or,
    if as many, more of those in folders are in one folder than in folders below it.

    Examples
    --------
    >>> is_by_class(["cat/1.png", "dog/roll/2.png"], ["cat", "dog"])
    True
    >>> is_by_class(["day/cat/1.png", "night/dog/2.png"], ["cat", "dog"])
    False
    """
    folders = [[part for part in path.split("/") if part][:-1] for path in paths]
    nested = sum(len(each) > 1 for each in folders)
    known = frozenset(classes)
    first = sum(bool(each) and each[0] in known for each in folders)
    second = sum(len(each) > 1 and each[1] in known for each in folders)
    return first > second or (first == second and sum(map(bool, folders)) > 2 * nested)


class UnlabelledImages(ImageFiles):
    """All images below a folder, as one domain without labels.

    Parameters
    ----------
    folder : path or URL
        Images may be in the folder itself and in folders below it, nested in any way. Hidden files
        are ignored, and so are links to folders outside of it and links in loops.
    name : str, optional
        The name of the domain; by default the name of the folder, symbolic links resolved.

    Attributes
    ----------
    name : str
        The name of the domain.
    location : Path or Url
        The folder.
    files : dict of str to ImageFile
        Where the bytes of each image are, by path.
    paths : tuple of str
        Relative to the folder, with forward slashes; sorted.
    issues : tuple of Issue
        Broken links and link loops.

    Raises
    ------
    InputError
        If the folder cannot be read or has no image, or the name is empty.
    """

    def __init__(self, folder: str | Path, name: str | None = None) -> None:
        self.location = at = parse_location(folder) if str(folder) else Path()
        with explaining_errors(folder):
            if isinstance(at, Path) and (not str(folder) or not at.exists()):
                raise InputError(
                    f"no such folder: {str(folder)!r}; give a folder of images, or NAME=FOLDER to "
                    "name it"
                )
            if isinstance(at, Path) and not at.is_dir():
                raise InputError(f"{str(folder)!r} is a file; give a folder of images")
            files, issues = images_below(at)
            own_name = at.name if isinstance(at, Url) else at.resolve().name
        self.name = own_name if name is None else name
        if not self.name.strip():
            raise InputError(
                f"the unlabelled images in {str(folder)!r} have an empty name, {self.name!r}; "
                "give one as NAME=FOLDER"
            )
        try:
            self.name.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"the name of the unlabelled images is not valid UTF-8: {self.name!r}; "
                "give another one as NAME=FOLDER"
            ) from error
        if not files:
            raise InputError(f"no image found in {str(folder)!r} or the folders below it")
        self.files = files
        self.paths = tuple(files)
        self.issues = tuple(issues)

    def __len__(self) -> int:
        return len(self.paths)

    def __repr__(self) -> str:
        return (
            f"UnlabelledImages({self.name!r}, {str(self.location)!r}: {count(len(self), 'image')})"
        )

    def _files(self) -> dict[str, ImageFile]:
        return self.files


def parse_unlabelled(text: str | Path | UnlabelledImages) -> UnlabelledImages:
    """Open unlabelled images given as `FOLDER` or `NAME=FOLDER`.

    Text with "=" is a folder if a folder of that name exists; otherwise it is split at the first
    "=". A Path is always a folder.
    """
    if isinstance(text, UnlabelledImages):
        return text
    if isinstance(text, Path) or "=" not in text or is_url(text):
        return UnlabelledImages(text)
    if os.path.isdir(text):  # noqa: PTH112 - Path.is_dir raises on a name too long
        return UnlabelledImages(text)
    name, _, folder = text.partition("=")
    return UnlabelledImages(folder, name)
