"""Several predicted labels per image: how many of each are found, and what is surely wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from oodzoo.core.io import structured
from oodzoo.tasks.diagnosis.classes import MOST
from oodzoo.tasks.metrics import metric, second_metric

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LabelFigures:
    """Figures of one label; in percent, but for the number of images.

    Attributes
    ----------
    images : int
        Number of images that have the label.
    average_precision, recall : float, optional
        None if no image has it. The recall is the share of these images it is predicted for.
    precision : float, optional
        Share of the images it is predicted for that have it; None if it is never predicted.
    """

    images: int
    average_precision: float | None
    recall: float | None
    precision: float | None


@dataclass(frozen=True)
class LabelMistake:
    """An image for which a label was predicted wrongly.

    Attributes
    ----------
    path, domain : str
        As in the data.
    label : str
    has : bool
        Whether the image has the label; the opposite was predicted.
    confidence : float
        Probability of what was predicted, in percent.
    """

    path: str
    domain: str
    label: str
    has: bool
    confidence: float


@dataclass(frozen=True)
class LabelDiagnosis:
    """What a predictor of several labels gets right and wrong, in percent.

    Attributes
    ----------
    images : int
    average_precision : float
        Mean over the labels that an image has.
    exact_match : float
        Share of images of which all labels are predicted correctly.
    per_label : dict of str to LabelFigures
    mistakes : tuple of LabelMistake
        The mistakes of the highest confidence, most confident first; of an image, only one.
    """

    images: int
    average_precision: float
    exact_match: float
    per_label: dict[str, LabelFigures]
    mistakes: tuple[LabelMistake, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Convert to a JSON document."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> LabelDiagnosis:
        """Restore a diagnosis from :meth:`to_dict`."""
        return structured(document, cls, "the diagnosis")


def diagnose_labels(
    probabilities: Floats,
    y: Floats,
    labels: Sequence[str],
    *,
    paths: Sequence[str],
    domains: str | Sequence[str],
    most: int = MOST,
) -> LabelDiagnosis:
    """Compare probabilities of labels with zeros and ones, (n, C).

    A label is predicted if its probability is above one half.

    Parameters
    ----------
    probabilities, y : array (n, C)
    labels : sequence of str
        Names of the C labels.
    paths : sequence of str
        Of the n images.
    domains : str or sequence of str
        The domain of all images, or of each.
    most : int
        Number of mistakes to list.

    Examples
    --------
    >>> found = diagnose_labels(
    ...     np.array([[0.9, 0.2], [0.6, 0.7]]),
    ...     np.array([[1.0, 0.0], [0.0, 1.0]]),
    ...     ["cat", "dog"],
    ...     paths=["a.jpg", "b.jpg"],
    ...     domains="photo",
    ... )
    >>> found.exact_match, found.per_label["cat"].precision
    (50.0, 50.0)
    >>> found.mistakes[0].label, found.mistakes[0].has
    ('cat', False)
    """
    n = len(y)
    domains = [domains] * n if isinstance(domains, str) else domains
    if not n or probabilities.shape != y.shape or y.shape != (n, len(labels)):
        raise ValueError(f"got probabilities {probabilities.shape}, labels {y.shape}, {labels!r}")
    has, predicted = y > 0.5, probabilities > 0.5
    wrong = np.where(has != predicted, np.where(predicted, probabilities, 1 - probabilities), -1.0)
    column, confidence = wrong.argmax(axis=1), wrong.max(axis=1)
    surest = np.argsort(-confidence, kind="stable")[:most]
    return LabelDiagnosis(
        n,
        100 * metric("multilabel", probabilities, y),
        100 * second_metric("multilabel", probabilities, y),
        {
            name: _figures(probabilities[:, [at]], y[:, [at]], has[:, at], predicted[:, at])
            for at, name in enumerate(labels)
        },
        tuple(
            LabelMistake(
                paths[row],
                domains[row],
                labels[column[row]],
                bool(has[row, column[row]]),
                100 * float(confidence[row]),
            )
            for row in surest.tolist()
            if confidence[row] >= 0
        ),
    )


def _figures(
    probabilities: Floats, y: Floats, has: NDArray[np.bool_], predicted: NDArray[np.bool_]
) -> LabelFigures:
    right, images, times = (int(each.sum()) for each in (has & predicted, has, predicted))
    return LabelFigures(
        images,
        100 * metric("multilabel", probabilities, y) if images else None,
        100 * right / images if images else None,
        100 * right / times if times else None,
    )
