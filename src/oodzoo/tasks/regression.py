r"""Numbers to predict: explained variance and absolute error, and where errors are.

*Explained variance* is the share of the variance of the labels that is predicted,

.. math:: R^2 = 1 - \frac{\sum_i (y_i - \hat y_i)^2}{\sum_i (y_i - \bar y)^2},

averaged over the outputs (scikit-learn's `r2_score`): a constant error counts, unlike in its
`explained_variance_score`. It is negative for predictions that are worse than the mean of the
samples. The absolute error is the mean distance, in the units of the labels.

With mean squared error e and variance v of the labels, the contribution of a sample is

.. math:: 1 - \frac{(y_i - \hat y_i)^2}{v} + \frac{e}{v}\Big(\frac{(y_i - \bar y)^2}{v} - 1\Big).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.core.text import count
from oodzoo.tasks.task import (
    MOST,
    Arrays,
    Diagnosis,
    Floats,
    Labels,
    Measure,
    Task,
    Truth,
    register,
)

RANGES = 5
"""Number of quantile ranges of a number: strata, and parts of a diagnosis."""

_ROUNDING = 1e-12
"""Numbers that differ by less than this, relative to their size, are constant."""

SIZES = (1e-100, 1e100)
"""Sizes of numbers to predict."""


def read_numbers(texts: Sequence[str], name: str) -> NDArray[np.float64]:
    """Read a column of numbers; reject other text, and missing values."""
    values = np.empty(len(texts))
    for row, text in enumerate(texts):
        try:
            values[row] = float(text)
        except ValueError as error:
            reason = "has no value" if not text.strip() else f"has {text!r}, which is not a number,"
            raise InputError(
                f"{name} {reason} in row {row}; correct it, or leave the sample out"
            ) from error
        if not np.isfinite(values[row]):
            raise InputError(
                f"{name} has no finite value in row {row} ({text!r}); correct it, or leave the "
                "sample out"
            )
    return values


class NumberMeasures(NamedTuple):
    """Measures of predicted numbers: explained variance in percent, error in their own units."""

    explained_variance: float
    absolute_error: float


def relative_errors(outputs: Arrays, labels: Arrays) -> list[Floats]:
    """Errors (heads, n, C) in each domain, in standard deviations of the labels of all domains.

    An output that is constant in all domains has no such scale; its errors count as they are.
    """
    together = np.concatenate(labels)
    scale = together.std(axis=0)
    scale = np.where(scale > _ROUNDING * np.abs(together).max(axis=0), scale, 1.0)
    return [(p - y) / scale for p, y in zip(outputs, labels, strict=True)]


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
class NumberDiagnosis(Diagnosis):
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

    @property
    def paths(self) -> set[str]:
        return {error.path for each in self.per_output.values() for error in each.largest}


@register(
    explained_variance=Measure(
        "explained variance",
        means="Explained variance (R²) is the share of the variance of the labels of a domain "
        "that is predicted: 100 % without errors, 0 % for the mean of the domain, negative for "
        "worse predictions.",
        short="R²",
        lowest=-100.0,
    ),
    absolute_error=Measure(
        "absolute error",
        unit="",
        digits=None,
        means="Absolute error is the mean distance from the labels, in their units.",
    ),
)
class Regression(Task):
    """One or more numbers.

    Examples
    --------
    >>> Regression(("age", "height")).decode(["61.5 1.8"]).tolist()
    [[61.5, 1.8]]
    >>> y = np.array([[1.0], [2.0], [3.0]])
    >>> round(Regression().score(y + 0.5, y), 3)
    0.625
    """

    kind = "regression"
    metric, second_metric = "explained_variance", "absolute_error"
    quality_measure = Measure(
        "negative squared error",
        unit="",
        digits=3,
        means="The error is relative to the variance of the labels.",
    )
    noun, nouns = "number", "numbers"
    output_noun, output_nouns = "output", "outputs"
    stratum = "range of numbers"
    estimator, action = "regressor", "predicts numbers for"
    several_words = "numbers"
    pooled_words = "the predictions"
    has_probabilities = False
    lowest = -np.inf
    link, loss = "identity", "mse_loss"
    diagnosis = NumberDiagnosis
    achievement = "explains {value:.1f} % of the variance in unseen domains"
    expectation = "In {place}, expect about {value} % of the variance of the labels to be predicted"
    measures = NumberMeasures

    def encode(self, label: Iterable[float]) -> str:
        return " ".join(repr(float(value)) for value in label)

    def decode(self, texts: Sequence[str]) -> Floats:
        values = np.zeros((len(texts), len(self.outputs)))
        for row, text in enumerate(texts):
            parts = text.split()
            if len(parts) != len(self.outputs):  # NumPy would repeat a single one
                raise ValueError(f"{text!r} does not have a number for each of {self.outputs}")
            values[row] = [float(part) for part in parts]
        if not np.isfinite(values).all():
            raise ValueError("the labels are not finite")
        return values

    def names_of(self, text: str) -> list[str]:
        return list(self.outputs)

    def shown(self, text: str) -> str:
        """Three significant figures.

        Examples
        --------
        >>> Regression(("age", "height")).shown("61.54321 1.8")
        '61.5, 1.8'
        """
        return ", ".join(f"{value:.3g}" for value in self.decode([text])[0])

    @classmethod
    def of_column(cls, array: NDArray[Any], names: tuple[str, ...] | None, name: str) -> Labels:
        text = array.dtype.kind in "US"
        numbers = read_numbers(array.tolist(), name) if text else array.astype(np.float64)
        return cls.of_matrix(numbers[:, None], names or (name,), name)

    @classmethod
    def of_matrix(cls, values: Floats, names: tuple[str, ...] | None, name: str) -> Labels:
        largest = float(np.abs(values).max(initial=0))
        if largest and not SIZES[0] <= largest <= SIZES[1]:
            raise InputError(
                f"{name} has the number {largest:.3g}; rescale it, the largest must be between "
                f"{SIZES[0]:g} and {SIZES[1]:g}"
            )
        outputs = names or tuple(f"{name}{column}" for column in range(values.shape[1]))
        return Labels(cls(outputs), outputs, values)

    def require_variation(self, labels: Labels, name: str = "y") -> None:
        _, classes, values = labels
        constant = (values == values[:1]).all(axis=0)
        for column in np.flatnonzero(constant & bool(len(values))).tolist():
            which = f" ({classes[column]!r})" if len(classes) > 1 else ""
            raise InputError(
                f"{name}{which} is constant: {values[0, column]:g} in all "
                f"{count(len(values), 'sample')}; nothing can be learned from it"
            )

    def strata(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        """The quantile range of the first number, equal numbers being in the same one.

        Examples
        --------
        >>> Regression().strata(np.array([[3.0], [1.0], [9.0], [2.0], [7.0]])).tolist()
        [2, 0, 4, 1, 3]
        """
        first = labels[:, 0]
        ends = np.quantile(first, np.arange(1, RANGES) / RANGES) if len(first) else first
        return np.searchsorted(ends, first, side="left").astype(np.int64)

    def truth(self, texts: Sequence[str], known: tuple[str, ...], source: str) -> Truth:
        values, given = self.decode(texts), self.outputs
        if len(known) == len(given) == 1:  # the name of the column does not matter
            return Truth(known, values, {}, ())
        if missing := [name for name in known if name not in given]:
            raise InputError(
                f"{source!r} has no number {missing[0]!r}, which the predictor predicts; it has "
                f"{', '.join(map(repr, given))}: name the columns with --columns label="
                f"{'+'.join(known)} (columns= in Python)"
            )
        return Truth(known, values[:, [given.index(name) for name in known]], {}, ())

    def outcome(self, values: Floats, classes: NDArray[Any]) -> Any:
        """A number, or a tuple of several.

        Examples
        --------
        >>> Regression().outcome(np.array([1.5]), np.array(["age"]))
        1.5
        """
        numbers = tuple(values.tolist())
        return numbers[0] if len(numbers) == 1 else numbers

    def outcome_array(self, outcomes: Sequence[Any], classes: NDArray[Any]) -> NDArray[Any]:
        shape = (-1,) if len(classes) == 1 else (-1, len(classes))
        return np.array(list(outcomes), np.float64).reshape(shape)

    def values_of_logits(self, logits: Floats) -> Floats:
        return logits

    def values(self, outputs: NDArray[Any]) -> Floats:
        return outputs.astype(np.float64)

    def quality(self, outputs: Arrays, labels: Arrays) -> Floats:
        """Minus the mean squared error, each output relative to its variance over all samples."""
        errors = relative_errors(outputs, labels)
        return np.array([-np.mean(each**2, axis=(1, 2)) for each in errors])

    def _contributions(self, predicted: Floats, labels: Floats) -> Floats:
        """Contributions to the explained variance of one output.

        If the labels do not vary, 1 if all are predicted exactly and 0 otherwise, as in
        scikit-learn.
        """
        squared = (labels - predicted) ** 2
        deviations = (labels - labels.mean()) ** 2
        variance, error = deviations.mean(), squared.mean()
        if (labels == labels[0]).all():
            return np.full(len(labels), 1.0 if error == 0 else 0.0)
        result: Floats = 1 - squared / variance + error / variance * (deviations / variance - 1)
        return result

    def second_score(self, predicted: NDArray[Any], labels: NDArray[Any]) -> float:
        """Compute the mean absolute error, in the units of the labels."""
        return float(np.abs(predicted - labels).mean())

    @property
    def part_measure(self) -> Measure:
        return self.second_measure

    def part_score(self, predicted: NDArray[Any], labels: NDArray[Any]) -> float:
        return self.second_score(predicted, labels)

    def measured_outputs(
        self, values: Floats, labels: NDArray[Any], names: Sequence[str]
    ) -> dict[str, dict[str, float]]:
        """Both measures of each of several numbers.

        Examples
        --------
        >>> y = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
        >>> Regression().measured_outputs(y + [0.5, 0.0], y, ["age", "height"])["age"]
        {'explained_variance': 62.5, 'absolute_error': 0.5}
        """
        if len(names) == 1:
            return {}
        return {
            name: self.measured(values[:, [at]], labels[:, [at]])._asdict()
            for at, name in enumerate(names)
        }

    def diagnose(
        self,
        values: Floats,
        labels: NDArray[Any],
        names: Sequence[str],
        *,
        paths: Sequence[str],
        domains: str | Sequence[str],
        most: int = MOST,
    ) -> NumberDiagnosis:
        """Compare predicted with true numbers; `most` errors are listed for each of them.

        Examples
        --------
        >>> y = np.array([[1.0], [2.0], [3.0]])
        >>> found = Regression().diagnose(y + 0.5, y, ["age"], paths="abc", domains="photo")
        >>> found.explained_variance, found.absolute_error, found.per_output["age"].bias
        (62.5, 0.5, 0.5)
        """
        n = len(labels)
        domains = [domains] * n if isinstance(domains, str) else domains
        if not n or values.shape != labels.shape or labels.shape != (n, len(names)):
            raise ValueError(f"got predictions {values.shape}, labels {labels.shape}, {names!r}")
        figures = {}
        for at, name in enumerate(names):
            predicted, y = values[:, at], labels[:, at]
            errors = predicted - y
            largest = np.argsort(-np.abs(errors), kind="stable")[:most]
            figures[name] = NumberFigures(
                100 * self.score(predicted[:, None], y[:, None]),
                float(np.abs(errors).mean()),
                float(errors.mean()),
                _ranges(errors, y),
                tuple(
                    NumberError(
                        paths[row], domains[row], name, float(y[row]), float(predicted[row])
                    )
                    for row in largest.tolist()
                    if errors[row]
                ),
            )
        return NumberDiagnosis(
            n, 100 * self.score(values, labels), self.second_score(values, labels), figures
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
