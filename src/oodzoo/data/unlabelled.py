"""Images of one domain without labels, from a folder or a URL."""

from __future__ import annotations

import os
from pathlib import Path

from oodzoo.core.errors import InputError
from oodzoo.core.remote.location import Url, is_url, parse_location
from oodzoo.core.text import count
from oodzoo.data.contents import ImageFiles
from oodzoo.data.files import ImageFile
from oodzoo.data.listing import explaining_errors
from oodzoo.data.sources.folder import images_below


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
        self.location = parse_location(folder) if str(folder) else Path()
        with explaining_errors(folder):
            if isinstance(self.location, Path):
                _require_folder(folder)
            files, issues = images_below(self.location)
            at = self.location
            own_name = at.name if isinstance(at, Url) else at.resolve().name
        self.name = own_name if name is None else name
        _require_name(self.name, folder)
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


def _require_folder(folder: str | Path) -> None:
    # Path("") is the working folder
    if not str(folder) or not Path(folder).exists():
        raise InputError(
            f"no such folder: {str(folder)!r}; give a folder of images, or NAME=FOLDER to name it"
        )
    if not Path(folder).is_dir():
        raise InputError(f"{str(folder)!r} is a file; give a folder of images")


def _require_name(name: str, folder: str | Path) -> None:
    if not name.strip():
        raise InputError(
            f"the unlabelled images in {str(folder)!r} have an empty name, {name!r}; "
            "give one as NAME=FOLDER"
        )
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"the name of the unlabelled images is not valid UTF-8: {name!r}; "
            "give another one as NAME=FOLDER"
        ) from error
