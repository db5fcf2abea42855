r"""Any number of labels per sample: average precision and exact match, what is surely wrong.

*Average precision* is the mean of the precision at each sample that has the label, when samples are
sorted by the prediction, averaged over the labels that at least one sample has (scikit-learn's
`average_precision_score`). The *exact match* is the share of samples of which all labels are
predicted right; a label is predicted if its probability is above one half.

For the average precision A of a label with a share p of the samples, and at each sample j the
precision :math:`a_j` among the samples that are not below it, a share :math:`r_j` of all, the
contribution of a sample is

.. math:: A + \frac{y_i}{p} (a_i - A)
    + \frac{1}{p n} \sum_{j: s_j \le s_i} \frac{y_j}{r_j} (y_i - a_j):

a sample counts for itself, and for the precision at those below it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

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
    none_known,
    register,
)

SEPARATORS = ("|", ";", ",")
"""What separates the labels of a sample, the first one that occurs."""


def split_labels(texts: Sequence[str], separator: str | None = None) -> list[list[str]]:
    """Split text such as "cat|dog" into labels; empty text is a sample without labels.

    The separator is by default the first of "|", ";" and "," that occurs in any text. Without a
    given one, JSON lists of strings are read as such if all texts are.

    Examples
    --------
    >>> split_labels(["cat|dog", "dog", ""])
    [['cat', 'dog'], ['dog'], []]
    """
    if separator is None:
        if (lists := json_lists(texts)) is not None:
            return lists
        separator = next((s for s in SEPARATORS if any(s in text for text in texts)), "|")
    return [[p.strip() for p in text.split(separator) if p.strip()] for text in texts]


def json_lists(texts: Sequence[str]) -> list[list[str]] | None:
    """The labels in JSON, if all texts that are not empty are lists of strings."""
    if not any(text.strip() for text in texts):
        return None
    rows = []
    for text in texts:
        try:
            row = json.loads(text) if text.strip() else []
        except (ValueError, RecursionError):
            return None
        if not isinstance(row, list) or not all(isinstance(label, str) for label in row):
            return None
        rows.append(row)
    return rows


class LabelMeasures(NamedTuple):
    """Measures of several labels per sample, in percent."""

    average_precision: float
    exact_match: float


def bernoulli_likelihood(log_odds: NDArray[Any], labels: NDArray[Any]) -> NDArray[Any]:
    """Log-probability of each label, zero or one, of the same shape as the log-odds."""
    likelihood: NDArray[Any] = labels * log_odds - np.logaddexp(0, log_odds)
    return likelihood


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
class LabelDiagnosis(Diagnosis):
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


@register(
    average_precision=Measure(
        "average precision",
        means="Average precision sorts the images by the prediction of a label: it is 100 % if "
        "those with the label come first, and about their share for random predictions. It is "
        "averaged over the labels.",
        short="AP",
    ),
    exact_match=Measure(
        "exact match",
        means="Exact match is the share of images of which all labels are predicted correctly.",
    ),
)
class Multilabel(Task):
    """Any number of labels.

    Examples
    --------
    >>> task = Multilabel(("cat", "dog"))
    >>> task.encode(["dog", "cat"]), task.count_outputs(1)
    ('["cat", "dog"]', '1 label')
    >>> task.decode(['["cat", "dog"]', "[]"]).tolist()
    [[1.0, 1.0], [0.0, 0.0]]
    """

    kind = "multilabel"
    metric, second_metric = "average_precision", "exact_match"
    quality_measure = Measure("log-likelihood", unit="", digits=3)
    noun, nouns = "label", "labels"
    output_noun, output_nouns = "label", "labels"
    stratum = "rarest label"
    estimator, action = "labeller", "labels"
    several_words = "several labels"
    pooled_words = "the log-odds"
    has_sets = False
    link, loss = "sigmoid", "binary_cross_entropy_with_logits"
    diagnosis = LabelDiagnosis
    achievement = "has an average precision of {value:.1f} % in unseen domains"
    expectation = "In {place}, expect an average precision of about {value} %"
    measures = LabelMeasures

    def encode(self, label: Iterable[str]) -> str:
        return json.dumps(sorted(str(name) for name in label), ensure_ascii=False)

    def decode(self, texts: Sequence[str]) -> Floats:
        values = np.zeros((len(texts), len(self.outputs)))
        columns = {name: column for column, name in enumerate(self.outputs)}
        for row, text in enumerate(texts):
            names = json.loads(text)
            if not isinstance(names, list) or not all(name in columns for name in names):
                raise ValueError(f"{text!r} is not a list of some of {list(self.outputs)}")
            values[row, [columns[name] for name in names]] = 1
        return values

    def names_of(self, text: str) -> list[str]:
        names: list[str] = json.loads(text)
        return names

    def shown(self, text: str) -> str:
        """The names of the labels.

        Examples
        --------
        >>> Multilabel(("cat", "dog")).shown('["cat", "dog"]')
        'cat, dog'
        """
        [values] = self.decode([text])
        names = [name for name, value in zip(self.outputs, values, strict=True) if value]
        return ", ".join(names) or "no label"

    @classmethod
    def of_column(cls, array: NDArray[Any], names: tuple[str, ...] | None, name: str) -> Labels:
        if array.dtype.kind not in "US":
            raise InputError(
                f"{name} has one number per sample, got {array[0].item()!r}; for several labels "
                "give a matrix of zeros and ones, or a list of labels for each sample"
            )
        return cls.of_lists(split_labels(array.tolist()), name)

    @classmethod
    def of_lists(cls, lists: Sequence[Sequence[str]], name: str) -> Labels:
        """Read the names of the labels of each sample."""
        outputs = tuple(sorted({label for labels in lists for label in labels}))
        if not outputs:
            raise InputError(f"{name} has no label for any of {count(len(lists), 'sample')}")
        columns = {label: column for column, label in enumerate(outputs)}
        values = np.zeros((len(lists), len(outputs)))
        for row, labels in enumerate(lists):
            values[row, [columns[label] for label in labels]] = 1
        return Labels(cls(outputs), outputs, values)

    @classmethod
    def of_matrix(cls, values: Floats, names: tuple[str, ...] | None, name: str) -> Labels:
        outputs = names or tuple(str(column) for column in range(values.shape[1]))
        return Labels(cls(outputs), outputs, values)

    def require_variation(self, labels: Labels, name: str = "y") -> None:
        values = labels.values
        if len(values) and (values == values[0]).all():
            raise InputError(
                f"{name} has the same labels in all {count(len(values), 'sample')}; nothing can "
                "be learned from them"
            )

    def strata(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        """The rarest label that the sample has, so that rare labels are represented.

        The last stratum is that of samples without labels.

        Examples
        --------
        >>> Multilabel().strata(np.array([[1, 0], [1, 1], [1, 0], [0, 0]])).tolist()
        [0, 1, 0, 2]
        """
        sizes = np.where(labels > 0.5, labels.sum(axis=0), np.inf)
        rarest = sizes.argmin(axis=1)
        found: NDArray[np.int64] = np.where(np.isinf(sizes.min(axis=1)), labels.shape[1], rarest)
        return found

    def truth(self, texts: Sequence[str], known: tuple[str, ...], source: str) -> Truth:
        """Labels that the predictor does not know are left out."""
        given = self.decode(texts)
        counts = dict(zip(self.outputs, given.sum(axis=0).astype(int).tolist(), strict=True))
        unknown = {name: n for name, n in counts.items() if name not in known and n}
        if not any(counts.get(name) for name in known):
            raise none_known(self, known, unknown, source)
        values = np.zeros((len(texts), len(known)))
        for at, name in enumerate(known):
            if name in counts:
                values[:, at] = given[:, self.outputs.index(name)]
        return Truth(known, values, unknown, tuple(name for name in known if not counts.get(name)))

    def outcome(self, values: Floats, classes: NDArray[Any]) -> Any:
        """The labels whose probability is above one half.

        Examples
        --------
        >>> Multilabel().outcome(np.array([0.9, 0.2, 0.6]), np.array(["cat", "dog", "fox"]))
        ('cat', 'fox')
        """
        return tuple(classes[values > 0.5].tolist())

    def outcome_array(self, outcomes: Sequence[Any], classes: NDArray[Any]) -> NDArray[Any]:
        """Zeros and ones in the order of the labels; NaN for a sample without a prediction.

        Examples
        --------
        >>> Multilabel().outcome_array([("a",), None], np.array(["a", "b"]))
        array([[ 1.,  0.],
               [nan, nan]])
        """
        none = np.full(len(classes), np.nan)
        rows = [none if each is None else np.isin(classes, each) for each in outcomes]
        dtype = np.float64 if any(each is None for each in outcomes) else np.int64
        return np.array(rows, dtype).reshape(-1, len(classes))

    def values_of_logits(self, logits: Floats) -> Floats:
        values: Floats = expit(logits)
        return values

    def values(self, outputs: NDArray[Any]) -> Floats:
        return self.values_of_logits(outputs.astype(np.float64))

    def quality(self, outputs: Arrays, labels: Arrays) -> Floats:
        """Mean log-probability over samples and labels."""
        return np.array(
            [
                bernoulli_likelihood(z.astype(np.float64), y).mean(axis=(1, 2))
                for z, y in zip(outputs, labels, strict=True)
            ]
        )

    def _contributions(self, predicted: Floats, labels: Floats) -> Floats | None:
        """Contributions to the average precision of one label; None if no sample has it."""
        scores, has = predicted, labels > 0.5
        share = has.mean()
        if share == 0:
            return None
        n = len(labels)
        order = np.argsort(-scores, kind="stable")
        # the precision among all samples with at least this score: ties count together
        last = np.searchsorted(-scores[order], -scores, side="right")
        precision = np.cumsum(has[order])[last - 1] / last
        average = precision[has].mean()
        # sums over the samples that have the label, from the lowest score on
        weights = np.where(has, n / last, 0.0)[order][::-1]
        below = np.searchsorted(scores[order][::-1], scores, side="right") - 1
        counts = np.cumsum(weights)[below]
        precisions = np.cumsum(weights * precision[order][::-1])[below]
        own = np.where(has, precision - average, 0.0)
        result: Floats = average + (own + (has * counts - precisions) / n) / share
        return result

    def second_score(self, predicted: NDArray[Any], labels: NDArray[Any]) -> float:
        """Compute the exact match, as a fraction."""
        return float(((predicted > 0.5) == (labels > 0.5)).all(axis=1).mean())

    def measured_outputs(
        self, values: Floats, labels: NDArray[Any], names: Sequence[str]
    ) -> dict[str, dict[str, float]]:
        """The average precision of each of several labels that a sample has."""
        return {
            name: {self.metric: 100 * self.score(values[:, [at]], labels[:, [at]])}
            for at, name in enumerate(names)
            if len(names) > 1 and labels[:, at].any()
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
    ) -> LabelDiagnosis:
        """Compare probabilities of labels with zeros and ones.

        Examples
        --------
        >>> found = Multilabel().diagnose(
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
        n = len(labels)
        domains = [domains] * n if isinstance(domains, str) else domains
        if not n or values.shape != labels.shape or labels.shape != (n, len(names)):
            raise ValueError(f"got probabilities {values.shape}, labels {labels.shape}, {names!r}")
        has, predicted = labels > 0.5, values > 0.5
        wrong = np.where(has != predicted, np.where(predicted, values, 1 - values), -1.0)
        column, confidence = wrong.argmax(axis=1), wrong.max(axis=1)
        surest = np.argsort(-confidence, kind="stable")[:most]
        figures = {}
        for at, name in enumerate(names):
            mine, times = int(has[:, at].sum()), int(predicted[:, at].sum())
            right = int((has[:, at] & predicted[:, at]).sum())
            figures[name] = LabelFigures(
                mine,
                100 * self.score(values[:, [at]], labels[:, [at]]) if mine else None,
                100 * right / mine if mine else None,
                100 * right / times if times else None,
            )
        return LabelDiagnosis(
            n,
            100 * self.score(values, labels),
            100 * self.second_score(values, labels),
            figures,
            tuple(
                LabelMistake(
                    paths[row],
                    domains[row],
                    names[column[row]],
                    bool(has[row, column[row]]),
                    100 * float(confidence[row]),
                )
                for row in surest.tolist()
                if confidence[row] >= 0
            ),
        )
