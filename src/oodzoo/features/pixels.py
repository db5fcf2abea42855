"""Decoding the images of a shard once, resized for every model, in background threads."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from joblib import cpu_count
from PIL import Image

from oodzoo._threads import Prefetch
from oodzoo.data import images
from oodzoo.zoo.model import Pixels
from oodzoo.zoo.preprocessing import Geometry

_IMAGES_PER_CALL = 4
"""Images per background call, to reduce the overhead of dispatching."""


@dataclass(frozen=True)
class Chunk:
    """Decoded images of a shard.

    `positions` has the readable images, in the order of the rows of `pixels`; `problems` has the
    reason for each unreadable one.
    """

    positions: list[int]
    pixels: dict[Geometry, Pixels]
    problems: dict[int, str]


class Decoding:
    """Decodes images in the background from the moment it is created.

    `files` has image files, or images in memory, by position in the shard; each is resized to all
    geometries.
    """

    def __init__(
        self, files: Mapping[int, Path | Image.Image], geometries: Collection[Geometry]
    ) -> None:
        self._positions = list(files)
        self._pixels = {
            geometry: np.empty((len(files), *geometry.crop, 3), np.uint8) for geometry in geometries
        }
        sources = list(files.values())
        calls = [
            (sources[start : start + _IMAGES_PER_CALL], start, self._pixels)
            for start in range(0, len(sources), _IMAGES_PER_CALL)
        ]
        self._results = Prefetch(_decode, calls, n_threads=cpu_count())

    def cancel(self) -> None:
        """Cancel the decoding of the remaining images."""
        self._results.close()

    def result(self) -> Chunk:
        """Wait until all images are decoded."""
        problems = {
            self._positions[row]: reason for found in self._results for row, reason in found.items()
        }
        rows = [row for row, position in enumerate(self._positions) if position not in problems]
        pixels = self._pixels
        if problems:
            pixels = {geometry: array[rows] for geometry, array in pixels.items()}
        return Chunk([self._positions[row] for row in rows], pixels, problems)


def _decode(
    sources: Sequence[Path | Image.Image], start: int, pixels: Mapping[Geometry, Pixels]
) -> dict[int, str]:
    """Decode images into the rows from `start` of each array; return the errors by row."""
    problems = {}
    for row, source in enumerate(sources, start=start):
        try:
            image = (
                images.as_rgb(source) if isinstance(source, Image.Image) else images.read(source)
            )
        except images.UnreadableImageError as error:
            problems[row] = str(error)
            continue
        for geometry, array in pixels.items():
            array[row] = geometry.apply(image)
    return problems
