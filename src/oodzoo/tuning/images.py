"""Images for training: decoded once, cropped at random again and again, batches made ahead."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Literal, TypeVar

import numpy as np
from joblib import cpu_count
from numpy.typing import NDArray
from PIL import Image

from oodzoo._threads import Prefetch
from oodzoo.data.contents import REMOTE_READERS
from oodzoo.data.files import ImageFile, UnreadableImageError, reading
from oodzoo.data.images import decoding, explaining_errors
from oodzoo.errors import InputError
from oodzoo.zoo.preprocessing import Geometry

AREA = (0.7, 1.0)
"""Share of an image that a random crop has, as in DomainBed."""
ASPECT = (3 / 4, 4 / 3)
"""Width of a random crop divided by its height."""
OVERSAMPLING = 1.5
"""Least size of a reduced image, relative to the crop."""

_ATTEMPTS = 10
_N_DRAWS = 2 * _ATTEMPTS + 2
_IMAGES_PER_CALL = 4
"""Images per call of a thread, to reduce the overhead of dispatching."""

Pixels = NDArray[np.uint8]
Rows = Sequence[int] | NDArray[np.integer]
Box = tuple[int, int, int, int]
"""Top, left, height and width."""
Form = Literal["whole", "reduced", "prepared"]
T = TypeVar("T")


class TrainingImages:
    """Images by row, as a model takes them: as in extraction, or cropped at random.

    Images are read and decoded in background threads. Decoded and prepared images are kept, with
    3 bytes per pixel, until they have `memory_bytes` together; the others are decoded each time.
    What is kept changes no result. Several threads may use it at the same time. Use it as a
    context manager, or call :meth:`close`.

    Parameters
    ----------
    files : sequence of ImageFile
    geometry : Geometry
        Of the model.
    memory_bytes : int
        Most bytes of images to keep.
    """

    def __init__(
        self, files: Sequence[ImageFile], geometry: Geometry, *, memory_bytes: int = 4 * 2**30
    ) -> None:
        self._files = files
        self._geometry = geometry
        is_remote = any(file.remote is not None for file in files)
        self._pool = ThreadPoolExecutor(REMOTE_READERS if is_remote else cpu_count())
        self._kept: dict[tuple[Form, int], Pixels] = {}
        self.memory_bytes = memory_bytes
        self._free = memory_bytes
        self._lock = Lock()

    def __enter__(self) -> TrainingImages:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the threads, and forget the images."""
        self._pool.shutdown(cancel_futures=True)
        self._kept.clear()

    def prepared(self, rows: Rows) -> Pixels:
        """Return images (n, height, width, 3) resized and cropped exactly as in extraction.

        Raises
        ------
        InputError
            If an image cannot be read; the message names it.
        """
        return self._filled(rows, lambda row, _: self._prepared(row))

    def cropped(self, rows: Rows, seed: int) -> Pixels:
        """Return a random crop of each image, resized to (n, height, width, 3), as in DomainBed.

        The crop has 0.7 to 1 of the area of the image and an aspect ratio of 3/4 to 4/3. It is
        drawn by the algorithm of torchvision's RandomResizedCrop, and resized by Pillow with
        bilinear interpolation and antialiasing.

        An image whose height and width are more than 1.5 times those of the result is reduced to
        that size first, and the crop is one of the reduced image. On photographs this changes the
        result by 0.5 of 255 levels on average; it needs less memory, and less time per crop.

        Parameters
        ----------
        rows : sequence of int
        seed : int
            The crop of an image depends on the seed and on its position in `rows` only.

        Raises
        ------
        InputError
            If an image cannot be read; the message names it.
        """
        draws = crop_draws(len(rows), seed)
        return self._filled(rows, lambda row, at: self._cropped(row, draws[at]))

    @property
    def crop(self) -> tuple[int, int]:
        """Height and width of crops."""
        return self._geometry.crop

    def decoded(self, rows: Rows) -> list[Pixels]:
        """Return the images that crops are taken of, (height, width, 3)."""
        numbers = [int(row) for row in rows]
        return list(self._pool.map(lambda row: self._named(row, self._source), numbers))

    def _filled(self, rows: Rows, make: Callable[[int, int], Pixels]) -> Pixels:
        """Make the image of each row, in threads; `make` takes the row and its position."""
        pixels = np.empty((len(rows), *self._geometry.crop, 3), np.uint8)

        def fill(start: int) -> None:
            for at in range(start, min(start + _IMAGES_PER_CALL, len(rows))):
                pixels[at] = self._named(int(rows[at]), make, at)

        for _ in self._pool.map(fill, range(0, len(rows), _IMAGES_PER_CALL)):
            pass
        return pixels

    def _named(self, row: int, make: Callable[..., Pixels], *more: int) -> Pixels:
        """Make an image; an error names the file."""
        try:
            with explaining_errors():
                return make(row, *more)
        except UnreadableImageError as error:
            name = str(self._files[row])
            raise InputError(f"cannot read the image {name!r}: {error}") from error

    def _prepared(self, row: int) -> Pixels:
        if (prepared := self._kept.get(("prepared", row))) is not None:
            return prepared
        if (whole := self._kept.get(("whole", row))) is not None:
            return self._geometry.apply(Image.fromarray(whole))
        with reading(self._files[row]) as content, decoding(content) as image:
            prepared = self._geometry.apply(image)
        self._keep("prepared", row, prepared)
        return prepared

    def _cropped(self, row: int, draws: NDArray[np.float64]) -> Pixels:
        pixels = self._source(row)
        return _resized_crop(pixels, crop_box(pixels.shape[:2], draws), self._geometry.crop)

    def _source(self, row: int) -> Pixels:
        """The image that crops are taken of."""
        for form in ("whole", "reduced"):
            if (kept := self._kept.get((form, row))) is not None:
                return kept
        with reading(self._files[row]) as content, decoding(content) as image:
            reduced = _reduced(image, self._geometry.crop)
            pixels = np.asarray(reduced)
        self._keep("whole" if reduced is image else "reduced", row, pixels)
        return pixels

    def _keep(self, form: Form, row: int, pixels: Pixels) -> None:
        with self._lock:
            if (form, row) not in self._kept and pixels.nbytes <= self._free:
                self._free -= pixels.nbytes
                self._kept[form, row] = pixels


def crop_draws(n: int, seed: int) -> NDArray[np.float64]:
    """Draw the numbers that :func:`crop_box` takes, for each of n images."""
    return np.random.default_rng(seed).random((n, _N_DRAWS))


def crop_box(size: tuple[int, ...], draws: Sequence[float] | NDArray[np.float64]) -> Box:
    """Return the top, left, height and width of a random crop of an image (height, width).

    The algorithm is that of torchvision's RandomResizedCrop.

    Parameters
    ----------
    size : tuple of int
    draws : sequence of float
        22 independent numbers, uniform in [0, 1): an area and an aspect ratio for each of at most
        ten attempts, and then the position.
    """
    height, width = size
    numbers = iter(draws)
    low, high = map(math.log, ASPECT)
    for _ in range(_ATTEMPTS):
        area = height * width * (AREA[0] + next(numbers) * (AREA[1] - AREA[0]))
        aspect = math.exp(low + next(numbers) * (high - low))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            top = int(next(numbers) * (height - h + 1))
            return top, int(next(numbers) * (width - w + 1)), h, w
    # the largest crop in the centre with an aspect ratio within the limits
    h = min(height, round(width / ASPECT[0]))
    w = min(width, round(height * ASPECT[1]))
    return (height - h) // 2, (width - w) // 2, h, w


def _resized_crop(pixels: Pixels, box: Box, size: tuple[int, int]) -> Pixels:
    top, left, height, width = box
    crop = Image.fromarray(np.ascontiguousarray(pixels[top : top + height, left : left + width]))
    return np.asarray(crop.resize(size[::-1], Image.Resampling.BILINEAR))


def _reduced(image: Image.Image, crop: tuple[int, int]) -> Image.Image:
    height, width = crop
    scale = OVERSAMPLING * max(height / image.height, width / image.width)
    if scale >= 1:
        return image
    size = (math.ceil(scale * image.width), math.ceil(scale * image.height))
    # bilinear interpolation, applied twice, would blur
    return image.resize(size, Image.Resampling.LANCZOS)


def prefetched(
    make: Callable[[int], T], numbers: Iterable[int], depth: int = 4
) -> Generator[T, None, None]:
    """Call a function with each number ahead of time, in threads; results come in order.

    An exception is raised where its result would have come. When the iterator is closed, calls
    that have not started are cancelled, and the others waited for.

    Parameters
    ----------
    make : callable
    numbers : iterable of int
        May be infinite.
    depth : int
        Number of calls ahead.
    """
    results = Prefetch(make, ((number,) for number in numbers), n_threads=depth, ahead=depth)
    try:
        yield from results
    finally:
        results.close(wait=True)
