"""From images to the kept features of several models, piece by piece."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from oodzoo.data.listing import SUFFIXES
from oodzoo.errors import InputError
from oodzoo.features.forward import Job, run_jobs
from oodzoo.features.pixels import Chunk, Decoding
from oodzoo.zoo import Geometry, Model
from oodzoo.zoo.model import Pixels

ImageLike = str | os.PathLike[str] | Image.Image | NDArray[np.uint8]
"""A file, a Pillow image, or pixels (height, width, 3) or (height, width)."""

_PIECE = 64
"""Images that are in memory at a time, unless a batch is larger; two pieces are under way."""


@dataclass(frozen=True)
class Piece:
    """Consecutive images: the features of those that can be used, and why others cannot."""

    names: list[str | None]
    """The path of each, None for an image in memory."""
    positions: list[int]
    """Which images the rows of `features` belong to."""
    features: NDArray[np.float32]
    problems: dict[int, str]


def features_of(
    images: Iterable[ImageLike],
    models: Mapping[str, Model],
    columns: Mapping[str, NDArray[np.int64]],
    batch_size: int,
) -> Iterator[Piece]:
    """Run models over images of any number; memory does not grow with it.

    The next piece is decoded while this one goes through the models.
    """
    geometries = dict.fromkeys(n.info.preprocessing.geometry for n in models.values())
    parts: list[NDArray[np.float32]] = []

    def jobs() -> Iterator[Job[tuple[list[str | None], Chunk]]]:
        for names, chunk in _decoded(images, list(geometries), max(batch_size, _PIECE)):
            for model in models.values():
                pixels = chunk.pixels[model.info.preprocessing.geometry]
                yield Job((names, chunk), model, pixels, batch_size)

    for done in run_jobs(jobs()):
        model = done.job.model
        if done.outputs is None:
            raise done.error or RuntimeError("no outputs")
        parts.append(done.outputs.features[:, columns[model.info.name]])
        if len(parts) == len(models):
            names, chunk = done.job.tag
            yield _finite(names, chunk, np.concatenate(parts, axis=1))
            parts = []


def features_of_pixels(
    pixels: Mapping[Geometry, Pixels],
    models: Mapping[str, Model],
    columns: Mapping[str, NDArray[np.int64]],
) -> NDArray[np.float32]:
    """The kept features of images that are in the sizes of the models already."""
    return np.concatenate(
        [
            model(pixels[model.info.preprocessing.geometry]).features[:, columns[name]]
            for name, model in models.items()
        ],
        axis=1,
    )


def _finite(names: list[str | None], chunk: Chunk, features: NDArray[np.float32]) -> Piece:
    """A piece in which an image with NaN or infinite features counts as unusable."""
    good = np.asarray(np.isfinite(features).all(axis=1))
    problems = dict(chunk.problems)
    for row in np.flatnonzero(~good).tolist():
        problems[chunk.positions[row]] = "a model gives NaN or infinite features for it"
    positions = [chunk.positions[row] for row in np.flatnonzero(good).tolist()]
    return Piece(names, positions, features[good], problems)


def _decoded(
    images: Iterable[ImageLike], geometries: Sequence[Geometry], size: int
) -> Iterator[tuple[list[str | None], Chunk]]:
    """Images in the sizes that are wanted; those of the next piece are under way."""
    pieces = _pieces(images, size)
    ahead = next(pieces, None)
    decoding = None if ahead is None else Decoding(dict(enumerate(ahead)), geometries)
    try:
        while ahead is not None and decoding is not None:
            piece, chunk = ahead, decoding.result()
            ahead = next(pieces, None)
            decoding = None if ahead is None else Decoding(dict(enumerate(ahead)), geometries)
            yield [str(x) if isinstance(x, Path) else None for x in piece], chunk
    finally:
        if decoding is not None:
            decoding.abandon()


def preprocessed(images: Iterable[ImageLike], geometry: Geometry) -> Pixels:
    """Images as (n, height, width, 3), all in memory."""
    readable = dict(enumerate(_readable(image) for image in images))
    chunk = Decoding(readable, [geometry]).result()
    for at, reason in chunk.problems.items():
        raise InputError(f"cannot read the image {str(readable[at])!r}: {reason}")
    return chunk.pixels[geometry]


def _pieces(images: Iterable[ImageLike], size: int) -> Iterator[list[Path | Image.Image]]:
    coming = (_readable(image) for image in images)
    while piece := list(islice(coming, size)):
        yield piece


def _readable(image: ImageLike) -> Path | Image.Image:
    if isinstance(image, Image.Image):
        return image
    if isinstance(image, str | os.PathLike):
        return Path(image)
    if not isinstance(image, np.ndarray):
        raise InputError(
            f"an image must be a path, a Pillow image or an array of bytes, not "
            f"{type(image).__name__} {str(image)[:40]!r}"
        )
    if image.dtype != np.uint8 or not (
        image.ndim == 2 or (image.ndim == 3 and image.shape[2] in (3, 4))
    ):
        raise InputError(
            "an image as an array must be uint8 (height, width, 3) or (height, width), and is "
            f"{image.dtype} {image.shape}"
        )
    return Image.fromarray(image)


def image_files(paths: Iterable[str | os.PathLike[str]]) -> Iterator[Path]:
    """The image files that paths stand for: files as given, folders walked in sorted order.

    Raises
    ------
    InputError
        Before the first file is given: for a path that does not exist, and for a folder in which
        there is no image.
    """
    given = [Path(path) for path in paths]
    for path in given:
        if not path.exists():
            raise InputError(f"there is no {str(path)!r}; give image files or folders of them")
        if path.is_dir() and next(_walk(path), None) is None:
            raise InputError(
                f"the folder {str(path)!r} holds no image ({', '.join(sorted(SUFFIXES))})"
            )
    return (file for path in given for file in (_walk(path) if path.is_dir() else [path]))


def _walk(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if Path(name).suffix.lower() in SUFFIXES and not name.startswith("."):
                yield Path(parent) / name
