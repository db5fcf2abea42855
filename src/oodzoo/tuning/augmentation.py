"""DomainBed's augmentation of training images after the crop: flip, colour jitter, greyscale."""

from __future__ import annotations

from collections.abc import Sequence
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
    torch: Any = import_module("torch")
    draws = draw(len(batch), seed)
    table = _on_device(_table(draws).to(batch.dtype), batch)
    flip, grey, turns, *blends = table.view(table.shape[0], -1, 1, 1, 1).unbind()
    images = torch.where(flip > 0, batch.flip(3), batch)
    for step, rows in enumerate(_turned_rows(draws, batch)):
        images = _blended(images, *blends[3 * step : 3 * step + 3])
        if len(rows):
            turned = _turned(images.index_select(0, rows), turns.index_select(0, rows))
            images.index_copy_(0, rows, turned)
    return torch.where(grey > 0, _grey(images), images)


def _table(draws: Draws) -> Tensor:
    """Return all parameters (15, n) in one table, to copy it to the device at once.

    Brightness, contrast and saturation are mixtures of an image with black, with the mean of its
    greyscale form, and with its greyscale form. The table has, for each of the four steps, the
    factor of the image and the weights of the greyscale form and of its mean.
    """
    torch: Any = import_module("torch")
    factors = draws.factors.gather(1, draws.order)
    factors[draws.order == HUE] = 1
    rest = 1 - factors
    rows = [draws.flip, draws.grey, draws.factors[:, HUE]]
    for step in range(4):
        operation = draws.order[:, step]
        rows.append(factors[:, step])
        rows += [rest[:, step] * (operation == kind) for kind in (SATURATION, CONTRAST)]
    return torch.stack([row.to(torch.float64) for row in rows])


def _turned_rows(draws: Draws, batch: Tensor) -> Sequence[Tensor]:
    """Return the rows whose hue is turned in each of the four steps."""
    steps = (draws.order == HUE).int().argmax(1)
    rows = _on_device(steps.argsort(stable=True), batch)
    split: Sequence[Tensor] = rows.split(steps.bincount(minlength=4).tolist())
    return split


def _on_device(values: Tensor, batch: Tensor) -> Tensor:
    """Copy from the CPU without waiting for the device."""
    if batch.is_cuda:
        values = values.pin_memory()
    return values.to(batch.device, non_blocking=True)


def _grey(images: Tensor) -> Tensor:
    red, green, blue = images.split(1, 1)
    return (0.2989 * red).add_(green, alpha=0.587).add_(blue, alpha=0.114)


def _blended(images: Tensor, factor: Tensor, of_grey: Tensor, of_mean: Tensor) -> Tensor:
    torch: Any = import_module("torch")
    grey = _grey(images)
    mean = grey.mean((2, 3), keepdim=True)
    other = grey.mul_(of_grey).add_(of_mean * mean)
    return torch.addcmul(other, images, factor).clamp_(0, 1)


def _turned(images: Tensor, turns: Tensor) -> Tensor:
    """Turn the hue: to HSV, add, and back to RGB."""
    torch: Any = import_module("torch")
    lowest, highest = images.aminmax(dim=1, keepdim=True)
    spread = highest - lowest
    red, green, blue = images.split(1, 1)
    sixths = torch.where(
        red == highest,
        green - blue,
        torch.where(
            green == highest,
            (blue - red).add_(spread, alpha=2),
            (red - green).add_(spread, alpha=4),
        ),
    )
    tiny = torch.finfo(images.dtype).tiny
    sixths = sixths.div_(spread.clamp_min(tiny)).add_(6 * turns)
    # the share of the spread that each channel is below the highest
    offsets = torch.arange(5, 0, -2, dtype=images.dtype, device=images.device).view(1, 3, 1, 1)
    at = (sixths + offsets).remainder_(6)
    share = torch.minimum(at, 4 - at).clamp_(0, 1)
    return torch.addcmul(highest, share, spread, value=-1).clamp_(0, 1)
