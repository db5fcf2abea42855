"""Images of one shard, decoded once and resized for every network, in background threads."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from joblib import cpu_count
from PIL import Image

from zood import images
from zood.features.background import abandon, in_background
from zood.zoo.network import Pixels
from zood.zoo.preprocessing import Geometry


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
        self._geometries = tuple(geometries)
        calls = [(file, self._geometries) for file in files.values()]
        self._results = in_background(_decode, calls, n_jobs=cpu_count(), ahead="all")

    def abandon(self) -> None:
        """Stop decoding; the images are not wanted any more."""
        abandon(self._results)

    def result(self) -> Chunk:
        positions: list[int] = []
        problems: dict[int, str] = {}
        resized: list[list[Pixels]] = []
        for position, decoded in zip(self._positions, self._results, strict=True):
            if isinstance(decoded, str):
                problems[position] = decoded
            else:
                positions.append(position)
                resized.append(decoded)
        pixels = {
            geometry: np.stack([image[at] for image in resized])
            if resized
            else np.empty((0, *geometry.crop, 3), np.uint8)
            for at, geometry in enumerate(self._geometries)
        }
        return Chunk(positions, pixels, problems)


def _decode(file: Path | Image.Image, geometries: tuple[Geometry, ...]) -> list[Pixels] | str:
    """One image in every size, or why it cannot be read."""
    try:
        image = images.as_rgb(file) if isinstance(file, Image.Image) else images.read(file)
    except images.UnreadableImageError as error:
        return str(error)
    return [geometry.apply(image) for geometry in geometries]
