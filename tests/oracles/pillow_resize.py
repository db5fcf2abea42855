"""Pillow's bilinear resizing of one line, transcribed from precompute_coeffs in src/libImaging.

Coefficients are not rounded, as Pillow's are to 22 bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def bilinear_filter(x: float) -> float:
    if x < 0.0:
        x = -x
    if x < 1.0:
        return 1.0 - x
    return 0.0


def coefficients(in_size: int, in0: float, in1: float, out_size: int) -> NDArray[np.float64]:
    """Weight (out_size, in_size) of each pixel in each pixel of the part from in0 to in1."""
    found = np.zeros((out_size, in_size))
    filterscale = scale = (in1 - in0) / out_size
    filterscale = max(filterscale, 1.0)
    support = 1.0 * filterscale
    for xx in range(out_size):
        center = in0 + (xx + 0.5) * scale
        ww = 0.0
        ss = 1.0 / filterscale
        xmin = int(center - support + 0.5)
        xmin = max(xmin, 0)
        xmax = int(center + support + 0.5)
        xmax = min(xmax, in_size)
        for x in range(xmax - xmin):
            w = bilinear_filter((x + xmin - center + 0.5) * ss)
            found[xx, x + xmin] = w
            ww += w
        if ww != 0.0:
            found[xx] /= ww
    return found
