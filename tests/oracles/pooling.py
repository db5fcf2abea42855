"""Pooling of a layer's output, written out image by image."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def pool_map(maps: NDArray[Any]) -> NDArray[np.float64]:
    """Mean over the positions of feature maps (n, d, height, width)."""
    n, d, height, width = maps.shape
    out = np.zeros((n, d))
    for image in range(n):
        for channel in range(d):
            total = 0.0
            for row in range(height):
                total += float(maps[image, channel, row].astype(np.float64).sum())
            out[image, channel] = total / (height * width)
    return out


def pool_tokens(tokens: NDArray[Any], pooling: str, prefix: int) -> NDArray[np.float64]:
    """The first token, the mean of those after the first `prefix`, or both, of (n, t, d)."""
    rows = []
    for image in tokens.astype(np.float64):
        first, patches = image[0], image[prefix:]
        mean = sum(patches) / len(patches)
        rows.append({"cls": first, "mean": mean, "both": np.concatenate([first, mean])}[pooling])
    return np.array(rows)
