"""Predictions for single samples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo._text import short_name
from oodzoo.errors import InputError
from oodzoo.predictor.abstention import require_confidence
from oodzoo.predictor.left_out import LeftOut
from oodzoo.predictor.outcomes import outcome
from oodzoo.predictor.prediction_sets import SetLevel, intervals_of, set_of
from oodzoo.task import Kind


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
    abstained : bool
        Whether the label is None because the most probable class is not probable enough.
    set : tuple or None
        The prediction set, if one is wanted: classes, the most probable first.
    intervals : tuple of (low, high), or None
        The interval of each number, if they are wanted.
    """

    position: int
    path: str | None
    label: Any
    probabilities: NDArray[np.float64] | None
    distance: float
    out_of_domain: bool
    abstained: bool = False
    set: tuple[Any, ...] | None = None
    intervals: tuple[tuple[float, float], ...] | None = None

    @property
    def confidence(self) -> float | None:
        """Probability of the most probable class or label; None for numbers."""
        return None if self.probabilities is None else float(self.probabilities.max())

    def __repr__(self) -> str:
        sample = self.position if self.path is None else short_name(self.path, 80)
        sure = "" if self.confidence is None else f", {100 * self.confidence:.0f} %"
        unlike = ", unlike the training samples" if self.out_of_domain else ""
        return f"Prediction({sample!r}: {short_name(repr(self.label), 80)}{sure}{unlike})"


@dataclass(frozen=True)
class Unreadable:
    """A sample without a prediction, and the reason."""

    position: int
    path: str | None
    reason: str


def missing(found: Unreadable, kind: Kind, classes: NDArray[Any]) -> Prediction:
    """What stands for a sample without a prediction: no class, and NaN."""
    nan = np.full(len(classes), np.nan)
    regression = kind == "regression"
    label = outcome(kind, nan, classes) if regression else None
    probabilities = None if regression else nan
    return Prediction(found.position, found.path, label, probabilities, np.nan, out_of_domain=False)


class Finish:
    """Adds to predictions what is wanted beside the label: abstention, sets, intervals.

    Parameters
    ----------
    kind : {"classification", "regression", "multilabel"}
        What is predicted.
    left_out : LeftOut or None
        What was measured on left-out domains.
    classes : array (C,)
    min_confidence, coverage : float, optional

    Raises
    ------
    InputError
        If it cannot be had of this predictor.
    """

    def __init__(
        self,
        kind: Kind,
        left_out: LeftOut | None,
        classes: NDArray[Any],
        min_confidence: float | None,
        coverage: float | None,
    ) -> None:
        self._kind, self._classes, self._least = kind, classes, min_confidence
        if min_confidence is not None:
            require_confidence(min_confidence)
            if kind != "classification":
                raise InputError(
                    "a smallest confidence needs one class per sample, and the predictor predicts "
                    f"{_OTHERS[kind]}; leave out min_confidence (--min-confidence)"
                )
        self._sets = None if coverage is None else require_sets(kind, left_out, coverage)

    def __call__(self, found: Prediction, values: NDArray[np.float64]) -> Prediction:
        """Add what is wanted; `values` (C,) are probabilities or numbers."""
        if self._sets is not None:
            if self._kind == "regression":
                found = replace(found, intervals=intervals_of(values, self._sets))
            else:
                found = replace(found, set=set_of(values, self._classes, self._sets))
        if self._least is not None and values.max() < self._least:
            found = replace(found, label=None, abstained=True)
        return found


def require_sets(kind: Kind, left_out: LeftOut | None, coverage: float) -> SetLevel:
    """The recorded sets of a coverage; an InputError if a predictor has none."""
    if kind == "multilabel":
        raise InputError(
            "prediction sets are of one class per sample, and the predictor predicts several "
            "labels; leave out coverage (--coverage)"
        )
    if left_out is None or not left_out.sets:
        raise InputError(
            "this predictor has no record of prediction sets on left-out domains: it was "
            "fine-tuned, or has too few samples; fit again with oodzoo fit, or leave out coverage "
            "(--coverage)"
        )
    return left_out.at_coverage(coverage)


_OTHERS: dict[Kind, str] = {"regression": "numbers", "multilabel": "several labels"}
