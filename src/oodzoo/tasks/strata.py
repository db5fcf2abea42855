"""Strata of samples: what a part of the samples must have its share of."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.tasks.kinds import Kind

RANGES = 5
"""Number of quantile ranges of a number to predict."""


def strata(kind: Kind, labels: NDArray[Any]) -> NDArray[np.int64]:
    """Number the stratum of each sample.

    It is the class; the quantile range of the first number, equal numbers being in the same one;
    or the rarest label that the sample has, so that rare labels are represented, the last stratum
    being that of samples without labels.

    Examples
    --------
    >>> strata("regression", np.array([[3.0], [1.0], [9.0], [2.0], [7.0]])).tolist()
    [2, 0, 4, 1, 3]
    >>> strata("multilabel", np.array([[1, 0], [1, 1], [1, 0], [0, 0]])).tolist()
    [0, 1, 0, 2]
    """
    if kind == "classification":
        return labels.astype(np.int64)
    if kind == "regression":
        first = labels[:, 0]
        ends = np.quantile(first, np.arange(1, RANGES) / RANGES) if len(first) else first
        return np.searchsorted(ends, first, side="left").astype(np.int64)
    sizes = np.where(labels > 0.5, labels.sum(axis=0), np.inf)
    rarest = sizes.argmin(axis=1)
    found: NDArray[np.int64] = np.where(np.isinf(sizes.min(axis=1)), labels.shape[1], rarest)
    return found
