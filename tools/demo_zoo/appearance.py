"""Augmentation: rendering of ink coverage as a coloured 32 x 32 image, on any device.

The order is pose (affine and elastic), pen (stroke width, scanning resolution), colour (ink,
background, inversion, texture), noise. An :class:`Appearance` sets the strength of each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["COLOURFUL", "PLAIN", "POSED", "STRONG", "Appearance", "render"]

SIDE = 32


@dataclass(frozen=True)
class Appearance:
    """Strength of the random variation in the rendering of a glyph.

    Attributes
    ----------
    summary : str
        Name and description, for the model card.
    rotation, shear, scale, shift : float
        Half-widths of the uniform distributions they are drawn from; in degrees for the rotation,
        as fractions for the others.
    elastic : float
        Standard deviation of the smooth displacement, as a fraction of the image.
    pen : float
        Share of images whose strokes are thickened or thinned.
    scan : float
        Share of images resampled through a coarse grid, as by an old scanner.
    invert, colour, texture : float
        Shares of images with light ink on a dark background, with coloured ink and background,
        and with the ink blended into a textured background.
    noise : float
        Maximum standard deviation of the noise added at the end.
    """

    summary: str
    rotation: float = 5.0
    shear: float = 0.03
    scale: float = 0.08
    shift: float = 0.05
    elastic: float = 0.0
    pen: float = 0.0
    scan: float = 0.0
    invert: float = 0.0
    colour: float = 0.0
    texture: float = 0.0
    noise: float = 0.02


PLAIN = Appearance("plain: dark ink on light ground, hardly moved")
COLOURFUL = Appearance(
    "colour: any ink on any ground, inverted or textured; pose hardly moved",
    invert=0.5,
    colour=0.7,
    texture=0.4,
    noise=0.08,
)
POSED = Appearance(
    "pose: turned, sheared, stretched, bent, any pen; dark ink on light ground",
    rotation=40.0,
    shear=0.25,
    scale=0.22,
    shift=0.08,
    elastic=0.04,
    pen=0.6,
    scan=0.5,
)
STRONG = Appearance(
    "strong: turned, bent, any pen, coarse scan, any ink on any ground, inverted or textured",
    rotation=45.0,
    shear=0.25,
    scale=0.22,
    shift=0.08,
    elastic=0.04,
    pen=0.6,
    scan=0.5,
    invert=0.5,
    colour=0.7,
    texture=0.4,
    noise=0.08,
)


def render(ink: Tensor, how: Appearance, generator: torch.Generator) -> Tensor:
    """Render ``(n, 1, h, w)`` ink coverage at random as ``(n, 3, 32, 32)`` colours in [0, 1]."""
    draw = _Dice(ink, generator)
    ink = _pose(ink, how, draw)
    if how.pen:
        ink = _pen(ink, how.pen, draw)
    if how.scan:
        ink = _scan(ink, how.scan, draw)
    image = _paint(ink, how, draw)
    sigma = draw.uniform(0.0, how.noise)
    return (image + sigma * draw.normal(*image.shape[1:])).clamp(0.0, 1.0)


class _Dice:
    """Random numbers for a batch: one per image along the first axis, on its device."""

    def __init__(self, like: Tensor, generator: torch.Generator) -> None:
        self.n, self.device, self.generator = len(like), like.device, generator

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        shape = shape or (1, 1, 1)
        drawn = torch.rand(self.n, *shape, device=self.device, generator=self.generator)
        return low + (high - low) * drawn

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(self.n, *shape, device=self.device, generator=self.generator)

    def happens(self, share: float) -> Tensor:
        return self.uniform(0.0, 1.0) < share


def _pose(ink: Tensor, how: Appearance, draw: _Dice) -> Tensor:
    """Apply an affine map and, optionally, an elastic deformation in a single resampling."""
    angle = draw.uniform(-how.rotation, how.rotation, 1)[:, 0] * math.pi / 180
    shear = draw.uniform(-how.shear, how.shear, 1)[:, 0]
    zoom = 1 / draw.uniform(1 - how.scale, 1 + how.scale, 2)
    shift = draw.uniform(-how.shift, how.shift, 2) * 2
    cos, sin = angle.cos(), angle.sin()
    rows = [
        torch.stack([cos * zoom[:, 0], (shear * cos - sin) * zoom[:, 0], shift[:, 0]], dim=1),
        torch.stack([sin * zoom[:, 1], (shear * sin + cos) * zoom[:, 1], shift[:, 1]], dim=1),
    ]
    grid = F.affine_grid(torch.stack(rows, dim=1), [draw.n, 1, SIDE, SIDE], align_corners=False)
    if how.elastic:
        bend = F.interpolate(draw.normal(2, 5, 5), size=SIDE, mode="bicubic", align_corners=True)
        grid = grid + bend.permute(0, 2, 3, 1) * how.elastic * 2
    return F.grid_sample(ink, grid, mode="bilinear", align_corners=False)


def _pen(ink: Tensor, share: float, draw: _Dice) -> Tensor:
    """Thicken or thin the strokes by up to about a pixel on either side."""
    broad = F.max_pool2d(ink, 3, stride=1, padding=1)
    broader = F.max_pool2d(broad, 3, stride=1, padding=1)
    thin = -F.max_pool2d(-ink, 3, stride=1, padding=1)
    pick, much = draw.uniform(0.0, 1.0), draw.uniform(0.3, 1.0)
    other = torch.where(pick < 0.35, broad, torch.where(pick < 0.7, broader, 0.5 * (thin + ink)))
    return torch.where(draw.happens(share), ink + much * (other - ink), ink)


def _scan(ink: Tensor, share: float, draw: _Dice) -> Tensor:
    """Average over a coarse grid, upsample smoothly and threshold at a random level."""
    coarse = F.interpolate(
        F.adaptive_avg_pool2d(ink, 9), size=SIDE, mode="bicubic", align_corners=False
    )
    level = draw.uniform(0.15, 0.5)
    cut = ((coarse - level) / 0.3 + 0.5).clamp(0.0, 1.0)
    return torch.where(draw.happens(share), cut, ink)


def _paint(ink: Tensor, how: Appearance, draw: _Dice) -> Tensor:
    """Choose the colours of ink and background, and blend them."""
    dark, light = draw.uniform(0.0, 0.3), draw.uniform(0.75, 1.0)
    pen, ground = dark.expand(-1, 3, 1, 1), light.expand(-1, 3, 1, 1)
    if how.colour:
        coloured = draw.happens(how.colour)
        pen = torch.where(coloured, draw.uniform(0.0, 0.75, 3, 1, 1), pen)
        ground = torch.where(coloured, draw.uniform(0.65, 1.0, 3, 1, 1), ground)
    if how.invert:
        flip = draw.happens(how.invert)
        pen, ground = torch.where(flip, ground, pen), torch.where(flip, pen, ground)
    image = ground + ink * (pen - ground)
    if how.texture:
        image = torch.where(draw.happens(how.texture), _textured(ink, draw), image)
    return image


def _textured(ink: Tensor, draw: _Dice) -> Tensor:
    """Ink over, or subtracted from, a background of coloured noise and stripes."""
    fine = F.interpolate(draw.normal(3, 11, 11), size=SIDE, mode="bilinear", align_corners=False)
    rough = F.interpolate(draw.normal(3, 4, 4), size=SIDE, mode="bilinear", align_corners=False)
    mix = draw.uniform(0.0, 1.0)
    ground = draw.uniform(0.15, 0.85, 3, 1, 1) + 0.2 * (mix * fine + (1 - mix) * rough)
    ground = (ground + 0.25 * draw.uniform(0.0, 1.0) * _stripes(draw)).clamp(0.0, 1.0)
    colour = draw.uniform(0.0, 1.0, 3, 1, 1)
    laid = ground + ink * (colour - ground)
    subtracted = (ground - ink * draw.uniform(0.6, 1.0, 3, 1, 1)).abs()
    return torch.where(draw.happens(0.5), laid, subtracted)


def _stripes(draw: _Dice) -> Tensor:
    """Gratings of random direction and pitch, thin or smooth, in [-1, 1]."""
    steps = torch.linspace(0.0, 1.0, SIDE, device=draw.device)
    turn = draw.uniform(0.0, math.pi)
    along = turn.cos() * steps[None, None, None, :] + turn.sin() * steps[None, None, :, None]
    wave = torch.sin(2 * math.pi * (draw.uniform(2.0, 7.0) * along + draw.uniform(0.0, 1.0)))
    return torch.where(draw.happens(0.3), wave.abs().pow(6) * 2 - 1, wave)
