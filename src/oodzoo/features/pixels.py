"""Images of one shard, decoded once and resized for every model, in background threads."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from joblib import cpu_count
from PIL import Image

from oodzoo.data import images
from oodzoo.features.prefetch import abandon, in_background
from oodzoo.zoo.model import Pixels
from oodzoo.zoo.preprocessing import Geometry

_TOGETHER = 4
"""Images that a thread takes at a time: handing out work costs time, too."""


@dataclass(frozen=True)
class Chunk:
    """The readable images of a shard, and why the others are not."""

    positions: list[int]
    pixels: dict[Geometry, Pixels]
    problems: dict[int, str]


class Decoding:
    """Starts to decode at once; :meth:`result` waits for it.

    Parameters
    ----------
    files : mapping of int to path or image
        The image files, or images in memory, by position in the shard.
    geometries : collection of Geometry
        The sizes that are wanted of each image.
    """

    def __init__(
        self, files: Mapping[int, Path | Image.Image], geometries: Collection[Geometry]
    ) -> None:
        self._positions = list(files)
        self._pixels = {
            geometry: np.empty((len(files), *geometry.crop, 3), np.uint8) for geometry in geometries
        }
        given = list(files.values())
        calls = [
            (given[top : top + _TOGETHER], top, self._pixels)
            for top in range(0, len(given), _TOGETHER)
        ]
        self._results = in_background(_decode, calls, n_jobs=cpu_count(), ahead="all")

    def abandon(self) -> None:
        """Stop decoding; the images are not wanted any more."""
        abandon(self._results)

    def result(self) -> Chunk:
        problems = {
            self._positions[row]: reason for found in self._results for row, reason in found.items()
        }
        rows = [row for row, position in enumerate(self._positions) if position not in problems]
        pixels = self._pixels
        if problems:
            pixels = {geometry: array[rows] for geometry, array in pixels.items()}
        return Chunk([self._positions[row] for row in rows], pixels, problems)


def _decode(
    files: Sequence[Path | Image.Image], top: int, pixels: Mapping[Geometry, Pixels]
) -> dict[int, str]:
    """Put some images in every size into rows from `top`; say why one cannot be read."""
    problems = {}
    for row, file in enumerate(files, start=top):
        try:
            image = images.as_rgb(file) if isinstance(file, Image.Image) else images.read(file)
        except images.UnreadableImageError as error:
            problems[row] = str(error)
            continue
        for geometry, array in pixels.items():
            array[row] = geometry.apply(image)
    return problems
