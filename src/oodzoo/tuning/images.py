r"""Images for training: decoded once, cropped at random, augmented, batches made ahead.

Images may stay on a GPU: cropping in threads would delay the thread that trains, since both need
Python's interpreter lock. There, resizing is a product of matrices: the rows and columns of a
resized crop are weighted means,

.. math:: Y = A_y X A_x^\top,

with the weights of Pillow's bilinear interpolation with antialiasing. They are zero outside the
crop, so that images of any size, padded to that of the largest, are resized together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from threading import Lock
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from joblib import cpu_count
from numpy.typing import NDArray
from PIL import Image

from oodzoo.core.errors import InputError
from oodzoo.core.threads import Prefetch
from oodzoo.data.files import ImageFile, UnreadableImageError, reading
from oodzoo.data.listing import REMOTE_READERS
from oodzoo.data.pixels import decoding, explaining_errors
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

SHARE = 0.25
"""Share of the free memory of the device that the images may take."""

Tensor = Any  # torch.Tensor
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
        whole = self._kept.get(("whole", row))
        if whole is not None and self._geometry.reduction(*whole.shape[1::-1]) == 1:
            return self._geometry.apply(Image.fromarray(whole))
        how = self._geometry.reduction
        with reading(self._files[row]) as content, decoding(content, how) as image:
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


# --- on a device ----------------------------------------------------------------------------------


class DeviceImages:
    """Decoded images on a device.

    Parameters
    ----------
    images : TrainingImages
    rows : sequence of int
        The images to move to the device.
    device : torch.device
    """

    def __init__(self, images: TrainingImages, rows: Rows, device: Any) -> None:
        import torch

        decoded = images.decoded(rows)
        self._crop = images.crop
        self._sizes = [each.shape[:2] for each in decoded]
        self._at = {int(row): at for at, row in enumerate(rows)}
        shape = (len(decoded), 3, *np.max(self._sizes, axis=0).tolist())
        self._pixels = torch.zeros(shape, dtype=torch.uint8, device=device)
        for at, each in enumerate(decoded):
            image = torch.from_numpy(np.array(each)).permute(2, 0, 1)
            self._pixels[at, :, : image.shape[1], : image.shape[2]] = image.to(device)

    @classmethod
    def if_they_fit(cls, images: TrainingImages, rows: Rows, device: Any) -> DeviceImages | None:
        """Move images to a GPU with enough free memory; None for other devices."""
        import torch

        if device.type != "cuda":
            return None
        free, _ = torch.cuda.mem_get_info(device)
        expected = 3 * len(rows) * OVERSAMPLING**2 * math.prod(images.crop)
        if expected > min(SHARE * free, images.memory_bytes):
            return None
        try:
            return cls(images, rows, device)
        except torch.cuda.OutOfMemoryError:  # some images are much longer than wide
            return None

    def cropped(self, rows: Rows, seed: int) -> Tensor:
        """Return the crops that :meth:`TrainingImages.cropped` draws, (n, 3, height, width).

        Values are from 0 to 1. They differ by rounding: Pillow rounds to 8 bits after each of two
        passes, here products are in half precision.
        """
        import torch

        numbers = [self._at[int(row)] for row in rows]
        draws = crop_draws(len(rows), seed)
        boxes = [crop_box(self._sizes[at], draw) for at, draw in zip(numbers, draws, strict=True)]
        device = self._pixels.device
        top, left, height, width = to_device(np.array(boxes, np.float32).T, device)
        chosen = self._pixels[to_device(np.array(numbers), device)]
        dtype = torch.float16 if device.type == "cuda" else torch.float32
        vertical = resizing_weights(top, height, chosen.shape[2], self._crop[0]).to(dtype)
        horizontal = resizing_weights(left, width, chosen.shape[3], self._crop[1]).to(dtype)
        planes = chosen.to(dtype).div_(255)
        resized = (vertical[:, None] @ planes) @ horizontal.transpose(1, 2)[:, None]
        return resized.float().clamp_(0, 1)


def resizing_weights(start: Tensor, length: Tensor, size: int, result: int) -> Tensor:
    """Weights (n, result, size) with which pixels of a line make those of a resized part of it.

    Parameters
    ----------
    start, length : Tensor (n,)
        Of the part.
    size : int
        Number of pixels of the line.
    result : int
        Number of pixels of the resized part.
    """
    import torch

    scale = (length / result)[:, None, None]
    pixels = torch.arange(size, device=start.device) - start[:, None, None]
    centres = (torch.arange(result, device=start.device)[:, None] + 0.5) * scale
    distance = (pixels + 0.5 - centres).abs() / scale.clamp(min=1)
    inside = (pixels >= 0) & (pixels < length[:, None, None])
    weights = (1 - distance).clamp(min=0) * inside
    return weights / weights.sum(dim=2, keepdim=True)


def to_device(values: NDArray[Any], device: Any) -> Tensor:
    """Copy an array to a device; a GPU goes on with its work meanwhile."""
    import torch

    tensor = torch.from_numpy(np.ascontiguousarray(values))
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def ahead_of_time(
    make: Callable[[int], Tensor], numbers: Sequence[int], device: Any
) -> Iterator[Tensor]:
    """Yield a tensor for each number; a GPU makes the next one while it works with this one."""
    torch: Any = import_module("torch")
    if device.type != "cuda":
        yield from map(make, numbers)
        return
    side, main = torch.cuda.Stream(device), torch.cuda.current_stream(device)

    def started(number: int) -> tuple[Tensor, Any]:
        with torch.cuda.stream(side):
            return make(number), side.record_event()

    following = started(numbers[0]) if len(numbers) else None
    for position in range(len(numbers)):
        assert following is not None
        tensor, made = following
        if position + 1 < len(numbers):
            following = started(numbers[position + 1])
        main.wait_event(made)
        tensor.record_stream(main)
        yield tensor


FLIP = 0.5
"""Probability of a horizontal flip."""
JITTER = 0.3
"""Largest change of the factors of brightness, contrast and saturation from 1, and of the hue."""
GREY = 0.1
"""Probability of a greyscale image."""

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
_N_AUGMENTED = 10


class Draws(NamedTuple):
    """The random parameters of a batch of n images, on the CPU."""

    flip: Tensor
    """(n,) booleans."""
    order: Tensor
    """(n, 4): the operations of the colour jitter in the order in which they are applied."""
    factors: Tensor
    """(n, 4): the factors of brightness, contrast and saturation, and the turn of the hue."""
    grey: Tensor
    """(n,) booleans."""


def draw(n: int, seed: int) -> Draws:
    """Draw the parameters of n images; those of an image depend on the seed and its position."""
    torch: Any = import_module("torch")
    generator = torch.Generator().manual_seed(seed)
    uniform = torch.rand((n, _N_AUGMENTED), generator=generator, dtype=torch.float64)
    factors = JITTER * (2 * uniform[:, 5:9] - 1)
    factors[:, :HUE] += 1
    return Draws(uniform[:, 0] < FLIP, uniform[:, 1:5].argsort(1), factors, uniform[:, 9] < GREY)


def augmented(batch: Tensor, seed: int) -> Tensor:
    """Flip images, jitter their colours and make some grey, as DomainBed does in training.

    A horizontal flip with probability 0.5; brightness, contrast and saturation by factors from 0.7
    to 1.3 and a turn of the hue by up to 0.3 of the circle, in a random order; greyscale with
    probability 0.1. All parameters are drawn for each image on its own.

    The formulas are those of torchvision for floating-point tensors. DomainBed uses torchvision on
    Pillow images, which rounds to 8 bits after each operation, and hues to 256 values. On 300
    photographs, paintings and drawings the results differ by 1.2 of 255 levels on average and by
    29 at most.

    Parameters
    ----------
    batch : Tensor
        Images (n, 3, height, width), floating-point, from 0 to 1, on any device.
    seed : int
        All parameters depend on it and on the position in the batch only, on every device.

    Returns
    -------
    Tensor
        A new tensor of the same shape, data type and device, from 0 to 1.
    """
    draws = draw(len(batch), seed)
    flipped, grey, *turned = _rows(draws, batch)
    images = batch.clone()
    _change(images, flipped, lambda some: some.flip(3))
    parameters = _on_device(_table(draws).to(batch.dtype), batch).view(13, -1, 1, 1, 1)
    for step, rows in enumerate(turned):
        _blend(images, *parameters[3 * step : 3 * step + 3])
        turns = parameters[-1].index_select(0, rows)
        _change(images, rows, partial(_turned, turns=turns))
    _change(images, grey, lambda some: _grey(some).expand_as(some))
    return images


def _rows(draws: Draws, batch: Tensor) -> Sequence[Tensor]:
    """Return the images to flip, those to make grey, and those to turn in each of four steps.

    All numbers of rows are known on the CPU, so that nothing waits for the device.
    """
    torch: Any = import_module("torch")
    masks = [draws.flip, draws.grey, *(draws.order == HUE).unbind(1)]
    rows = [mask.nonzero()[:, 0] for mask in masks]
    split: Sequence[Tensor] = _on_device(torch.cat(rows), batch).split([len(row) for row in rows])
    return split


def _table(draws: Draws) -> Tensor:
    """Return the parameters of the colour jitter (13, n), to copy them to the device at once.

    Brightness, contrast and saturation are mixtures of an image with black, with the mean of its
    greyscale form, and with its greyscale form. The table has, for each of the four steps, the
    weights of the image, of its greyscale form and of the mean; then the turn of the hue.
    """
    torch: Any = import_module("torch")
    rows = []
    for operation in draws.order.unbind(1):
        factor = draws.factors.gather(1, operation[:, None])[:, 0]
        factor[operation == HUE] = 1
        rows.append(factor)
        rows += [(1 - factor) * (operation == kind) for kind in (SATURATION, CONTRAST)]
    return torch.stack([*rows, draws.factors[:, HUE]])


def _on_device(values: Tensor, batch: Tensor) -> Tensor:
    """Copy from the CPU without waiting for the device."""
    if batch.is_cuda:
        values = values.pin_memory()
    return values.to(batch.device, non_blocking=True)


def _change(images: Tensor, rows: Tensor, function: Callable[[Tensor], Tensor]) -> None:
    if len(rows):
        images.index_copy_(0, rows, function(images.index_select(0, rows)))


def _grey(images: Tensor) -> Tensor:
    red, green, blue = images.split(1, 1)
    return (0.2989 * red).add_(green, alpha=0.587).add_(blue, alpha=0.114)


def _blend(images: Tensor, factor: Tensor, of_grey: Tensor, of_mean: Tensor) -> None:
    grey = _grey(images)
    mean = grey.mean((2, 3), keepdim=True)
    other = grey.mul_(of_grey).add_(mean.mul_(of_mean))
    images.mul_(factor).add_(other).clamp_(0, 1)


def _turned(images: Tensor, turns: Tensor) -> Tensor:
    """Turn the hue: from RGB to HSV and back."""
    torch: Any = import_module("torch")
    red, green, blue = images.split(1, 1)
    highest = torch.maximum(red, green).maximum(blue)
    spread = highest - torch.minimum(red, green).minimum(blue)
    hue = torch.where(
        green == highest,
        (blue - red).add_(spread, alpha=2),
        (red - green).add_(spread, alpha=4),
    )
    hue = torch.where(red == highest, green - blue, hue)  # in sixths of the circle
    hue = hue.div_(spread.clamp_min(torch.finfo(images.dtype).tiny)).add_(turns, alpha=6)
    # each channel is below the highest by a share of the spread
    offsets = torch.arange(5, 0, -2, dtype=images.dtype, device=images.device).view(1, 3, 1, 1)
    at = (hue + offsets).remainder_(6)
    share = torch.minimum(at, 4 - at).clamp_(0, 1)
    return share.mul_(spread).neg_().add_(highest).clamp_(0, 1)
