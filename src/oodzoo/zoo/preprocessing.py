"""Preprocessing of an RGB image into the tensor a model expects: resize, crop, normalise.

A preprocessing is data, not code: it is resolved once from the model's source, compared between
models (those with equal geometry share the resized image), and recorded in the store's manifest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from oodzoo.core.errors import InputError
from oodzoo.data.pixels import explaining_errors, shown

Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"]
Fit = Literal["squash", "cover", "contain"]
Centring = Literal["even", "down"]
Decode = Literal["full", "reduced"]
DECODE: tuple[Decode, ...] = ("reduced", "full")

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "box": Image.Resampling.BOX,
    "hamming": Image.Resampling.HAMMING,
}

_MAX_PIXELS = 1 << 24
"""Largest intermediate image (64 MiB); beyond it, only the part to keep is resized."""
_REACH = 4
"""Pixels on each side that an interpolation reads when it enlarges; 3 for "lanczos"."""
_MAX_SIDE = 1 << 20
"""Longest side that is resized as it is."""


@dataclass(frozen=True)
class Geometry:
    """Resizing and cropping of an image of any size to `crop` pixels (height, width).

    The image is first resized to `resize`: "squash" ignores the aspect ratio; "cover" keeps it and
    matches the shorter side; "contain" keeps it, matches the longer side and pads with `fill`.
    Then the centre is cropped. An offset that falls between two pixels is rounded to even
    (`centring="even"`, as in torchvision) or down (`"down"`, as in transformers).

    With `decode="reduced"`, a JPEG is decoded at the smallest scale of 1/2, 1/4 and 1/8 that has at
    least twice the width and height that the image is resized to, see :meth:`reduction`.
    """

    resize: tuple[int, int]
    crop: tuple[int, int]
    fit: Fit = "squash"
    interpolation: Interpolation = "bilinear"
    fill: int = 0
    centring: Centring = "even"
    decode: Decode = "full"

    def __post_init__(self) -> None:
        if min(*self.resize, *self.crop) < 1:
            raise InputError(f"resize and crop must be positive, got {self.resize} and {self.crop}")

    def apply(self, image: Image.Image) -> NDArray[np.uint8]:
        """Resize and crop an image to an array (height, width, 3).

        Memory is limited also for very long images, which would become huge when the shorter side
        is matched: there, only the part to keep is resized, and rounding may differ.

        Raises
        ------
        UnreadableImageError
            If the image cannot be resized, for example for lack of memory.
        """
        with explaining_errors():
            size, box = shown(image) or (image.size, None)
            width, height = self._size(*size)
            # Pillow resizes the rows first, and then the columns
            pixels = width * max(height, image.height)
            if pixels > _MAX_PIXELS or max(image.size) > _MAX_SIDE:
                return np.asarray(_resize_centre(image, (width, height), self))
            resized = image.resize((width, height), _FILTERS[self.interpolation], box)
            return np.asarray(_centre(resized, self))

    def stated(self) -> dict[str, Any]:
        """Return the table `geometry` of a zoo file, which does not say how images are decoded."""
        fields = {key: value for key, value in asdict(self).items() if key != "decode"}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()}

    def reduction(self, width: int, height: int) -> int:
        """Return by how much a JPEG of this size is reduced while it is decoded: 1, 2, 4 or 8.

        Examples
        --------
        >>> reduced = Geometry((256, 256), (224, 224), "cover", decode="reduced")
        >>> [reduced.reduction(n, n * 3 // 4) for n in (1024, 1366, 4032, 8000)]
        [1, 2, 4, 8]
        """
        if self.decode == "full":
            return 1
        wide, high = self._size(width, height)
        few = (n for n in (8, 4, 2) if width >= 2 * n * wide and height >= 2 * n * high)
        return next(few, 1)

    def _size(self, width: int, height: int) -> tuple[int, int]:
        """Width and height that an image of this size is resized to."""
        high, wide = self.resize
        if self.fit == "squash":
            return wide, high
        if self.fit == "contain" or high != wide:
            either = max if self.fit == "contain" else min
            ratio = either(height / high, width / wide)
            return max(1, round(width / ratio)), max(1, round(height / ratio))
        # As in torchvision's Resize(int), the longer side is rounded down.
        if width <= height:
            return wide, max(1, int(wide * height / width))
        return max(1, int(high * width / height)), high


@dataclass(frozen=True)
class Preprocessing:
    """A geometry, then (pixel/255 - mean)/std per channel, as float32, channels first."""

    geometry: Geometry
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def __post_init__(self) -> None:
        if min(self.std) <= 0:
            raise InputError(f"std must be positive, got {list(self.std)}")

    def decoding(self, decode: Decode) -> Preprocessing:
        """Return the preprocessing of images that are decoded in another way."""
        return replace(self, geometry=replace(self.geometry, decode=decode))

    def normalise(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Normalise pixels (n, height, width, 3) to a tensor (n, 3, height, width)."""
        n, height, width, _ = pixels.shape
        out = np.empty((n, 3, height, width), np.float32)
        for channel, (mean, std) in enumerate(zip(self.mean, self.std, strict=True)):
            np.multiply(pixels[..., channel], np.float32(1 / (255 * std)), out=out[:, channel])
            out[:, channel] -= np.float32(mean / std)
        return out

    def __call__(self, images: Sequence[Image.Image]) -> NDArray[np.float32]:
        """Preprocess RGB images to a tensor (n, 3, height, width)."""
        return self.normalise(np.stack([self.geometry.apply(image) for image in images]))


@dataclass(frozen=True)
class TextPreprocessing:
    """What a text encoder does with a text before it runs.

    Attributes
    ----------
    max_tokens : int or None
        Number of tokens after which a text is cut off.
    prompt : str
        Put before each text.
    """

    max_tokens: int | None = None
    prompt: str = ""

    @property
    def geometry(self) -> None:
        """A text has none."""
        return

    def decoding(self, decode: Decode) -> TextPreprocessing:
        """Nothing of a text is decoded."""
        return self


def square(
    size: int, mean: tuple[float, float, float], std: tuple[float, float, float]
) -> Preprocessing:
    """Squash the whole image to a square with bilinear interpolation, as DomainBed does."""
    return Preprocessing(Geometry((size, size), (size, size)), mean, std)


def _centre(image: Image.Image, geometry: Geometry) -> Image.Image:
    """Crop the centre, padding where the image is smaller."""
    height, width = geometry.crop
    if (image.height, image.width) == geometry.crop:
        return image
    top = _offset(image.height - height, geometry.centring)
    left = _offset(image.width - width, geometry.centring)
    if image.height >= height and image.width >= width:
        return image.crop((left, top, left + width, top + height))
    padded = Image.new("RGB", (width, height), (geometry.fill,) * 3)
    padded.paste(image, (-left, -top))
    return padded


def _resize_centre(image: Image.Image, size: tuple[int, int], geometry: Geometry) -> Image.Image:
    """Resize the centre of an image only, as if the whole had this size (width, height)."""
    method = _FILTERS[geometry.interpolation]
    crop = geometry.crop[::-1]
    offsets = [_offset(size[axis] - crop[axis], geometry.centring) for axis in (0, 1)]
    kept = [
        (max(0, offset), min(size[axis], offset + crop[axis]))
        for axis, offset in enumerate(offsets)
    ]
    image, box = _crop_source(image, size, kept)
    width, height = (stop - start for start, stop in kept)
    if width * image.height > _MAX_PIXELS:  # a long column: shorten it before it becomes wider
        image = image.resize((image.width, height), method, (0, box[1], image.width, box[3]))
        box = (box[0], 0, box[2], height)
    image = image.resize((width, height), method, box)
    if image.size == crop:
        return image
    padded = Image.new("RGB", crop, (geometry.fill,) * 3)
    padded.paste(image, (max(0, -offsets[0]), max(0, -offsets[1])))
    return padded


def _crop_source(
    image: Image.Image, size: tuple[int, int], kept: Sequence[tuple[int, int]]
) -> tuple[Image.Image, tuple[float, float, float, float]]:
    """Crop an image to what a part of its resized form depends on; return the part's box in it.

    The crop is needed because Pillow takes boxes in single precision, too coarse for positions
    in a very long image. If a side is still very long, its pixels are averaged in groups: the
    weights of a resize need memory in proportion.
    """
    bounds, factors, box = [], [], []
    for (start, stop), length, side in zip(kept, size, image.size, strict=True):
        scale = side / length
        reach = _REACH * max(1.0, scale)
        first = max(0, math.floor(start * scale - reach))
        last = min(side, math.ceil(stop * scale + reach))
        factor = max(1, 2 * (last - first) // _MAX_SIDE)
        bounds.append((first, last))
        factors.append(factor)
        box.append(((start * scale - first) / factor, (min(stop * scale, last) - first) / factor))
    (left, right), (top, bottom) = bounds
    if (right - left, bottom - top) != image.size:
        image = image.crop((left, top, right, bottom))
    if max(factors) > 1:
        image = image.reduce((factors[0], factors[1]))
    return image, (box[0][0], box[1][0], box[0][1], box[1][1])


def _offset(spare: int, centring: Centring) -> int:
    """Pixels before the crop; if negative, pixels to pad ("even" pads less before than after)."""
    if centring == "down":
        return spare // 2
    return round(spare / 2) if spare >= 0 else -(-spare // 2)
