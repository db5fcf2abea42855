"""What every task has: names and words, labels as text, measures, a diagnosis of predictions.

A task is an object (:func:`oodzoo.tasks.task_of`), passed along from the labels to the report: what
depends on it is a method or an attribute of it. A new one is a file with a class that is registered
(:func:`register`).

How good predictions are is said by one main metric, and a second one. Intervals and comparisons
need the *contribution* of each sample: values whose mean is the metric and whose variation between
samples is that of the metric, to first order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.core.io import structured
from oodzoo.core.text import count, did_you_mean

Kind = str
"""The name of a task in options and documents."""

Link = Literal["softmax", "identity", "sigmoid"]

Floats = NDArray[np.float64]
Arrays = Sequence[NDArray[Any]]

Z = 1.6448536269514722
"""The 95 % quantile of the normal distribution."""

MOST = 12
"""Number of mistakes that a diagnosis lists."""


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


MEASURES: dict[str, Measure] = {}
"""By the names that documents have: those of all tasks."""


class Diagnosis:
    """What a predictor gets right and wrong; a dataclass for each task."""

    mistakes: tuple[Any, ...] = ()

    if TYPE_CHECKING:

        @property
        def images(self) -> int: ...

    def to_dict(self) -> dict[str, Any]:
        """Convert to a JSON document."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Restore a diagnosis from :meth:`to_dict`."""
        return structured(document, cls, "the diagnosis")

    @property
    def paths(self) -> set[str]:
        """Paths of the images that it lists."""
        return {mistake.path for mistake in self.mistakes}


class Labels(NamedTuple):
    """Labels of n samples.

    Attributes
    ----------
    task : Task
    classes : tuple
        The classes, sorted, or the names of the outputs.
    values : array
        Positions in `classes` (n,), or numbers (n, C), or zeros and ones (n, C).
    """

    task: Task
    classes: tuple[Any, ...]
    values: NDArray[Any]


class Truth(NamedTuple):
    """True labels.

    Attributes
    ----------
    names : tuple of str
        The classes, numbers or labels of the predictor; classes that it does not know follow.
    values : array
        Positions of classes (n,), numbers (n, C), or zeros and ones (n, C).
    unknown : dict of str to int
        Number of samples of each class or label that the predictor does not know.
    absent : tuple of str
        Its classes or labels that no sample has.
    """

    names: tuple[str, ...]
    values: NDArray[Any]
    unknown: dict[str, int]
    absent: tuple[str, ...]


def none_known(
    task: Task, known: tuple[str, ...], unknown: dict[str, int], source: str
) -> InputError:
    """What to raise where a predictor knows none of the labels."""
    if not unknown:
        return InputError(f"no sample of {source!r} has a label; give labelled data")
    first = next(iter(unknown))
    hint = did_you_mean(first, known)
    return InputError(
        f"none of the {task.nouns} of {source!r} is one of the predictor: got "
        f"{', '.join(map(repr, list(unknown)[:3]))}, it has {', '.join(map(repr, known[:5]))}"
        + (f"; {hint}" if hint else f"; rename the {task.nouns}, or give data with those")
    )


class Task:
    """What is predicted for each sample.

    *Outputs* (n, C) of a head are log-probabilities of classes, numbers, or log-odds of labels;
    *values* (n, C) are probabilities or numbers. Labels are classes (n,), or (n, C).

    Attributes
    ----------
    outputs : tuple of str
        Names of the numbers or of the labels; empty for classification, whose classes are those of
        the samples.
    kind : str
        Its name in options and documents.
    metric, second_metric : str
        Names of the main and the second metric: attributes of its diagnosis.
    quality_measure : Measure
        What heads and numbers of features are chosen by on held-out domains.
    noun, nouns : str
        What is predicted: one class, number or label, and several.
    output_noun, output_nouns : str
        The same where samples have them, too.
    stratum : str
        What samples are stratified by.
    estimator, action : str
        What a predictor is, and what it does with samples.
    several_words : str
        What is predicted where it is not one class.
    pooled_words : str
        What a pool of heads averages.
    achievement, expectation : str
        What the main metric says of a predictor and of a domain, with places for its value.
    one_class : bool
        Whether a sample has exactly one class.
    has_probabilities : bool
        Whether values are probabilities.
    has_sets : bool
        Whether predictions have sets or intervals that contain the label with a probability.
    interval_words : str
        What the interval of the main metric is.
    lowest : float
        Least possible value of the main metric.
    link : {"softmax", "identity", "sigmoid"}
        What takes the logits of a linear head to values.
    loss : str
        Name of the loss in PyTorch.
    diagnosis, measures : type
        The classes of what `diagnose` and `measured` return.
    """

    kind: ClassVar[Kind]
    metric: ClassVar[str]
    second_metric: ClassVar[str]
    quality_measure: ClassVar[Measure]
    noun: ClassVar[str]
    nouns: ClassVar[str]
    output_noun: ClassVar[str]
    output_nouns: ClassVar[str]
    stratum: ClassVar[str]
    estimator: ClassVar[str]
    action: ClassVar[str]
    several_words: ClassVar[str]
    pooled_words: ClassVar[str]
    achievement: ClassVar[str]
    expectation: ClassVar[str]
    one_class: ClassVar[bool] = False
    has_probabilities: ClassVar[bool] = True
    has_sets: ClassVar[bool] = True
    interval_words: ClassVar[str] = "normal approximation"
    lowest: ClassVar[float] = 0.0
    link: ClassVar[Link]
    loss: ClassVar[str]
    diagnosis: ClassVar[type[Any]]
    measures: ClassVar[type[Any]]

    def __init__(self, outputs: Iterable[str] = ()) -> None:
        self.outputs = tuple(outputs)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(outputs={self.outputs!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Task) and other.to_document() == self.to_document()

    def __hash__(self) -> int:
        return hash((self.kind, self.outputs))

    def to_document(self) -> dict[str, Any]:
        """Convert to a JSON document."""
        return {"kind": self.kind, "outputs": list(self.outputs)}

    @classmethod
    def from_document(cls, document: Any) -> Task:
        """Restore a task from :meth:`to_document`."""
        found = msgspec.convert(document, _Document)
        return task_of(require_kind(found.kind), found.outputs)

    def __str__(self) -> str:
        outputs = ", ".join(map(repr, self.outputs))
        return self.kind + (f" ({outputs})" if outputs else "")

    @property
    def measure(self) -> Measure:
        """The main metric."""
        return MEASURES[self.metric]

    @property
    def second_measure(self) -> Measure:
        """The second metric."""
        return MEASURES[self.second_metric]

    @property
    def scores(self) -> tuple[str, ...]:
        """The metrics that models can be ranked by: shares, not errors in units of the labels."""
        return tuple(name for name in (self.metric, self.second_metric) if MEASURES[name].unit)

    @property
    def explained(self) -> str:
        """What both metrics are, as sentences; empty for classes."""
        return " ".join(filter(None, (self.measure.means, self.second_measure.means)))

    def count_outputs(self, n: int) -> str:
        """Count the classes, numbers or labels, in words."""
        return count(n, self.noun, self.nouns)

    def achieves(self, percent: float) -> str:
        """What the main metric says, in words."""
        return self.achievement.format(value=percent)

    # --- labels

    def encode(self, label: Any) -> str:
        """Write the numbers or the names of the labels of a sample as text."""
        raise NotImplementedError

    def decode(self, texts: Sequence[str]) -> Floats:
        """Read the texts of :meth:`encode` as a matrix (n, outputs) of numbers, or zeros and ones.

        Raises a ValueError for other texts.
        """
        raise NotImplementedError

    def names_of(self, text: str) -> list[str]:
        """The names that a sample has: its class, its labels, or all numbers."""
        raise NotImplementedError

    def shown(self, text: str) -> str:
        """The label of a sample as a person reads it."""
        raise NotImplementedError

    @classmethod
    def of_column(cls, array: NDArray[Any], names: tuple[str, ...] | None, name: str) -> Labels:
        """Read one value per sample: a class, a number, or labels as text."""
        raise NotImplementedError

    @classmethod
    def of_matrix(cls, values: Floats, names: tuple[str, ...] | None, name: str) -> Labels:
        """Read several numbers per sample, for most tasks zeros and ones."""
        raise NotImplementedError

    def require_variation(self, labels: Labels, name: str = "y") -> None:
        """Reject labels from which nothing can be learned: all the same."""
        raise NotImplementedError

    def strata(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        """Number the stratum of each sample."""
        raise NotImplementedError

    def strata_of(self, texts: Sequence[str]) -> list[str]:
        """The stratum of each label, as text."""
        return [str(stratum) for stratum in self.strata(self.decode(texts)).tolist()]

    def truth(self, texts: Sequence[str], known: tuple[str, ...], source: str) -> Truth:
        """Read labels for a predictor that knows these classes, numbers or labels.

        Raises an InputError if none is known, or if a number is missing.
        """
        raise NotImplementedError

    # --- predictions

    def outcome(self, values: Floats, classes: NDArray[Any]) -> Any:
        """Return the prediction for one sample from its values (C,).

        The most probable class; a number, or a tuple of several; or a tuple of the labels whose
        probability is above one half.
        """
        raise NotImplementedError

    def outcome_array(self, outcomes: Sequence[Any], classes: NDArray[Any]) -> NDArray[Any]:
        """Predictions of several samples as an array.

        Classes (n,), numbers (n,) or (n, C), or zeros and ones (n, C) in the order of the labels.
        A sample without a prediction has the class None, or NaN.
        """
        raise NotImplementedError

    def values_of_logits(self, logits: Floats) -> Floats:
        """Values (n, C) from the logits of a linear head."""
        raise NotImplementedError

    def values(self, outputs: NDArray[Any]) -> Floats:
        """Values (n, C) from outputs."""
        raise NotImplementedError

    def pooled(self, outputs: NDArray[Any], weights: Sequence[float]) -> Floats:
        """Outputs (n, C) of a pool of heads (heads, n, C), whose weights add up to 1."""
        # -inf of a class that a head does not know stays
        total = np.zeros(outputs.shape[1:])
        for head, weight in zip(outputs, weights, strict=True):
            total += weight * head.astype(np.float64)
        return total

    def quality(self, outputs: Arrays, labels: Arrays) -> Floats:
        """Quality (domains, heads) of the outputs (heads, n, C) of each domain."""
        raise NotImplementedError

    def contributions(self, predicted: NDArray[Any], labels: NDArray[Any]) -> Floats:
        """Contribution (n,) of each sample to the main metric; their mean is the metric.

        `predicted` are values or outputs (n, C), or classes (n,).
        """
        each = map(self._contributions, predicted.T, labels.T)
        known = [column for column in each if column is not None]
        if not known:  # no sample has any label
            return np.zeros(len(labels))
        means: Floats = np.mean(known, axis=0)
        return means

    def _contributions(self, predicted: Floats, labels: Floats) -> Floats | None:
        """Those to the metric of one output; None if it has none."""
        raise NotImplementedError

    def score(self, predicted: NDArray[Any], labels: NDArray[Any]) -> float:
        """Compute the main metric, as a fraction; arguments as :meth:`contributions`."""
        return float(self.contributions(predicted, labels).mean())

    def second_score(self, predicted: NDArray[Any], labels: NDArray[Any]) -> float:
        """Compute the second metric: a fraction, or the error of numbers in their units."""
        raise NotImplementedError

    @property
    def part_measure(self) -> Measure:
        """The measure of some images; explained variance would depend on their spread."""
        return self.measure

    def part_score(self, predicted: NDArray[Any], labels: NDArray[Any]) -> float:
        """Compute :attr:`part_measure`, in its unit."""
        return 100 * self.score(predicted, labels)

    def interval(self, predicted: NDArray[Any], labels: NDArray[Any]) -> tuple[float, float] | None:
        """Compute the 90 % interval of the main metric, in percent: what other images would give.

        They are of the same domains: it says nothing about new domains. It is the value ± z
        standard errors of the mean of the contributions of the images, but for an accuracy. It is
        None if all contribute the same, as for one image, labels that do not vary, or predictions
        without any error: a standard error of zero would make the interval a point, however few
        samples there are.
        """
        values = self.contributions(predicted, labels)
        if np.ptp(values) <= 1e-12:
            return None
        mean = float(values.mean())
        margin = Z * float(np.std(values, ddof=1)) / math.sqrt(len(labels))
        return 100 * max(mean - margin, self.lowest), 100 * min(mean + margin, 1.0)

    def measured(self, values: Floats, labels: NDArray[Any]) -> Any:
        """All measures of values, the main metric first; shares in percent."""
        second = self.second_score(values, labels)
        scale = 100 if self.second_measure.unit else 1
        return self.measures(100 * self.score(values, labels), scale * second)

    def measured_outputs(
        self, values: Floats, labels: NDArray[Any], names: Sequence[str]
    ) -> dict[str, dict[str, float]]:
        """Measures of each of several numbers, or of each label that a sample has."""
        return {}

    def diagnose(
        self,
        values: Floats,
        labels: NDArray[Any],
        names: Sequence[str],
        *,
        paths: Sequence[str],
        domains: str | Sequence[str],
        most: int = MOST,
    ) -> Any:
        """Compare values with labels.

        Parameters
        ----------
        values : array (n, C)
        labels : array (n,) or (n, C)
        names : sequence of str
            Those of the C classes, numbers or labels.
        paths : sequence of str
            Of the n images.
        domains : str or sequence of str
            The domain of all images, or of each.
        most : int
            Number of mistakes to list.
        """
        raise NotImplementedError


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    """A task in a file."""

    kind: str
    outputs: list[str]


TASKS: dict[Kind, type[Task]] = {}
"""The tasks by name."""

KINDS = TASKS.keys()

AnyTask = TypeVar("AnyTask", bound=type[Task])


def register(**measures: Measure) -> Callable[[AnyTask], AnyTask]:
    """Make a task known, with the measures that no other one has; decorates its class."""

    def registered(task: AnyTask) -> AnyTask:
        TASKS[task.kind] = task
        return task

    MEASURES.update(measures)
    return registered


def require_kind(kind: str) -> Kind:
    """Return the name of a task; reject an unknown one."""
    if kind not in TASKS:
        hint = did_you_mean(kind, KINDS) or f"expected one of {', '.join(KINDS)}"
        raise InputError(f"unknown task {kind!r}; {hint}")
    return kind


def task_of(kind: Kind, outputs: Iterable[str] = ()) -> Task:
    """Return the task of a name, with the names of its outputs; classes are not kept.

    Examples
    --------
    >>> task_of("regression", ["age", "height"])
    Regression(outputs=('age', 'height'))
    >>> task_of("classification", ["cat", "dog"])
    Classification(outputs=())
    """
    task = TASKS[kind]
    return task() if task.one_class else task(outputs)
