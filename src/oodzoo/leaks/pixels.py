"""Whether two images show the same picture: the correlation of small grey thumbnails."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from joblib import cpu_count
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from PIL import Image

from oodzoo._threads import Prefetch
from oodzoo.data.files import ImageFile, UnreadableImageError
from oodzoo.data.images import read

SIDE = 32
"""Pixels of a thumbnail in each direction."""

_LARGER = range(SIDE, SIDE + 5)
"""Sides of thumbnails of which a part is compared with a whole one, for crops and borders."""

_FLAT = 1e-3
"""Length of the centred pixels of a thumbnail without any contrast."""

Thumbnails = list[NDArray[np.float32]]


def thumbnails(image: Image.Image) -> Thumbnails:
    """Return grey thumbnails of an image with sides of 32 to 36 pixels."""
    grey = image.convert("L")
    method = Image.Resampling.BILINEAR
    return [np.asarray(grey.resize((side, side), method), np.float32) for side in _LARGER]


def correlation(first: Thumbnails, second: Thumbnails) -> float:
    """Return the largest correlation of one whole image with a part of the other.

    A part has at least 8/9 of the width and height; the whole image is also mirrored. So crops of
    up to about a tenth, narrow borders and mirrored images have a correlation near 1.
    """
    return max(_best(first, second), _best(second, first))


def _best(whole: Thumbnails, parts: Thumbnails) -> float:
    small = whole[0]
    targets = _centred(np.stack([small.ravel(), small[:, ::-1].ravel()]))
    windows = [sliding_window_view(part, (SIDE, SIDE)).reshape(-1, SIDE**2) for part in parts]
    candidates = _centred(np.concatenate(windows))
    lengths = np.linalg.norm(candidates, axis=1)[:, None] * np.linalg.norm(targets, axis=1)
    products = candidates @ targets.T
    return float(np.max(products / np.maximum(lengths, _FLAT)))


def _centred(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    means: NDArray[np.float32] = rows.mean(axis=1, keepdims=True)
    return rows - means


def correlations(pairs: Sequence[tuple[ImageFile, ImageFile]]) -> list[float | None]:
    """Return the correlation of each pair of image files; None if one cannot be read."""
    files = list(dict.fromkeys(file for pair in pairs for file in pair))
    known = dict(
        zip(files, Prefetch(_read, [(f,) for f in files], n_threads=cpu_count()), strict=True)
    )
    found: list[float | None] = []
    for first, second in pairs:
        one, other = known[first], known[second]
        found.append(None if one is None or other is None else correlation(one, other))
    return found


def _read(file: ImageFile) -> Thumbnails | None:
    try:
        return thumbnails(read(file))
    except UnreadableImageError:
        return None
