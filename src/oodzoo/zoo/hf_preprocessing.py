"""Preprocessing of a transformers checkpoint, derived from its image processor and verified by it.

Image processors share the names of their settings, but not their exact meaning (ConvNeXT crops by
a percentage below 384 pixels and squashes above). So each interpretation of the settings is
compared with the processor's own output on two noise images, and the first that agrees is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from oodzoo._text import one_line
from oodzoo.errors import InputError, MissingPackageError
from oodzoo.zoo.preprocessing import Geometry, Interpolation, Preprocessing, square
from oodzoo.zoo.spec import ModelSpec
from oodzoo.zoo.torch_model import scaled
from oodzoo.zoo.torchvision_import import torchvision_installed

_INTERPOLATIONS: dict[int, Interpolation] = {
    0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming",
}  # fmt: skip

_EXACT = 1e-5
_EIGHT_BITS = 1.5 / 255
"""Tolerance for processors that need torchvision, whose resizing rounds differently."""


def image_preprocessing(transformers: Any, checkpoint: str, spec: ModelSpec) -> Preprocessing:
    """Return the preprocessing of a checkpoint, overridden by its zoo file."""
    try:
        processor = _processor(transformers, checkpoint)
    except Exception as error:
        if spec.input_size and spec.mean and spec.std:
            return square(spec.input_size, spec.mean, spec.std)
        if not torchvision_installed() and "torchvision" in str(error):
            purpose = f"the image processor of model {spec.name!r}"
            raise MissingPackageError("torchvision", "torchvision", purpose) from error
        raise InputError(
            f"model {spec.name!r}: {spec.source} has no usable image processor "
            f"({one_line(error, 80)}); set input_size, mean and std in a zoo file"
        ) from error
    settings = processor.to_dict()
    for candidate in _interpretations(settings):
        if _agree(candidate, processor):
            return scaled(candidate, spec)
    raise InputError(
        f"model {spec.name!r}: its {type(processor).__name__} does more than resize, crop and "
        "normalise an RGB image; use the model as a callable or as ONNX"
    )


def _processor(transformers: Any, checkpoint: str) -> Any:
    """Load the image processor, preferring the Pillow variant, which needs no torchvision."""
    plain: dict[str, Any] = {"backend": "pil"}
    if int(transformers.__version__.partition(".")[0]) < 5:
        plain = {"use_fast": False}
    return transformers.AutoImageProcessor.from_pretrained(
        checkpoint, trust_remote_code=False, **plain
    )


def _interpretations(settings: dict[str, Any]) -> Iterator[Preprocessing]:
    """Yield the preprocessings that the settings of an image processor may mean."""
    size = settings.get("size") or {}
    interpolation = _INTERPOLATIONS.get(int(settings.get("resample") or 0), "bilinear")
    mean, std = _normalisation(settings)

    def preprocessing(resize: tuple[int, int], crop: tuple[int, int], fit: Any) -> Preprocessing:
        geometry = Geometry(resize, crop, fit, interpolation, centring="down")
        return Preprocessing(geometry, mean, std)

    if not settings.get("do_resize"):
        return
    crop = _sides(settings.get("crop_size")) if settings.get("do_center_crop") else None
    squashed = _sides(size)
    if squashed:
        yield preprocessing(squashed, crop or squashed, "squash")
    shortest = size.get("shortest_edge")
    if shortest:
        percent = settings.get("crop_pct")
        larger = [shortest, *([int(shortest / percent)] if percent else []), int(shortest * 8 / 7)]
        for side in larger:
            yield preprocessing((side, side), crop or (shortest, shortest), "cover")
        yield preprocessing((shortest, shortest), crop or (shortest, shortest), "squash")


def _sides(size: Any) -> tuple[int, int] | None:
    if isinstance(size, dict) and size.get("height") and size.get("width"):
        return int(size["height"]), int(size["width"])
    return None


def _normalisation(settings: dict[str, Any]) -> tuple[Any, Any]:
    """Return the mean and standard deviation by which pixels/255 are normalised."""
    scale = 255 * settings.get("rescale_factor", 1 / 255) if settings.get("do_rescale") else 255.0
    scale = 1.0 if abs(scale - 1) < 1e-6 else scale
    mean, std = [0.0] * 3, [1.0] * 3
    if settings.get("do_normalize"):
        mean, std = (_triple(settings[key]) for key in ("image_mean", "image_std"))
    return tuple(m / scale for m in mean), tuple(s / scale for s in std)


def _triple(value: Any) -> list[float]:
    return [float(v) for v in value] if isinstance(value, list | tuple) else [float(value)] * 3


def _agree(candidate: Preprocessing, processor: Any) -> bool:
    tensors = getattr(processor, "backend", None) == "torchvision"
    tensors |= type(processor).__name__.endswith("Fast")  # in transformers 4
    tolerance = _EIGHT_BITS / min(candidate.std) if tensors else _EXACT
    for image in _probes(max(candidate.geometry.resize)):
        try:
            theirs: NDArray[Any] = np.asarray(processor(image, return_tensors="np")["pixel_values"])
        except Exception:  # not a processor of images
            return False
        ours = candidate([image])
        if ours.shape != theirs.shape or np.abs(ours - theirs).max() > tolerance:
            return False
    return True


def _probes(side: int) -> Iterator[Image.Image]:
    """Yield a landscape and a portrait image, whose size differs from the crop by an odd number."""
    noise = np.random.default_rng(0)
    for width, height in ((side + 67, side + 10), (side // 2 + 1, side - 8)):
        yield Image.fromarray(noise.integers(0, 256, (max(1, height), width, 3), dtype=np.uint8))
