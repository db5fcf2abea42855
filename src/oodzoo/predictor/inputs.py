"""What a predictor takes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import numpy as np
from PIL import Image

from oodzoo.errors import InputError
from oodzoo.predictor.images import FeatureChunk, ImageLike, image_files

KEPT_BYTES = 2**30
"""Size of the features that are kept while a predictor adapts to the images it classifies."""

Samples = Iterable[ImageLike] | Mapping[str, Any] | Iterable[Any]
"""Images; features by model; or inputs of encoders."""

Inputs = str | os.PathLike[str] | Image.Image | Samples
"""What a predictor takes: samples, or one image or path."""


def keep_first(chunks: Iterable[FeatureChunk], kept: list[FeatureChunk]) -> Iterator[FeatureChunk]:
    """Yield all chunks, and append the first ones to a list, up to `KEPT_BYTES` of features."""
    size = 0
    for chunk in chunks:
        size += chunk.features.nbytes
        if size <= KEPT_BYTES:
            kept.append(chunk)
        yield chunk


def as_list(images: Inputs, noun: str) -> Samples:
    """List a single image, or those that one path or URL stands for; anything else as it is.

    Raises
    ------
    InputError
        For a path where nothing is, and for a single text.
    """
    if isinstance(images, str | os.PathLike):
        if noun != "image":
            raise InputError(f"{noun}s must be a list, got {os.fspath(images)!r}; put it in a list")
        return image_files([images])
    if noun == "image" and _is_one_image(images):
        return [images]
    return cast("Samples", images)


def _is_one_image(images: Any) -> bool:
    """Whether it is an image in memory; an array of images has four dimensions."""
    if isinstance(images, np.ndarray) and images.dtype == np.uint8:
        return images.ndim == 2 or (images.ndim == 3 and images.shape[2] in (3, 4))
    return isinstance(images, Image.Image)
