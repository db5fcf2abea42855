"""Image files that a predictor is given, as paths or in lists, and images sorted by predictions.

Lines of a list are read as they come, in groups: a group is what is there to read, so the first
predictions need not wait for the end of a list that another program is still writing.

Sorting never replaces a file. An image whose file is there already, with the same content, is left
as it is, so that the same command can be run again; another file of the same name makes the image
get a number, as `photo-2.jpg`.
"""

from __future__ import annotations

import os
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from oodzoo.core.errors import InputError
from oodzoo.core.io import explaining_disk_errors, remove_stale, write_new
from oodzoo.core.remote.location import Url, is_url, parse_location
from oodzoo.core.remote.objects import find_file
from oodzoo.data.files import ImageFile, LocalFile, RemoteImage
from oodzoo.data.listing import SUFFIXES, explaining_errors
from oodzoo.data.sources.folder import images_below, list_images


def image_files(paths: Iterable[str | os.PathLike[str]]) -> list[ImageFile]:
    """List image files: files as given, and all images below a folder or URL, sorted.

    Links to folders outside and links in loops are ignored. Raises InputError for a path that does
    not exist, a folder that cannot be read, or one without images.
    """
    files: list[ImageFile] = []
    given = list(paths)
    if "" in given:  # as of a variable that is not set; it would be the current folder
        raise InputError("got an empty path; name an image or a folder, or . for the current one")
    suffixes = ", ".join(sorted(SUFFIXES))
    for path in map(parse_location, given):
        if isinstance(path, Url):
            found = find_file(path)
            if found is None and path.scheme in ("http", "https"):  # which give no lists
                raise InputError(f"no such file: {str(path)!r}")
            below = images_below(path)[0].values() if found is None else [RemoteImage(found)]
            if not below:
                raise InputError(f"{str(path)!r} has no images ({suffixes})")
            files += below
            continue
        with explaining_errors(path):
            if not path.exists():
                raise InputError(f"no such file or folder: {str(path)!r}")
            if not path.is_dir():
                files.append(LocalFile(str(path)))
                continue
            names, issues = list_images(path)
        for issue in issues:
            warnings.warn(f"in {str(path)!r}: {issue.message}", stacklevel=2)
        if not names:
            raise InputError(f"the folder {str(path)!r} has no images ({suffixes})")
        files += [LocalFile(str(path / name)) for name in names]
    return files


_BYTES = 1 << 16
"""Most bytes of one group of lines."""
_PARALLEL = 8
"""URLs that are looked up at the same time."""


@dataclass(frozen=True)
class Line:
    """A line of a list, without its end; `number` counts from 1."""

    number: int
    text: str


@dataclass(frozen=True)
class BadLine:
    """A line that names no image, and the reason."""

    line: Line
    reason: str


@dataclass(frozen=True)
class ListedImage:
    """An image, and the line that names it or its folder."""

    line: Line
    file: ImageFile


def read_lines(stream: BinaryIO, *, null: bool = False) -> Iterator[list[Line]]:
    r"""Read the lines of a list in groups; blank lines are left out.

    Parameters
    ----------
    stream : binary stream
        Buffered: `read1` returns what is there, and waits only if there is nothing.
    null : bool
        Whether lines end with a NUL, as `find -print0` writes them, instead of a newline.

    Examples
    --------
    >>> import io
    >>> [[line.text for line in group] for group in read_lines(io.BytesIO(b"a.png\r\n\nb.png"))]
    [['a.png'], ['b.png']]
    """
    end = b"\0" if null else b"\n"
    number, rest = 0, b""
    while True:
        block = stream.read1(_BYTES)  # type: ignore[attr-defined]
        *complete, rest = (rest + block).split(end)
        if not block and rest:
            complete, rest = [*complete, rest], b""
        group = []
        for content in complete:
            number += 1
            text = os.fsdecode(content if null else content.rstrip(b"\r"))
            if number == 1:
                text = text.removeprefix("\ufeff")
            if text if null else text.strip():
                group.append(Line(number, text))
        if group:
            yield group
        if not block:
            return


class ImageFinder:
    """Finds the images that lines name: files, folders of images, and URLs of both.

    What is below a folder that an earlier line named is found once: `find photos` writes the
    folder, and then all that is in it.
    """

    def __init__(self) -> None:
        self._folders: set[str] = set()

    def find(self, group: list[Line]) -> Iterator[ListedImage | BadLine]:
        """Yield the images of some lines in order."""
        with ThreadPoolExecutor(_PARALLEL) as pool:
            # only URLs are worth a thread; files are looked up when it is their turn
            urls = {line.number: pool.submit(_look_up, line) for line in group if is_url(line.text)}
            for line in group:
                if self._was_found(line):
                    continue
                found = urls[line.number].result() if line.number in urls else _look_up(line)
                if isinstance(found, InputError):
                    yield BadLine(line, str(found))
                    continue
                if not is_url(line.text) and Path(line.text).is_dir():
                    self._folders.add(os.path.normpath(line.text))
                yield from (ListedImage(line, file) for file in found)

    def _was_found(self, line: Line) -> bool:
        """Whether a line names something below a folder of an earlier line."""
        if not self._folders or is_url(line.text):
            return False
        path = Path(os.path.normpath(line.text))
        return any(str(folder) in self._folders for folder in (path, *path.parents))


def _look_up(line: Line) -> list[ImageFile] | InputError:
    try:
        return image_files([line.text])
    except InputError as error:
        return error


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
