"""Lists of images to predict: paths and URLs, one per line, from a file or a pipe.

Lines are read as they come, in groups: a group is what is there to read, so the first predictions
need not wait for the end of a list that another program is still writing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from oodzoo.core.errors import InputError
from oodzoo.core.remote.location import is_url
from oodzoo.data.files import ImageFile
from oodzoo.predictor.images import image_files

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
