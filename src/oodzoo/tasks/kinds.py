"""The kinds of task: labels of each as text, words for its metrics, strata of samples."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.core.text import count, did_you_mean

Kind = Literal["classification", "regression", "multilabel"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_METRICS: dict[Kind, tuple[str, str]] = {
    "classification": ("accuracy", "balanced_accuracy"),
    "regression": ("explained_variance", "absolute_error"),
    "multilabel": ("average_precision", "exact_match"),
}


@dataclass(frozen=True)
class Task:
    """What is predicted for each sample.

    Attributes
    ----------
    kind : {"classification", "regression", "multilabel"}
        One of several classes, one or more numbers, or any number of labels.
    outputs : tuple of str
        Names of the numbers or of the labels; empty for classification, whose classes are those of
        the samples.

    Examples
    --------
    >>> task = Task("multilabel", ("cat", "dog"))
    >>> task.encode(["dog", "cat"])
    '["cat", "dog"]'
    >>> task.decode(['["cat", "dog"]', "[]"]).tolist()
    [[1.0, 1.0], [0.0, 0.0]]
    >>> Task("regression", ("age", "height")).decode(["61.5 1.8"]).tolist()
    [[61.5, 1.8]]
    """

    kind: Kind = "classification"
    outputs: tuple[str, ...] = ()

    def __str__(self) -> str:
        outputs = ", ".join(map(repr, self.outputs))
        return self.kind + (f" ({outputs})" if outputs else "")

    @property
    def is_classification(self) -> bool:
        return self.kind == "classification"

    @property
    def metric(self) -> str:
        """Name of the main metric, see :mod:`oodzoo.tasks.metrics`."""
        return _METRICS[self.kind][0]

    @property
    def second_metric(self) -> str:
        return _METRICS[self.kind][1]

    def count_outputs(self, n: int) -> str:
        """Count the classes, numbers or labels, in words.

        Examples
        --------
        >>> Task().count_outputs(3), Task("multilabel", ("cat",)).count_outputs(1)
        ('3 classes', '1 label')
        """
        if self.kind == "classification":
            return count(n, "class", "classes")
        return count(n, "number" if self.kind == "regression" else "label")

    def encode(self, label: Sequence[float] | Iterable[str]) -> str:
        """Write the numbers or the names of the labels of a sample as text."""
        if self.kind == "regression":
            return " ".join(repr(float(value)) for value in label)
        return json.dumps(sorted(str(name) for name in label), ensure_ascii=False)

    def decode(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Read the texts of :meth:`encode` as a matrix (n, outputs) of numbers, or zeros and ones.

        Raises a ValueError for other texts.
        """
        values = np.zeros((len(texts), len(self.outputs)))
        if self.kind == "regression":
            for row, text in enumerate(texts):
                parts = text.split()
                if len(parts) != len(self.outputs):  # NumPy would repeat a single one
                    raise ValueError(f"{text!r} does not have a number for each of {self.outputs}")
                values[row] = [float(part) for part in parts]
            if not np.isfinite(values).all():
                raise ValueError("the labels are not finite")
            return values
        columns = {name: column for column, name in enumerate(self.outputs)}
        for row, text in enumerate(texts):
            names = json.loads(text)
            if not isinstance(names, list) or not all(name in columns for name in names):
                raise ValueError(f"{text!r} is not a list of some of {list(self.outputs)}")
            values[row, [columns[name] for name in names]] = 1
        return values


CLASSIFICATION = Task()


def require_kind(kind: str) -> Kind:
    """Return the kind of task; reject an unknown one."""
    for known in KINDS:
        if kind == known:
            return known
    hint = did_you_mean(kind, KINDS) or f"expected one of {', '.join(KINDS)}"
    raise InputError(f"unknown task {kind!r}; {hint}")


@dataclass(frozen=True)
class Measure:
    """A measure of predictions.

    Attributes
    ----------
    name : str
        As in a sentence.
    unit : str
        " %", or nothing for the units of the labels.
    digits : int or None
        Decimals; None for three significant figures.
    means : str
        What it is, as a sentence; empty for what everybody knows.
    short : str
        Its name in narrow tables; the name if empty.
    lowest : float
        Charts show values below it at their edge.
    """

    name: str
    unit: str = " %"
    digits: int | None = 1
    means: str = ""
    short: str = ""
    lowest: float = 0.0

    @property
    def title(self) -> str:
        """The name, capitalised."""
        return self.name[:1].upper() + self.name[1:]

    @property
    def heading(self) -> str:
        """What a column of it is called."""
        return self.title + self.unit


MEASURES = {
    "accuracy": Measure("accuracy", short="acc."),
    "balanced_accuracy": Measure("balanced accuracy"),
    "calibration_error": Measure("calibration error"),
    "explained_variance": Measure(
        "explained variance",
        means="Explained variance (R²) is the share of the variance of the labels of a domain that "
        "is predicted: 100 % without errors, 0 % for the mean of the domain, negative for worse "
        "predictions.",
        short="R²",
        lowest=-100.0,
    ),
    "absolute_error": Measure(
        "absolute error",
        unit="",
        digits=None,
        means="Absolute error is the mean distance from the labels, in their units.",
    ),
    "average_precision": Measure(
        "average precision",
        means="Average precision sorts the images by the prediction of a label: it is 100 % if "
        "those with the label come first, and about their share for random predictions. It is "
        "averaged over the labels.",
        short="AP",
    ),
    "exact_match": Measure(
        "exact match",
        means="Exact match is the share of images of which all labels are predicted correctly.",
    ),
}
"""By the names of :class:`oodzoo.tasks.Task`."""


@dataclass(frozen=True)
class Words:
    """Words for one kind of task.

    Attributes
    ----------
    metric, second : Measure
        The main and the second metric.
    output, outputs : str
        What a prediction consists of: one class, number or label, and several.
    pooled : str
        What a pool of heads averages.
    quality : Measure
        What heads and numbers of features are chosen by on left-out domains.
    """

    metric: Measure
    second: Measure
    output: str
    outputs: str
    pooled: str
    quality: Measure

    @property
    def explained(self) -> str:
        """What both metrics are, as sentences; empty for classes."""
        return " ".join(filter(None, (self.metric.means, self.second.means)))


WORDS: dict[Kind, Words] = {
    "classification": Words(
        MEASURES["accuracy"],
        MEASURES["balanced_accuracy"],
        "class",
        "classes",
        "the log-probabilities",
        Measure("log-likelihood", unit="", digits=3),
    ),
    "regression": Words(
        MEASURES["explained_variance"],
        MEASURES["absolute_error"],
        "output",
        "outputs",
        "the predictions",
        Measure(
            "negative squared error",
            unit="",
            digits=3,
            means="The error is relative to the variance of the labels.",
        ),
    ),
    "multilabel": Words(
        MEASURES["average_precision"],
        MEASURES["exact_match"],
        "label",
        "labels",
        "the log-odds",
        Measure("log-likelihood", unit="", digits=3),
    ),
}


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
