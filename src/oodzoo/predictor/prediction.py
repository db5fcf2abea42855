"""Predictions for single samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Prediction:
    """The prediction for one sample.

    Attributes
    ----------
    position : int
        Position among the given samples.
    path : str or None
        Path of an image; None for an image in memory, and for any other sample.
    label
        The most probable class. For other tasks, the predicted number, or a tuple of several; or
        the tuple of labels whose probability is above one half.
    probabilities : array (n_classes,) or None
        Probability of each class or label, in the order of `classes_`; None for numbers.
    distance : float
        Distance from the training samples; above 1 the sample is unlike them.
    out_of_domain : bool
        Whether the distance is above 1.
    """

    position: int
    path: str | None
    label: Any
    probabilities: NDArray[np.float64] | None
    distance: float
    out_of_domain: bool


@dataclass(frozen=True)
class Unreadable:
    """A sample without a prediction, and the reason."""

    position: int
    path: str | None
    reason: str
