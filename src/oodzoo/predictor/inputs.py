"""What a predictor takes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from oodzoo.errors import InputError
from oodzoo.predictor.images import FeatureChunk, ImageLike, image_files

KEPT_BYTES = 2**30
"""Size of the features that are kept while a predictor adapts to the images it classifies."""

Inputs = Iterable[ImageLike] | Mapping[str, Any] | Iterable[Any]
"""What a predictor takes: images; features by model; or inputs of its encoders."""


def keep_first(chunks: Iterable[FeatureChunk], kept: list[FeatureChunk]) -> Iterator[FeatureChunk]:
    """Yield all chunks, and append the first ones to a list, up to `KEPT_BYTES` of features."""
    size = 0
    for chunk in chunks:
        size += chunk.features.nbytes
        if size <= KEPT_BYTES:
            kept.append(chunk)
        yield chunk


def listed_folder(images: Inputs, noun: str) -> Inputs:
    """List the images of a folder; anything else as it is."""
    if noun == "image" and isinstance(images, str | os.PathLike) and Path(images).is_dir():
        return image_files([images])
    return images


def require_list(images: Inputs, noun: str) -> None:
    """Reject a single path or text."""
    if isinstance(images, str | os.PathLike):
        folder = ", or give a folder that exists"
        raise InputError(
            f"{noun}s must be a list, got {os.fspath(images)!r}; put it in a list"
            + (folder if noun == "image" else "")
        )
