"""DomainBed's augmentation of training images after the crop: flip, colour jitter, greyscale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

Tensor = Any  # torch.Tensor; torch is imported only when images are augmented

FLIP = 0.5
"""Probability of a horizontal flip."""
JITTER = 0.3
"""Largest change of the factors of brightness, contrast and saturation from 1, and of the hue."""
GREY = 0.1
"""Probability of a greyscale image."""

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
_N_DRAWS = 10


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
    uniform = torch.rand((n, _N_DRAWS), generator=generator, dtype=torch.float64)
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
