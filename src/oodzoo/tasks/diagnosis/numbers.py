"""Predicted numbers: how far off they are, for which values, and in which images most."""

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

RANGES = 5
"""Ranges of the true value, of about as many images each."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class NumberRange:
    """Images whose true value is in a range.

    Attributes
    ----------
    low, high : float
        The smallest and the largest value.
    images : int
    absolute_error, bias : float
        Mean of the distance, and of the difference, predicted minus true.
    """

    low: float
    high: float
    images: int
    absolute_error: float
    bias: float


@dataclass(frozen=True)
class NumberError:
    """An image of which a number was predicted wrongly."""

    path: str
    domain: str
    output: str
    label: float
    predicted: float

    @property
    def error(self) -> float:
        """Predicted minus true."""
        return self.predicted - self.label


@dataclass(frozen=True)
class NumberFigures:
    """Figures of one number.

    Attributes
    ----------
    explained_variance : float
        R² in percent.
    absolute_error, bias : float
        Mean of the distance, and of the difference, predicted minus true.
    ranges : tuple of NumberRange
        By ascending true value.
    largest : tuple of NumberError
        The largest errors, largest first.
    """

    explained_variance: float
    absolute_error: float
    bias: float
    ranges: tuple[NumberRange, ...]
    largest: tuple[NumberError, ...]


@dataclass(frozen=True)
class NumberDiagnosis:
    """How far off predicted numbers are.

    Attributes
    ----------
    images : int
    explained_variance : float
        R² in percent, mean over the numbers.
    absolute_error : float
        Mean distance, over the numbers, too.
    per_output : dict of str to NumberFigures
    """

    images: int
    explained_variance: float
    absolute_error: float
    per_output: dict[str, NumberFigures]

    def to_dict(self) -> dict[str, Any]:
        """Convert to a JSON document."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> NumberDiagnosis:
        """Restore a diagnosis from :meth:`to_dict`."""
        return structured(document, cls, "the diagnosis")


def diagnose_numbers(
    predicted: Floats,
    y: Floats,
    outputs: Sequence[str],
    *,
    paths: Sequence[str],
    domains: str | Sequence[str],
    most: int = MOST,
) -> NumberDiagnosis:
    """Compare predicted with true numbers, (n, C).

    Parameters
    ----------
    predicted, y : array (n, C)
    outputs : sequence of str
        Names of the C numbers.
    paths : sequence of str
        Of the n images.
    domains : str or sequence of str
        The domain of all images, or of each.
    most : int
        Number of errors to list for each number.

    Examples
    --------
    >>> y = np.array([[1.0], [2.0], [3.0]])
    >>> found = diagnose_numbers(y + 0.5, y, ["age"], paths=["a", "b", "c"], domains="photo")
    >>> found.explained_variance, found.absolute_error, found.per_output["age"].bias
    (62.5, 0.5, 0.5)
    """
    n = len(y)
    domains = [domains] * n if isinstance(domains, str) else domains
    if not n or predicted.shape != y.shape or y.shape != (n, len(outputs)):
        raise ValueError(f"got predictions {predicted.shape}, labels {y.shape}, {outputs!r}")
    return NumberDiagnosis(
        n,
        100 * metric("regression", predicted, y),
        second_metric("regression", predicted, y),
        {
            name: _figures(predicted[:, at], y[:, at], name, paths, domains, most)
            for at, name in enumerate(outputs)
        },
    )


def _figures(
    predicted: Floats, y: Floats, name: str, paths: Sequence[str], domains: Sequence[str], most: int
) -> NumberFigures:
    errors = predicted - y
    largest = np.argsort(-np.abs(errors), kind="stable")[:most]
    return NumberFigures(
        100 * metric("regression", predicted[:, None], y[:, None]),
        float(np.abs(errors).mean()),
        float(errors.mean()),
        _ranges(errors, y),
        tuple(
            NumberError(paths[row], domains[row], name, float(y[row]), float(predicted[row]))
            for row in largest.tolist()
            if errors[row]
        ),
    )


def _ranges(errors: Floats, y: Floats) -> tuple[NumberRange, ...]:
    """Errors by quantiles of the true value; equal values are in the same range."""
    edges = np.unique(np.quantile(y, np.linspace(0, 1, RANGES + 1)[1:-1]))
    range_of = np.searchsorted(edges, y, side="left")
    found = []
    for at in np.unique(range_of).tolist():
        mine = range_of == at
        found.append(
            NumberRange(
                float(y[mine].min()),
                float(y[mine].max()),
                int(mine.sum()),
                float(np.abs(errors[mine]).mean()),
                float(errors[mine].mean()),
            )
        )
    return tuple(found)
