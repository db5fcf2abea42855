"""Sort images into folders, one for each predicted class.

No file is ever replaced. An image whose file is there already, with the same content, is left as it
is, so that the same command can be run again; another file of the same name makes the image get a
number, as `photo-2.jpg`.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from oodzoo.core.errors import InputError
from oodzoo.core.io import explaining_disk_errors, remove_stale, write_new
from oodzoo.core.remote.location import Url
from oodzoo.data.files import ImageFile, LocalFile, RemoteImage

UNSURE = "_unsure"
"""Folder of the images without a label."""

Link = Literal["hard", "soft"]
LINKS = ("hard", "soft")

_FORBIDDEN = re.compile(r'[/\\:*?"<>|]')
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
_LONGEST = 160
"""Bytes of the name of a folder."""


def folder_names(classes: Iterable[Any]) -> dict[Any, str]:
    """A name of a folder for each class, which any operating system allows; all differ.

    Names that differ in upper and lower case only are the same on some systems.

    Examples
    --------
    >>> folder_names(["cat", "Cat", "a/b", "", "_unsure"])
    {'cat': 'cat', 'Cat': 'Cat-2', 'a/b': 'a_b', '': '_', '_unsure': '_unsure-2'}
    """
    used, result = {UNSURE}, {}
    for label in classes:
        text = _FORBIDDEN.sub("_", str(label))
        text = "".join(c if c.isprintable() else "_" for c in text)
        text = text.encode()[:_LONGEST].decode(errors="ignore")
        text = re.sub(r"^[.\s]+|[.\s]+$", "_", text) or "_"
        if _RESERVED.fullmatch(text):
            text = f"_{text}"
        name, number = text, 1
        while name.casefold() in used:
            number += 1
            name = f"{text}-{number}"
        used.add(name.casefold())
        result[label] = name
    return result


class Sorter:
    """Copies or links images into the folder of their class.

    Parameters
    ----------
    folder : Path
        Where the folders of the classes are made.
    classes : iterable
    link : {"hard", "soft"}, optional
        Kind of link; by default images are copied.

    Attributes
    ----------
    counts : Counter
        Number of images in each folder, by its name, also of those that were there already.
    left : int
        Number of images that were there already.
    """

    def __init__(self, folder: Path, classes: Iterable[Any], link: str | None = None) -> None:
        if link is not None and link not in LINKS:
            raise InputError(f"a link must be one of {', '.join(LINKS)}, got {link!r}")
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{str(folder)!r} is not a folder; images are sorted into folders")
        self.folder = folder
        self.counts: Counter[str] = Counter()
        self.left = 0
        self._names = folder_names(classes)
        self._link = link

    def require_outside(self, file: ImageFile) -> None:
        """Raise an InputError for an image that was sorted already, or lies among such images."""
        if isinstance(file, LocalFile) and self._resolved() in _resolved(file.path).parents:
            raise InputError(
                f"{file.path!r} is inside {str(self.folder)!r}, where images are sorted into; "
                "choose a folder outside of the images"
            )

    def add(self, file: ImageFile, label: Any) -> Path:
        """Put an image into the folder of a label, None for no label; return where it is."""
        name = UNSURE if label is None else self._names[label]
        target = self.folder / name / _file_name(file)
        with explaining_disk_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            if name not in self.counts:
                remove_stale(target.parent)
            content = None if self._link else file.read()
            number = 1
            place = target
            while not self._put(file, content, place):
                if self._is_there(file, content, place):
                    self.left += 1
                    break
                number += 1
                place = target.with_name(f"{target.stem}-{number}{target.suffix}")
        self.counts[name] += 1
        return place

    def _put(self, file: ImageFile, content: bytes | None, place: Path) -> bool:
        """Write an image or a link; False if there is a file of this name."""
        if content is not None:
            return not os.path.lexists(place) and write_new(place, content)
        source = _local_path(file)
        try:
            if self._link == "soft":
                place.symlink_to(source)
            else:
                os.link(source, place)
        except FileExistsError:
            return False
        except OSError as error:
            if self._link == "hard" and os.path.lexists(source):
                raise InputError(
                    f"{str(source)!r} cannot have a hard link in {str(place.parent)!r}: "
                    f"{error.strerror}; leave out the links, or use soft ones"
                ) from error
            raise
        return True

    def _is_there(self, file: ImageFile, content: bytes | None, place: Path) -> bool:
        """Whether a file is the image: the same file, or one with the same content."""
        try:
            if isinstance(file, LocalFile) and place.samefile(file.path):
                return True
            expected = file.read() if content is None else content
            return place.stat().st_size == len(expected) and place.read_bytes() == expected
        except OSError:  # a link to nothing, a folder, or a file that may not be read
            return False

    def _resolved(self) -> Path:
        return _resolved(self.folder)


def _resolved(path: str | Path) -> Path:
    return Path(os.path.realpath(path))


def _local_path(file: ImageFile) -> Path:
    if not isinstance(file, LocalFile):
        raise InputError(f"{str(file)!r} is not a local file and cannot be linked; copy the images")
    return Path(file.path).absolute()


def _file_name(file: ImageFile) -> str:
    """The name of the file of an image, for a local disk."""
    if not isinstance(file, RemoteImage):
        return Path(str(file)).name
    name = Url(file.file.url).name.partition("?")[0].partition("#")[0]
    return _FORBIDDEN.sub("_", name)[-_LONGEST:] or "image"
