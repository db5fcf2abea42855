"""From images to the selected features of several models, chunk by chunk."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from oodzoo.core.errors import InputError
from oodzoo.core.remote.location import Url, parse_location
from oodzoo.core.remote.objects import find_file
from oodzoo.data.files import ImageFile, LocalFile, ObjectImage, RemoteImage, StoredFile
from oodzoo.data.listing import SUFFIXES, explaining_errors
from oodzoo.data.sources.folder import images_below, list_images
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.forward import Chunk, Decoding, Job, run_jobs
from oodzoo.zoo import Geometry, Model
from oodzoo.zoo.layers import by_network
from oodzoo.zoo.model import Pixels, network_of

ImageLike = str | os.PathLike[str] | ImageFile | Image.Image | NDArray[np.uint8]
"""A file or URL, a Pillow image, or pixels (height, width, 3) or (height, width)."""

_CHUNK_SIZE = 64
"""Images per chunk, unless a batch is larger; at most two chunks are in memory."""


@dataclass(frozen=True)
class FeatureChunk:
    """Features of consecutive images, and why some have none."""

    paths: list[str | None]
    """Path or URL of each image; None for an image in memory."""
    positions: list[int]
    """Position in `paths` of each row of `features`."""
    features: NDArray[np.float32]
    problems: dict[int, str]
    """Why an image has no features, by position in `paths`."""


def iter_features(
    images: Iterable[ImageLike],
    models: Mapping[str, Model],
    columns: Columns,
    batch_size: int,
) -> Iterator[FeatureChunk]:
    """Compute the given columns of the models' features for any number of images.

    The next chunk is decoded while this one goes through the models.
    """
    geometries = dict.fromkeys(m.info.preprocessing.geometry for m in models.values())
    networks = by_network(models.values(), network_of)
    parts: dict[str, NDArray[np.float32]] = {}

    def jobs() -> Iterator[Job[tuple[list[str | None], Chunk]]]:
        for paths, chunk in _decode(images, list(geometries), max(batch_size, _CHUNK_SIZE)):
            for together in networks:
                pixels = chunk.pixels[together[0].info.preprocessing.geometry]
                yield Job((paths, chunk), together, pixels, batch_size)

    for done in run_jobs(jobs()):
        if done.outputs is None:
            raise done.error or RuntimeError("no outputs")
        for model, outputs in zip(done.job.models, done.outputs, strict=True):
            parts[model.info.name] = columns.of(model.info.name, outputs.features)
        if len(parts) == len(models):
            paths, chunk = done.job.tag
            features = np.concatenate([parts[name] for name in models], axis=1)
            yield _finite_rows(paths, chunk, features)
            parts.clear()


def compute_features(
    pixels: Mapping[Geometry, Pixels],
    models: Mapping[str, Model],
    columns: Columns,
) -> NDArray[np.float32]:
    """Compute the given columns of the models' features for preprocessed images."""
    return np.concatenate(
        [
            columns.of(name, model(pixels[model.info.preprocessing.geometry]).features)
            for name, model in models.items()
        ],
        axis=1,
    )


def preprocess_images(images: Iterable[ImageLike], geometry: Geometry) -> Pixels:
    """Decode and resize images into one array (n, height, width, 3)."""
    opened = dict(enumerate(_file_or_image(image) for image in images))
    chunk = Decoding(opened, [geometry]).result()
    for position, error in chunk.problems.items():
        raise InputError(f"cannot read the image {str(opened[position])!r}: {error}") from error
    pixels: Pixels = chunk.pixels[geometry]
    return pixels


def image_files(paths: Iterable[str | os.PathLike[str]]) -> list[ImageFile]:
    """List image files: files as given, and all images below a folder or URL, sorted.

    Links to folders outside and links in loops are ignored. Raises InputError for a path that does
    not exist, a folder that cannot be read, or one without images.
    """
    files: list[ImageFile] = []
    given = list(paths)
    if "" in given:  # as of a variable that is not set; it would be the current folder
        raise InputError("got an empty path; name an image or a folder, or . for the current one")
    for path in map(parse_location, given):
        if isinstance(path, Url):
            files += _remote_images(path)
            continue
        with explaining_errors(path):
            if not path.exists():
                raise InputError(f"no such file or folder: {str(path)!r}")
            found = _folder_images(path) if path.is_dir() else [path]
            files += [LocalFile(str(file)) for file in found]
    return files


def _remote_images(url: Url) -> list[ImageFile]:
    if (file := find_file(url)) is not None:
        return [RemoteImage(file)]
    if url.scheme in ("http", "https"):  # which give no lists
        raise InputError(f"no such file: {str(url)!r}")
    images, _ = images_below(url)
    if not images:
        raise InputError(f"{str(url)!r} has no images ({', '.join(sorted(SUFFIXES))})")
    return list(images.values())


def _folder_images(folder: Path) -> list[Path]:
    names, issues = list_images(folder)
    for issue in issues:
        warnings.warn(f"in {str(folder)!r}: {issue.message}", stacklevel=3)
    if not names:
        raise InputError(
            f"the folder {str(folder)!r} has no images ({', '.join(sorted(SUFFIXES))})"
        )
    return [folder / name for name in names]


def _decode(
    images: Iterable[ImageLike], geometries: Sequence[Geometry], size: int
) -> Iterator[tuple[list[str | None], Chunk]]:
    """Decode images in chunks of this size, one chunk ahead."""
    opened = (_file_or_image(image) for image in images)
    chunks = iter(lambda: list(islice(opened, size)), [])
    started = ((chunk, Decoding(dict(enumerate(chunk)), geometries)) for chunk in chunks)
    following = next(started, None)
    try:
        while following is not None:
            current, decoding = following
            chunk = decoding.result()
            following = next(started, None)
            yield [None if isinstance(x, Image.Image) else str(x) for x in current], chunk
    finally:
        if following is not None:
            following[1].cancel()


def _file_or_image(image: ImageLike) -> ImageFile | Image.Image:
    if isinstance(image, Image.Image | StoredFile | ObjectImage):
        return image
    if isinstance(image, str | os.PathLike):
        location = parse_location(image)
        return RemoteImage.at(location) if isinstance(location, Url) else LocalFile(str(location))
    if not isinstance(image, np.ndarray):
        raise InputError(
            "an image must be a path, a URL, a Pillow image or a uint8 array, got "
            f"{type(image).__name__} {str(image)[:40]!r}"
        )
    if image.dtype != np.uint8 or not (
        image.ndim == 2 or (image.ndim == 3 and image.shape[2] in (3, 4))
    ):
        raise InputError(
            "an image as an array must be uint8 (height, width, 3) or (height, width), got "
            f"{image.dtype} {image.shape}"
        )
    return Image.fromarray(image)


def _finite_rows(
    paths: list[str | None], chunk: Chunk, features: NDArray[np.float32]
) -> FeatureChunk:
    """Report images with NaN or infinite features as problems."""
    finite = np.asarray(np.isfinite(features).all(axis=1))
    problems = {position: str(error) for position, error in chunk.problems.items()}
    for row in np.flatnonzero(~finite).tolist():
        problems[chunk.positions[row]] = "a model returns NaN or infinite features for it"
    positions = [chunk.positions[row] for row in np.flatnonzero(finite).tolist()]
    return FeatureChunk(paths, positions, features[finite], problems)
