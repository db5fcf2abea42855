"""Words for each kind of task: what its metrics are called, their units, and what they say."""

from __future__ import annotations

from dataclasses import dataclass

from oodzoo.tasks.kinds import Kind


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
