"""scikit-learn's handwritten digits as a multi-domain image folder.

Each of the 1,797 scans belongs to exactly one of six domains, and each class is spread evenly over
them. A domain is a rendering style: ink, background, pen and pose. The shifts are those of common
domain generalisation data sets (inversion, rotation as in RotatedMNIST, blending as in MNIST-M,
stroke width).

All random numbers come from a generator seeded by the index of the digit, so every image is
reproducible on its own.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage
from sklearn.datasets import load_digits

__all__ = ["DOMAINS", "deal_domains", "draw_digit", "write_digits"]

SIDE = 32
"""Height and width of the images written."""

SEED = 20240
"""Seed of the assignment to domains and, with the digit's index, of its rendering."""

Plane = NDArray[np.float64]
"""``(SIDE, SIDE)`` ink coverage, or ``(SIDE, SIDE, 3)`` colours, in [0, 1]."""


def write_digits(root: str | os.PathLike[str], *, per_class: int | None = None) -> Path:
    """Write the data set as ``root/<domain>/<class>/digit-<index>.png``.

    Existing files of the same names are overwritten; nothing else in ``root`` is changed.

    Parameters
    ----------
    root : path
        The folder to write to; created if it does not exist.
    per_class : int, optional
        Number of images of each class in each domain; all, about 30, if None.

    Returns
    -------
    pathlib.Path
        ``root``, ready to be read as a multi-domain image folder: 6 domains x 10 classes,
        1,797 RGB images of 32 x 32 pixels if they are all written.
    """
    root = Path(root)
    scans, labels = _scans()
    domains = deal_domains(labels)
    for domain in DOMAINS:
        for label in np.unique(labels):
            (root / domain / str(label)).mkdir(parents=True, exist_ok=True)
    written: Counter[tuple[str, int]] = Counter()
    for index, (scan, label, domain) in enumerate(zip(scans, labels, domains, strict=True)):
        written[domain, int(label)] += 1
        if per_class is not None and written[domain, int(label)] > per_class:
            continue
        picture = Image.fromarray(draw_digit(scan, domain, index))
        picture.save(root / domain / str(label) / f"digit-{index:04d}.png", compress_level=1)
    return root


def deal_domains(labels: NDArray[np.int64]) -> list[str]:
    """Assign a domain to each digit, spreading every class evenly at random."""
    names = list(DOMAINS)
    domains = [""] * len(labels)
    rng = np.random.default_rng(SEED)
    for label in np.unique(labels):
        deck = rng.permutation(np.flatnonzero(labels == label))
        for place, index in enumerate(deck):
            # starting each class at a different domain balances the sizes of the domains too
            domains[index] = names[(place + int(label)) % len(names)]
    return domains


def draw_digit(scan: Plane, domain: str, index: int) -> NDArray[np.uint8]:
    """Render an 8 x 8 scan (values in [0, 1]) in the style of ``domain``: ``(32, 32, 3)`` bytes."""
    rng = np.random.default_rng([SEED, index])
    colours = DOMAINS[domain](scan, rng)
    return np.asarray(np.clip(colours, 0.0, 1.0) * 255.0 + 0.5, dtype=np.uint8)


def _scans() -> tuple[Plane, NDArray[np.int64]]:
    """Return the 8 x 8 scans scaled to [0, 1], and their classes."""
    bunch = load_digits()
    return np.asarray(bunch.images, dtype=np.float64) / 16.0, np.asarray(bunch.target, dtype=int)


# --- the six domains --------------------------------------------------------------------------


def _paper(scan: Plane, rng: np.random.Generator) -> Plane:
    """Dark ink on light, slightly shaded paper: the plain case."""
    ink = _strokes(scan, width=0.40)
    return _blend(_shade(rng, 0.93, 0.03), _grey(0.12 + 0.08 * rng.random()), ink)


def _chalk(scan: Plane, rng: np.random.Generator) -> Plane:
    """Light, grainy chalk on a smudged dark green board: the inverted case."""
    board = _shade(rng, 0.22, 0.06) * np.array([0.65, 1.15, 0.85])
    crumbs = np.clip(1.10 - 0.40 * rng.random((SIDE, SIDE)), 0.0, 1.0)
    return _blend(board, _grey(0.92), _strokes(scan, width=0.36) * crumbs)


def _tilted(scan: Plane, rng: np.random.Generator) -> Plane:
    """Blue ballpoint on cream paper, rotated by 15 to 45 degrees to either side."""
    angle = rng.uniform(15.0, 45.0) * rng.choice([-1.0, 1.0])
    ink = _strokes(scan, width=0.42, angle=angle, extent=25)
    cream = _shade(rng, 0.95, 0.03) * np.array([1.0, 0.97, 0.86])
    return _blend(cream, np.array([0.12, 0.20, 0.62]), ink)


def _marker(scan: Plane, rng: np.random.Generator) -> Plane:
    """A broad felt marker in any saturated colour on pale tinted paper."""
    ink = _strokes(scan, width=0.13)
    tint = 0.90 + 0.10 * rng.random(3)
    return _blend(_shade(rng, 0.96, 0.02) * tint, _vivid(rng), ink)


def _pencil(scan: Plane, rng: np.random.Generator) -> Plane:
    """A hard pencil, thin and pale, on squared paper."""
    page = _shade(rng, 0.90, 0.03)
    pitch, start_y, start_x = int(rng.integers(6, 9)), *rng.integers(0, 6, size=2)
    page[start_y::pitch, :] *= np.array([0.80, 0.87, 0.95])
    page[:, start_x::pitch] *= np.array([0.80, 0.87, 0.95])
    page = page + rng.normal(0.0, 0.015, size=page.shape)
    return _blend(page, _grey(0.42 + 0.10 * rng.random()), 0.85 * _strokes(scan, width=0.60))


def _collage(scan: Plane, rng: np.random.Generator) -> Plane:
    """Absolute difference of the digit and a coloured texture, as in MNIST-M."""
    ground = _texture(rng)
    ink = _strokes(scan, width=0.34)[..., None]
    return np.abs(ground - ink * (0.75 + 0.25 * rng.random(3)))


DOMAINS: dict[str, Callable[[Plane, np.random.Generator], Plane]] = {
    "paper": _paper,
    "chalk": _chalk,
    "tilted": _tilted,
    "marker": _marker,
    "pencil": _pencil,
    "collage": _collage,
}
"""The domains by name, each with the function that renders a scan."""


# --- ink and background -----------------------------------------------------------------------


def _strokes(scan: Plane, width: float, angle: float = 0.0, extent: int = 28) -> Plane:
    """Ink coverage: the scan, upsampled smoothly and thresholded softly at the level ``width``.

    The upsampled scan falls off away from the middle of a stroke, so a low level gives a broad
    pen and a high one a thin pen.
    """
    field = np.zeros((SIDE, SIDE))
    start = (SIDE - extent) // 2
    inside = slice(start, start + extent)
    field[inside, inside] = _enlarge(scan, extent, order=3)
    if angle:
        field = ndimage.rotate(field, angle, reshape=False, order=1)
    ramp = np.clip((field - width) / 0.30 + 0.5, 0.0, 1.0)
    return np.asarray(ramp * ramp * (3.0 - 2.0 * ramp))


def _enlarge(plane: Plane, side: int, order: int) -> Plane:
    """Upsample a square by splines of the given order."""
    spline = _spline(len(plane), side, order)
    return spline @ plane @ spline.T


@cache
def _spline(size: int, side: int, order: int) -> Plane:
    """Return the matrix that upsamples ``size`` values to ``side``."""
    zoom = (side / size, 1.0)
    return np.asarray(ndimage.zoom(np.eye(size), zoom, order=order, mode="nearest", grid_mode=True))


def _blend(ground: Plane, colour: Plane, ink: Plane) -> Plane:
    """Paint ``colour`` over the background ``ground`` where there is ink."""
    return ground + ink[..., None] * (colour - ground)


def _grey(level: float) -> Plane:
    return np.full(3, level)


def _shade(rng: np.random.Generator, level: float, contrast: float) -> Plane:
    """A grey background with soft blotches, as under uneven light."""
    blotches = _enlarge(rng.standard_normal((4, 4)), SIDE, order=1)
    return np.repeat((level + contrast * blotches)[..., None], 3, axis=2)


def _vivid(rng: np.random.Generator) -> Plane:
    """A saturated colour of random hue and at most medium lightness."""
    colour = np.array([rng.uniform(0.0, 0.15), rng.uniform(0.0, 0.8), rng.uniform(0.65, 0.95)])
    return np.asarray(rng.permutation(colour))


def _texture(rng: np.random.Generator) -> Plane:
    """A coloured background of two crossing gratings and cloudy noise."""
    y, x = np.mgrid[0:SIDE, 0:SIDE] / SIDE
    ground = np.empty((SIDE, SIDE, 3))
    waves = np.zeros((SIDE, SIDE))
    for _ in range(2):
        turn, cycles, phase = rng.uniform(0, np.pi), rng.uniform(1.5, 5.0), rng.uniform(0, 6.28)
        waves += np.sin(2 * np.pi * cycles * (x * np.cos(turn) + y * np.sin(turn)) + phase)
    for channel in range(3):
        clouds = _enlarge(rng.standard_normal((6, 6)), SIDE, order=1)
        ground[..., channel] = rng.uniform(0.25, 0.75) + 0.10 * waves + 0.13 * clouds
    return np.clip(ground, 0.0, 1.0)
