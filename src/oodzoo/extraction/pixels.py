"""Decoding images once, resized for every model, in background threads; or texts."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from joblib import cpu_count
from PIL import Image

from oodzoo.core.threads import Prefetch
from oodzoo.data import images
from oodzoo.data.contents import REMOTE_READERS
from oodzoo.data.files import ImageFile, RemoteImage, UnreadableImageError, reading
from oodzoo.zoo.preprocessing import Geometry

_IMAGES_PER_CALL = 4
"""Images per background call, to reduce the overhead of dispatching."""


class HashedFile(NamedTuple):
    """An image file that must still have the SHA-256 it had when it was listed."""

    file: ImageFile
    sha256: str


Source = HashedFile | ImageFile | Image.Image

Decoded = Mapping[Geometry | None, Any]
"""Pixels by geometry; texts have none, and are a list."""


@dataclass(frozen=True)
class Chunk:
    """Decoded images of a shard.

    `positions` has the readable images, in the order of the rows of `pixels`; `problems` has the
    error of each unreadable one.
    """

    positions: list[int]
    pixels: dict[Geometry | None, Any]
    problems: dict[int, UnreadableImageError]


class Decoding:
    """Decodes images in the background from the moment it is created.

    `files` has image files, or images in memory, by position in the shard; each is resized to all
    geometries. `problems` has the errors of images that are known to be unreadable.
    """

    def __init__(
        self,
        files: Mapping[int, Source],
        geometries: Collection[Geometry | None],
        problems: Mapping[int, UnreadableImageError] | None = None,
    ) -> None:
        self._known = dict(problems or {})
        self._positions = list(files)
        self._pixels: dict[Geometry | None, Any] = {
            geometry: [""] * len(files)
            if geometry is None
            else np.empty((len(files), *geometry.crop, 3), np.uint8)
            for geometry in geometries
        }
        sources = list(files.values())
        calls = [
            (sources[start : start + _IMAGES_PER_CALL], start, self._pixels)
            for start in range(0, len(sources), _IMAGES_PER_CALL)
        ]
        # Files of an extraction have been fetched already; reading another remote one waits.
        waits = any(isinstance(each, RemoteImage) for each in sources)
        threads = REMOTE_READERS if waits else cpu_count()
        self._results = Prefetch(_decode, calls, n_threads=threads)

    def cancel(self) -> None:
        """Cancel the decoding of the remaining images."""
        self._results.close()

    def result(self) -> Chunk:
        """Wait until all images are decoded."""
        problems = {
            self._positions[row]: error for found in self._results for row, error in found.items()
        }
        rows = [row for row, position in enumerate(self._positions) if position not in problems]
        pixels = self._pixels
        if problems:
            pixels = {
                geometry: [array[row] for row in rows] if geometry is None else array[rows]
                for geometry, array in pixels.items()
            }
        return Chunk([self._positions[row] for row in rows], pixels, {**self._known, **problems})


def _decode(
    sources: Sequence[Source], start: int, pixels: Decoded
) -> dict[int, UnreadableImageError]:
    """Decode images into the rows from `start` of each array; return the errors by row."""
    problems = {}
    for row, source in enumerate(sources, start=start):
        try:
            if None in pixels:
                pixels[None][row] = _read_text(source)
                continue
            with _opened(source) as image:
                for geometry, array in pixels.items():
                    if geometry is not None:
                        array[row] = geometry.apply(image)
        except UnreadableImageError as error:
            problems[row] = error
    return problems


def _read_text(source: Source) -> str:
    file, digest = source if isinstance(source, HashedFile) else (source, None)
    if isinstance(file, Image.Image):
        raise UnreadableImageError("an image, not a text")
    with reading(file) as content:
        _require_digest(content, digest)
        return content.decode(errors="replace")


def _require_digest(content: bytes, digest: str | None) -> None:
    if digest is not None and hashlib.sha256(content).hexdigest() != digest:
        raise UnreadableImageError("the file has changed since it was listed", transient=True)


@contextmanager
def _opened(source: Source) -> Iterator[Image.Image]:
    """Decode an image, for use in the with block."""
    if isinstance(source, Image.Image):
        yield images.as_rgb(source)
        return
    file, digest = source if isinstance(source, HashedFile) else (source, None)
    with reading(file) as content:
        _require_digest(content, digest)
        with images.decoding(content) as image:
            yield image
