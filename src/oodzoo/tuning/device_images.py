r"""Random crops of images that stay on a device.

Cropping in threads would delay the thread that trains: both need Python's interpreter lock. On a
GPU, resizing is a product of matrices: the rows and columns of a resized crop are weighted means,

.. math:: Y = A_y X A_x^\top,

with the weights of Pillow's bilinear interpolation with antialiasing. They are zero outside the
crop, so that images of any size, padded to that of the largest, are resized together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.tuning.images import OVERSAMPLING, Rows, TrainingImages, crop_box, crop_draws

Tensor = Any  # torch.Tensor

SHARE = 0.25
"""Share of the free memory of the device that the images may take."""


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
