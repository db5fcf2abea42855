"""Hashing image files, and trying to decode them, in threads."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from oodzoo._threads import Prefetch
from oodzoo.data import images
from oodzoo.events import Progress

_IMAGES_PER_CALL = 16
"""Images per call of a thread, to reduce the overhead of dispatching."""


class Content(NamedTuple):
    """SHA-256 of an image file, None if it cannot be read; why it cannot be read or decoded."""

    digest: str | None
    problem: str | None


class Hashes(NamedTuple):
    """SHA-256 of each image file, None if it cannot be read; the reason by path of those."""

    digests: tuple[str | None, ...]
    unreadable: dict[str, str]


class ImageFiles(ABC):
    """Image files that are hashed once, when a digest is first needed."""

    @abstractmethod
    def _files(self) -> dict[str, Path]:
        """Return the image files by path, in order."""

    @property
    def digests(self) -> tuple[str | None, ...]:
        """SHA-256 of each image file; None where it cannot be read."""
        return self._hashes.digests

    @property
    def unreadable(self) -> dict[str, str]:
        """Reason by path of the images whose file could not be read when it was hashed."""
        return self._hashes.unreadable

    @cached_property
    def _hashes(self) -> Hashes:
        return hashes(inspect(self._files()))


def hashes(contents: dict[str, Content]) -> Hashes:
    """Collect the digests of inspected files, and why those without a digest cannot be read."""
    unreadable = {
        path: content.problem
        for path, content in contents.items()
        if content.digest is None and content.problem is not None
    }
    return Hashes(tuple(content.digest for content in contents.values()), unreadable)


def inspect(
    files: dict[str, Path], *, decode: bool = False, progress: Progress | None = None
) -> dict[str, Content]:
    """Hash image files, given by path, and also try to decode them if `decode`."""
    from joblib import cpu_count

    listed = list(files.values())
    starts = range(0, len(listed), _IMAGES_PER_CALL)
    calls = [(listed[start : start + _IMAGES_PER_CALL], decode) for start in starts]
    contents: list[Content] = []
    for part in Prefetch(_inspect, calls, n_threads=cpu_count()):
        contents += part
        if progress is not None:
            progress(len(contents), len(listed))
    return dict(zip(files, contents, strict=True))


def _inspect(files: list[Path], decode: bool) -> list[Content]:
    contents = []
    for file in files:
        digest = problem = None
        try:
            with images.reading(file) as content:
                digest = hashlib.sha256(content).hexdigest()
                if decode:
                    images.decode(content)
        except images.UnreadableImageError as error:
            problem = str(error)
        contents.append(Content(digest, problem))
    return contents
