"""From an RGB image to the tensor a model expects: resize, crop, normalise.

A preprocessing is data, not code: it is resolved once from the model's own source, compared
between models (those that share a geometry share the resized image), and written into the
store's manifest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

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
    """How an image of any size becomes one of `crop` pixels (height, width).

    `fit` says how it is brought to `resize` first: "squash" gives exactly that size, "cover" keeps
    the proportions and makes the shorter side fit, "contain" keeps them, makes the longer side fit
    and pads with `fill`. Then the centre is cut out. Where it falls between two pixels, "even"
    takes the offset that is even, as torchvision does, and "down" the smaller, as transformers.
    """

    resize: tuple[int, int]
    crop: tuple[int, int]
    fit: Fit = "squash"
    interpolation: Interpolation = "bilinear"
    fill: int = 0
    centring: Centring = "even"

    def __post_init__(self) -> None:
        if min(*self.resize, *self.crop) < 1:
            raise InputError(f"an image cannot be resized to {self.resize} or cut to {self.crop}")

    def apply(self, image: Image.Image) -> NDArray[np.uint8]:
        """The pixels as an array (height, width, 3)."""
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
        # As torchvision's Resize(int): the longer side is rounded down.
        if image.width <= image.height:
            return width, max(1, int(width * image.height / image.width))
        return max(1, int(height * image.width / image.height)), height


@dataclass(frozen=True)
class Preprocessing:
    """Geometry, then (pixel/255 - mean)/std for each channel, as float32, channels first."""

    geometry: Geometry
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def __post_init__(self) -> None:
        if min(self.std) <= 0:
            raise InputError(f"std must be positive, and is {list(self.std)}")

    def normalise(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """From pixels (n, height, width, 3) to the tensor (n, 3, height, width)."""
        n, height, width, _ = pixels.shape
        out = np.empty((n, 3, height, width), np.float32)
        for channel, (mean, std) in enumerate(zip(self.mean, self.std, strict=True)):
            np.multiply(pixels[..., channel], np.float32(1 / (255 * std)), out=out[:, channel])
            out[:, channel] -= np.float32(mean / std)
        return out

    def __call__(self, images: Sequence[Image.Image]) -> NDArray[np.float32]:
        """The tensor (n, 3, height, width) of RGB images."""
        return self.normalise(np.stack([self.geometry.apply(image) for image in images]))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Preprocessing:
        """The preprocessing that :meth:`to_json` wrote down."""
        geometry = dict(document["geometry"])
        for key in ("resize", "crop"):
            geometry[key] = tuple(geometry[key])
        return cls(Geometry(**geometry), tuple(document["mean"]), tuple(document["std"]))


def square(
    size: int, mean: tuple[float, float, float], std: tuple[float, float, float]
) -> Preprocessing:
    """The whole image squashed to a square, as DomainBed does, bilinear."""
    return Preprocessing(Geometry((size, size), (size, size)), mean, std)


def _centre(image: Image.Image, geometry: Geometry) -> Image.Image:
    """Cut out the centre; pad where the image is smaller."""
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
    """Pixels before the centre; below 0, pixels to pad, fewer before than after with "even"."""
    if centring == "down":
        return spare // 2
    return round(spare / 2) if spare >= 0 else -(-spare // 2)
