"""Reading, hashing and decoding the image files of a data set, in threads."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.core.events import Progress
from oodzoo.core.threads import Prefetch
from oodzoo.data.files import ImageFile, TextFile, UnreadableImageError, reading

if TYPE_CHECKING:
    from oodzoo.data.images import ImageFacts


_IMAGES_PER_CALL = 16
"""Images per call of a thread, to reduce the overhead of dispatching."""

REMOTE_READERS = 32
"""Threads that read remote images: almost all of them wait for an answer."""


READ_AHEAD = 4096
"""Calls that are waiting or done before their results are taken: a slow answer holds up few, and
those of a large data set do not fill the memory."""


class Content(NamedTuple):
    """What the bytes of an image file show."""

    digest: str | None
    """SHA-256; None if the file cannot be read."""
    problem: str | None
    """Why the file cannot be read or decoded."""
    n_bytes: int | None = None
    """Size of the file; None if it cannot be read."""
    facts: ImageFacts | None = None
    """What decoding shows; None if the file was not decoded."""
    is_transient: bool = False
    """The file cannot be read now; see :class:`~oodzoo.data.files.UnreadableImageError`."""


class Hashes(NamedTuple):
    """SHA-256 of each image file, None if it cannot be read; the reason by path of those."""

    digests: tuple[str | None, ...]
    unreadable: dict[str, str]


class ImageFiles(ABC):
    """Image files that are hashed once, when a digest is first needed."""

    @abstractmethod
    def _files(self) -> dict[str, ImageFile]:
        """Return the image files by path, in order."""

    @property
    def digests(self) -> tuple[str | None, ...]:
        """SHA-256 of each image file; None where it cannot be read."""
        return self._hashes.digests

    @property
    def files_by_digest(self) -> dict[str, ImageFile]:
        """The image files that can be read, by SHA-256."""
        pairs = zip(self.digests, self._files().values(), strict=True)
        return {digest: file for digest, file in pairs if digest is not None}

    @property
    def unreadable(self) -> dict[str, str]:
        """Reason by path of the images whose file could not be read when it was hashed."""
        return self._hashes.unreadable

    @property
    def is_read(self) -> bool:
        """Whether all images have been read, so that their digests are known."""
        return "_hashes" in self.__dict__

    @property
    def all_files(self) -> list[ImageFile]:
        """Where the bytes of each image are."""
        return list(self._files().values())

    def read_all(self, progress: Progress | None = None) -> None:
        """Read all images to know their digests; remote ones are then in the local cache.

        Raises
        ------
        InputError
            If a remote image cannot be fetched: it would be missing from all that follows.
        """
        files = self._files()
        contents: dict[str, Content] = {}
        with closing(read_contents(list(files.values()), progress=progress)) as found:
            for (path, file), content in zip(files.items(), found, strict=True):
                if content.is_transient and file.remote is not None:
                    raise InputError(f"cannot fetch {path!r}: {content.problem}")
                contents[path] = content
        self.__dict__["_hashes"] = hashes(contents)

    @cached_property
    def _hashes(self) -> Hashes:
        self.read_all()
        found: Hashes = self.__dict__["_hashes"]
        return found


def hashes(contents: dict[str, Content]) -> Hashes:
    """Collect the digests of inspected files, and why those without a digest cannot be read."""
    unreadable = {
        path: content.problem
        for path, content in contents.items()
        if content.digest is None and content.problem is not None
    }
    return Hashes(tuple(content.digest for content in contents.values()), unreadable)


def inspect(files: Mapping[str, ImageFile]) -> dict[str, Content]:
    """Hash image files, given by path, and try to decode them."""
    return dict(zip(files, read_contents(list(files.values()), decode=True), strict=True))


def read_contents(
    files: Sequence[ImageFile], *, decode: bool = False, progress: Progress | None = None
) -> Generator[Content, None, None]:
    """Hash image files, and also try to decode them if `decode`; yield their contents in order."""
    from joblib import cpu_count

    is_remote = any(file.remote for file in files)
    size = 1 if is_remote else _IMAGES_PER_CALL
    calls = ((files[at : at + size], decode) for at in range(0, len(files), size))
    threads = REMOTE_READERS if is_remote else cpu_count()
    done = 0
    with closing(Prefetch(_inspect, calls, n_threads=threads, ahead=READ_AHEAD)) as parts:
        for part in parts:
            done += len(part)
            if progress is not None:
                progress(done, len(files))
            yield from part


def _inspect(files: Sequence[ImageFile], decode: bool) -> list[Content]:
    return [_content(file, decode) for file in files]


def _content(file: ImageFile, decode: bool) -> Content:
    from oodzoo.data.images import examine  # with it Pillow, which rankings do not need

    digest = n_bytes = facts = None
    try:
        with reading(file) as content:
            digest, n_bytes = hashlib.sha256(content).hexdigest(), len(content)
            if decode and not isinstance(file, TextFile):
                facts = examine(content)
    except UnreadableImageError as error:
        return Content(digest, str(error), n_bytes, is_transient=error.transient)
    return Content(digest, None, n_bytes, facts)


# --- arrays for a summary -------------------------------------------------------------------------


@dataclass(frozen=True)
class Inspection:
    """Digests, problems and facts of images, in order; about 20 bytes for the facts of an image.

    Attributes
    ----------
    digests : tuple of str or None
        SHA-256 of each file; None if it cannot be read.
    problems : dict of int to str
        Why an image cannot be read or decoded, by its position.
    n_bytes : array (n,)
        Size of each file; 0 if it cannot be read.
    width, height : array (n,)
        Pixels of the upright image; 0 if it cannot be decoded.
    is_grey : array (n,)
    kinds : tuple of (str, str)
        Format and mode, by the numbers in `kind`.
    kind : array (n,)
    """

    digests: tuple[str | None, ...]
    problems: dict[int, str]
    n_bytes: NDArray[np.int64]
    width: NDArray[np.int32]
    height: NDArray[np.int32]
    is_grey: NDArray[np.bool_]
    kinds: tuple[tuple[str, str], ...]
    kind: NDArray[np.int16]

    def hashes(self, paths: Sequence[str]) -> Hashes:
        """Return the digests, and why those without a digest cannot be read, by path."""
        unread = {
            paths[at]: problem for at, problem in self.problems.items() if self.digests[at] is None
        }
        return Hashes(self.digests, unread)


def inspect_images(files: Sequence[ImageFile], progress: Progress | None = None) -> Inspection:
    """Read, hash and decode images in threads."""
    n = len(files)
    digests: list[str | None] = []
    problems: dict[int, str] = {}
    kinds: dict[tuple[str, str], int] = {}
    n_bytes = np.zeros(n, np.int64)
    width, height = np.zeros(n, np.int32), np.zeros(n, np.int32)
    is_grey = np.zeros(n, np.bool_)
    kind = np.zeros(n, np.int16)
    with closing(read_contents(files, decode=True, progress=progress)) as contents:
        for at, content in enumerate(contents):
            digests.append(content.digest)
            n_bytes[at] = content.n_bytes or 0
            if content.problem is not None:
                problems[at] = content.problem
            if (facts := content.facts) is not None:
                width[at], height[at], is_grey[at] = facts.width, facts.height, facts.is_grey
                kind[at] = kinds.setdefault((facts.format, facts.mode), len(kinds))
    return Inspection(tuple(digests), problems, n_bytes, width, height, is_grey, tuple(kinds), kind)
