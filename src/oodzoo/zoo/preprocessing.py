"""Preprocessing of an RGB image into the tensor a model expects: resize, crop, normalise.

A preprocessing is data, not code: it is resolved once from the model's source, compared between
models (those with equal geometry share the resized image), and recorded in the store's manifest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from oodzoo.errors import InputError

Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"]
Fit = Literal["squash", "cover", "contain"]
Centring = Literal["even", "down"]

_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "box": Image.Resampling.BOX,
    "hamming": Image.Resampling.HAMMING,
}


@dataclass(frozen=True)
class Geometry:
    """Resizing and cropping of an image of any size to `crop` pixels (height, width).

    The image is first resized to `resize`: "squash" ignores the aspect ratio; "cover" keeps it and
    matches the shorter side; "contain" keeps it, matches the longer side and pads with `fill`.
    Then the centre is cropped. An offset that falls between two pixels is rounded to even
    (`centring="even"`, as in torchvision) or down (`"down"`, as in transformers).
    """

    resize: tuple[int, int]
    crop: tuple[int, int]
    fit: Fit = "squash"
    interpolation: Interpolation = "bilinear"
    fill: int = 0
    centring: Centring = "even"

    def __post_init__(self) -> None:
        if min(*self.resize, *self.crop) < 1:
            raise InputError(f"resize and crop must be positive, got {self.resize} and {self.crop}")

    def apply(self, image: Image.Image) -> NDArray[np.uint8]:
        """Resize and crop an image to an array (height, width, 3)."""
        resized = image.resize(self._size(image), _FILTERS[self.interpolation])
        return np.asarray(_centre(resized, self))

    def _size(self, image: Image.Image) -> tuple[int, int]:
        height, width = self.resize
        if self.fit == "squash":
            return width, height
        if self.fit == "contain" or height != width:
            either = max if self.fit == "contain" else min
            ratio = either(image.height / height, image.width / width)
            return max(1, round(image.width / ratio)), max(1, round(image.height / ratio))
        # As in torchvision's Resize(int), the longer side is rounded down.
        if image.width <= image.height:
            return width, max(1, int(width * image.height / image.width))
        return max(1, int(height * image.width / image.height)), height


@dataclass(frozen=True)
class Preprocessing:
    """A geometry, then (pixel/255 - mean)/std per channel, as float32, channels first."""

    geometry: Geometry
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def __post_init__(self) -> None:
        if min(self.std) <= 0:
            raise InputError(f"std must be positive, got {list(self.std)}")

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
    if top >= 0 and left >= 0:
        return image.crop((left, top, left + width, top + height))
    padded = Image.new("RGB", (width, height), (geometry.fill,) * 3)
    padded.paste(image, (-left, -top))
    return padded


def _offset(spare: int, centring: Centring) -> int:
    """Pixels before the crop; if negative, pixels to pad ("even" pads less before than after)."""
    if centring == "down":
        return spare // 2
    return round(spare / 2) if spare >= 0 else -(-spare // 2)
