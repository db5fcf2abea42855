"""Glyph atlases: every character of an alphabet in every face, as ink coverage.

A glyph is cropped to its ink and fitted into the canvas, as in scikit-learn's digits; size and
position are left to augmentation.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from tools.demo_zoo.fonts import LATIN, NON_LATIN, find_faces

__all__ = ["CANVAS", "Atlas", "glyph_atlas", "letter_atlas", "script_atlas"]

CANVAS = 40
"""Side of the canvas a glyph is kept on, in pixels."""

_INK = 34  # the longer side of the glyph's bounding box on that canvas
_POINTS = 96  # drawn large, then shrunk, for smooth edges despite hinting
_HELD_OUT = 7  # every 7th face is kept for measuring accuracy on the source task

# The 47 classes of EMNIST "balanced": lower-case letters that look like their capitals once
# cropped are left out.
DIGITS = "0123456789"
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabdefghnqrt"

SCRIPTS: tuple[tuple[int, int], ...] = (
    (0x3042, 0x3093),  # hiragana
    (0x0561, 0x0586),  # Armenian
    (0x0905, 0x0939),  # Devanagari
    (0x10D0, 0x10F0),  # Georgian
    (0x05D0, 0x05EA),  # Hebrew
    (0x0E01, 0x0E2E),  # Thai
)
"""First and last code point of the letters taken from each script."""


@dataclass(frozen=True)
class Atlas:
    """Source images as ink coverage.

    Attributes
    ----------
    ink : array of uint8, shape (n, CANVAS, CANVAS)
        0 for background, 255 for full ink.
    labels : array of int64, shape (n,)
        Classes.
    held_out : array of bool, shape (n,)
        Never trained on; kept to measure accuracy on the source task.
    classes : int
        Number of classes.
    """

    ink: NDArray[np.uint8]
    labels: NDArray[np.int64]
    held_out: NDArray[np.bool_]
    classes: int


def letter_atlas(fonts: Path) -> Atlas:
    """Latin letters, 37 classes."""
    return _draw(LETTERS, find_faces(fonts, LATIN))


def glyph_atlas(fonts: Path) -> Atlas:
    """Printed digits and Latin letters, 47 classes."""
    return _draw(DIGITS + LETTERS, find_faces(fonts, LATIN))


def script_atlas(fonts: Path) -> Atlas:
    """Letters of six non-Latin scripts; each face covers only some of them."""
    characters = "".join(chr(code) for first, last in SCRIPTS for code in range(first, last + 1))
    return _draw(characters, find_faces(fonts, NON_LATIN))


def _draw(characters: str, faces: list[Path]) -> Atlas:
    ink: list[NDArray[np.uint8]] = []
    labels: list[int] = []
    held_out: list[bool] = []
    for place, path in enumerate(faces):
        face = ImageFont.truetype(path, _POINTS)
        absent = _ink_of(face, "\U0010ffff")  # the placeholder for a missing character
        for label, character in enumerate(characters):
            drawn = _ink_of(face, character)
            if drawn is None or (absent is not None and _same(drawn, absent)):
                continue
            ink.append(_fit(drawn))
            labels.append(label)
            held_out.append(place % _HELD_OUT == _HELD_OUT - 1)
    # renumber, in case no face has some of the characters
    names, dense = np.unique(np.array(labels, dtype=np.int64), return_inverse=True)
    return Atlas(np.stack(ink), dense.astype(np.int64), np.array(held_out), len(names))


def _ink_of(face: ImageFont.FreeTypeFont, character: str) -> Image.Image | None:
    """Draw ``character`` cropped to its ink; None if there is no ink."""
    side = 4 * _POINTS
    page = Image.new("L", (side, side), 0)
    ImageDraw.Draw(page).text((_POINTS, _POINTS), character, fill=255, font=face)
    box = page.getbbox()
    return page.crop(box) if box else None


def _same(one: Image.Image, other: Image.Image) -> bool:
    return one.size == other.size and one.tobytes() == other.tobytes()


def _fit(drawn: Image.Image) -> NDArray[np.uint8]:
    """Shrink to the canvas, keeping the aspect ratio, and centre."""
    scale = _INK / max(drawn.size)
    width, height = (max(1, round(side * scale)) for side in drawn.size)
    small = drawn.resize((width, height), Image.Resampling.BOX)
    canvas = Image.new("L", (CANVAS, CANVAS), 0)
    canvas.paste(small, ((CANVAS - width) // 2, (CANVAS - height) // 2))
    return np.asarray(canvas, dtype=np.uint8)
