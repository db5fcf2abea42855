"""Geometric figures: outlines that are not characters."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from tools.demo_zoo.glyphs import CANVAS, Atlas

__all__ = ["shape_atlas"]

_PER_CLASS = 160
_ZOOM = 4  # drawn four times as large, then averaged, for smooth edges
_Points = NDArray[np.float64]
_Rng = np.random.Generator


def shape_atlas(seed: int = 0) -> Atlas:
    """Twelve kinds of figure, filled or outlined, in random proportions."""
    rng = np.random.default_rng([seed, 12])
    figures = [_draw(kind, rng) for kind in _KINDS for _ in range(_PER_CLASS)]
    labels = np.repeat(np.arange(len(_KINDS)), _PER_CLASS)
    held_out = np.arange(len(labels)) % 8 == 0
    return Atlas(np.stack(figures), labels.astype(np.int64), held_out, len(_KINDS))


def _draw(kind: Callable[[_Rng], _Points], rng: _Rng) -> NDArray[np.uint8]:
    side = CANVAS * _ZOOM
    stretch = np.array([rng.uniform(0.65, 1.0), rng.uniform(0.65, 1.0)])
    points = side / 2 + kind(rng) * stretch * side * 0.42
    path = [(float(x), float(y)) for x, y in points]
    page = Image.new("L", (side, side), 0)
    pen = ImageDraw.Draw(page)
    open_curve = kind in _OPEN
    if open_curve or rng.random() < 0.5:
        width = int(rng.integers(8, 22))
        pen.line(path if open_curve else [*path, path[0], path[1]], 255, width, joint="curve")
    else:
        pen.polygon(path, fill=255)
    return np.asarray(page.resize((CANVAS, CANVAS), Image.Resampling.BOX), dtype=np.uint8)


def _circle(turns: _Points, radius: float | _Points = 1.0) -> _Points:
    return np.stack([np.sin(turns) * radius, -np.cos(turns) * radius], axis=1)


def _polygon(corners: int) -> Callable[[_Rng], _Points]:
    return lambda rng: _circle(2 * np.pi * (np.arange(corners) / corners + rng.random()))


def _star(tips: int) -> Callable[[_Rng], _Points]:
    def points(rng: _Rng) -> _Points:
        radius = np.where(np.arange(2 * tips) % 2, rng.uniform(0.3, 0.55), 1.0)
        return _circle(np.pi * np.arange(2 * tips) / tips + 2 * np.pi * rng.random(), radius)

    return points


def _ellipse(rng: _Rng) -> _Points:
    return _circle(np.linspace(0, 2 * np.pi, 40, endpoint=False)) * [rng.uniform(0.5, 1.0), 1.0]


def _crescent(rng: _Rng) -> _Points:
    outer = _circle(np.linspace(0.3, 2 * np.pi - 0.3, 30))
    depth = rng.uniform(0.1, 0.5)
    inner = outer[::-1] * [0.7, 0.9] + [depth * 0.6, 0.0]
    return np.concatenate([outer, inner])


def _cross(rng: _Rng) -> _Points:
    arm = rng.uniform(0.15, 0.4)
    quarter = np.array([[arm, -1.0], [arm, -arm], [1.0, -arm], [1.0, arm]])
    turns = [np.array([[0.0, -1.0], [1.0, 0.0]]), np.eye(2)]
    corners, turn = [], turns[1]
    for _ in range(4):
        corners.append(quarter @ turn.T)
        turn = turns[0] @ turn
    return np.concatenate(corners)


def _arrow(rng: _Rng) -> _Points:
    neck, shaft = rng.uniform(-0.3, 0.2), rng.uniform(0.12, 0.35)
    right = np.array([[0.0, -1.0], [0.8, neck], [shaft, neck], [shaft, 1.0]])
    return np.concatenate([right, right[:0:-1] * [-1.0, 1.0]])


def _spiral(rng: _Rng) -> _Points:
    turns = np.linspace(0, rng.uniform(3.5, 5.5) * np.pi, 70)
    return _circle(turns * rng.choice([-1.0, 1.0]), turns / turns[-1])


def _wave(rng: _Rng) -> _Points:
    x = np.linspace(-1, 1, 50)
    return np.stack([x, 0.6 * np.sin(x * np.pi * rng.uniform(1.0, 2.5) + rng.random())], axis=1)


def _zigzag(rng: _Rng) -> _Points:
    corners = int(rng.integers(4, 8))
    return np.stack([np.linspace(-1, 1, corners), 0.7 * (-1.0) ** np.arange(corners)], axis=1)


_OPEN = (_spiral, _wave, _zigzag)
_KINDS: tuple[Callable[[_Rng], _Points], ...] = (
    _polygon(3),
    _polygon(4),
    _polygon(6),
    _star(4),
    _star(6),
    _ellipse,
    _crescent,
    _cross,
    _arrow,
    *_OPEN,
)
