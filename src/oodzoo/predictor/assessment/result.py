"""The result of a test, and whether it agrees with what the predictor promises."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Literal

import msgspec

from oodzoo.core.io import structured
from oodzoo.core.tables import Table
from oodzoo.core.text import count, number, significant, span
from oodzoo.data.files import ImageFile
from oodzoo.predictor.parts import Provenance
from oodzoo.tasks import AnyDiagnosis, Kind, require_kind, task_of
from oodzoo.tasks.classification import ClassDiagnosis, ClassFigures, Mistake, Reliability
from oodzoo.tasks.task import Measure

Verdict = Literal["within", "below", "above", "trained on"]


@dataclass(frozen=True)
class Promise:
    """The main metric on left-out domains, measured when the predictor was fitted.

    Attributes
    ----------
    value : float
        In percent, mean over the left-out domains.
    interval : tuple of float, optional
        90 % interval for a single new domain.
    verdicts : dict of str to str
        For each domain of the test: "within", "below" or "above" the interval, or "trained on" if
        the predictor was trained on a domain of this name. A domain is outside only if the
        interval of what was measured on it is, without images of unknown classes. One without
        such an interval has no verdict, and none has without that of the promise.
    """

    value: float
    interval: tuple[float, float] | None
    verdicts: dict[str, Verdict]

    @property
    def new(self) -> dict[str, Verdict]:
        """The verdicts of the domains that the predictor was not trained on."""
        return {name: each for name, each in self.verdicts.items() if each != "trained on"}

    @property
    def agrees(self) -> bool | None:
        """Whether the new domains are within the interval; None if none can be compared.

        It is a 90 % interval for one domain: of ten or more, a tenth may be outside.
        """
        if not self.new:
            return None
        outside = sum(each != "within" for each in self.new.values())
        return 10 * outside <= len(self.new)

    @property
    def text(self) -> str:
        """What was promised and whether the test agrees, in sentences."""
        about = "" if self.interval is None else f", {span(*self.interval)} % for one new domain"
        promised = (
            f"When it was fitted, it reached {number(self.value, 1)} % on left-out domains{about}."
        )
        if self.agrees is None:
            reason = "that has no interval"
            if self.verdicts:
                reason = "it was trained on domains of these names"
            elif self.interval is not None:
                reason = "what was measured on its domains has no interval"
            return f"{promised} This test cannot be compared with it: {reason}."
        new, many = self.new, len(self.new)
        if self.agrees and all(each == "within" for each in new.values()):
            found = "the new domain is" if many == 1 else f"the {many} new domains are"
            return f"{promised} This test agrees: {found} within this interval."
        sides = [
            f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} {side} this interval"
            for side in ("below", "above")
            if (names := [repr(name) for name, each in new.items() if each == side])
        ]
        if self.agrees:
            return (
                f"{promised} This test agrees: of the {many} new domains, as many as one in ten "
                f"may be outside; {', '.join(sides)}."
            )
        return f"{promised} This test does not agree: {', '.join(sides)}."


def promise_of(
    provenance: Provenance,
    intervals: Mapping[str, tuple[float, float]],
    trained_on: Collection[str],
) -> Promise | None:
    """Compare the intervals measured on each domain with what the predictor records.

    None if it records no accuracy on left-out domains.
    """
    if provenance.accuracy is None:
        return None
    verdicts: dict[str, Verdict] = {}
    if provenance.accuracy_interval is not None:
        least, most = provenance.accuracy_interval
        for domain, (low, high) in intervals.items():
            if domain in trained_on:
                verdicts[domain] = "trained on"
            else:
                verdicts[domain] = "below" if high < least else "above" if low > most else "within"
    return Promise(provenance.accuracy, provenance.accuracy_interval, verdicts)


@dataclass(frozen=True)
class Part:
    """What was measured on the images of a domain, or on all.

    Attributes
    ----------
    diagnosis : ClassDiagnosis, NumberDiagnosis or LabelDiagnosis
    interval : tuple of float, optional
        90 % interval of the main metric, in percent, for other images of the same domains; see
        :meth:`oodzoo.tasks.Task.interval`. None for a single number or set
        of labels.
    """

    diagnosis: AnyDiagnosis
    interval: tuple[float, float] | None

    def to_dict(self) -> dict[str, Any]:
        """Convert to a JSON document."""
        return {**self.diagnosis.to_dict(), "interval": self.interval and list(self.interval)}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], task: Kind) -> Part:
        """Restore from :meth:`to_dict`."""
        interval = document["interval"]
        if interval is not None:
            interval = structured(interval, tuple[float, float], "the test")
        return cls(task_of(task).diagnosis.from_dict(document), interval)

    def interval_text(self) -> str:
        """The interval as text, without a unit."""
        return span(*(self.interval or (None, None)), digits=1)


@dataclass(frozen=True)
class Missed:
    """A sample without a prediction, and the reason."""

    path: str
    domain: str
    reason: str


@dataclass(frozen=True)
class OutOfDomain:
    """Samples that the predictor finds unlike its training samples.

    Attributes
    ----------
    images : int
        Their number.
    flagged, others : float, optional
        Main metric of them and of the others, in percent; for numbers, the absolute error. None
        if there are none.
    """

    images: int
    flagged: float | None
    others: float | None


@dataclass(frozen=True)
class TestResult:
    """What a predictor gets right and wrong on labelled data, returned by :func:`oodzoo.test`.

    Attributes
    ----------
    task : {"classification", "regression", "multilabel"}
    data : str
        What the data is called.
    noun : str
        What a sample is called: "image", "text" or "sample".
    choice : str
        How the models of the predictor were chosen and combined.
    models : tuple of str
    overall : Part
        Measured on all samples.
    domains : dict of str to Part
        Measured on the samples of each domain.
    unknown : dict of str to int
        Number of samples of each class that the predictor does not know. They count as wrong.
        Labels that it does not know are left out.
    known_accuracy : float, optional
        Accuracy without these samples, in percent; None if there are none.
    absent : tuple of str
        Classes or labels of the predictor that no sample has.
    unreadable : tuple of Missed
        Samples that could not be read; they are in no figure.
    out_of_domain : OutOfDomain
    trained_on : tuple of str
        Domains of the data that have the name of a domain that the predictor was trained on.
    is_training_data : bool
        Whether the data is exactly what the predictor was trained on.
    issues : tuple of str
        Problems of the data, such as images outside any class folder; a line each.
    adapted : bool
        Whether the predictor was adapted to the samples of each domain, without their labels.
    promise : Promise, optional
        What was measured on left-out domains when the predictor was fitted, if it was.
    files : dict of str to ImageFile
        Where the images of the mistakes are, by path; not part of the document.
    """

    __test__ = False  # for pytest

    task: Kind
    data: str
    noun: str
    choice: str
    models: tuple[str, ...]
    overall: Part
    domains: dict[str, Part]
    unknown: dict[str, int]
    known_accuracy: float | None
    absent: tuple[str, ...]
    unreadable: tuple[Missed, ...]
    out_of_domain: OutOfDomain
    trained_on: tuple[str, ...] = ()
    is_training_data: bool = False
    issues: tuple[str, ...] = ()
    adapted: bool = False
    promise: Promise | None = None
    files: Mapping[str, ImageFile] = field(default_factory=dict, repr=False, compare=False)

    @property
    def diagnosis(self) -> AnyDiagnosis:
        """All figures, of all samples."""
        return self.overall.diagnosis

    @property
    def metric(self) -> str:
        """The main metric: "accuracy", "explained_variance" or "average_precision"."""
        return task_of(self.task).metric

    @property
    def value(self) -> float:
        """The main metric on all samples, in percent."""
        return self.value_of(self.overall)

    @property
    def second(self) -> float:
        """The second metric: balanced accuracy or exact match in percent, or absolute error."""
        return self.second_of(self.overall)

    @property
    def interval(self) -> tuple[float, float] | None:
        """90 % interval of the main metric, for other samples of the same domains."""
        return self.overall.interval

    @property
    def average(self) -> float:
        """Mean of the main metric over the domains, in percent."""
        return fmean(map(self.value_of, self.domains.values()))

    @property
    def images(self) -> int:
        """Number of samples that were predicted."""
        return self.diagnosis.images

    @property
    def accuracy(self) -> float:
        """Share of samples whose class is predicted, in percent; of classes only."""
        return self._classes.accuracy

    @property
    def balanced_accuracy(self) -> float:
        """Mean recall of the classes of the data, in percent; of classes only."""
        return self._classes.balanced_accuracy

    @property
    def per_class(self) -> dict[str, ClassFigures]:
        """Samples, recall and precision of each class; of classes only."""
        return self._classes.per_class

    @property
    def confusion(self) -> tuple[tuple[int, ...], ...]:
        """Number of samples by true class (rows) and predicted class (columns); of classes only."""
        return self._classes.confusion

    @property
    def reliability(self) -> Reliability:
        """Confidence and accuracy; of classes only."""
        return self._classes.reliability

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        """The most confident mistakes; of classes only."""
        return self._classes.mistakes

    @property
    def _classes(self) -> ClassDiagnosis:
        if not isinstance(self.diagnosis, ClassDiagnosis):
            raise AttributeError(f"a test of {self.task} has no classes; see .diagnosis")
        return self.diagnosis

    def value_of(self, part: Part) -> float:
        """The main metric on a part, in percent."""
        value: float = getattr(part.diagnosis, task_of(self.task).metric)
        return value

    def second_of(self, part: Part) -> float:
        """The second metric on a part."""
        value: float = getattr(part.diagnosis, task_of(self.task).second_metric)
        return value

    def findings(self) -> list[str]:
        """Summarise the result, one sentence per line."""
        lines = [self._headline(), *([self.promise.text] if self.promise else [])]
        if isinstance(self.diagnosis, ClassDiagnosis):
            lines.append(self._calibration(self.diagnosis))
        return [*lines, *self.remarks()]

    def _calibration(self, found: ClassDiagnosis) -> str:
        sure, error = found.reliability.confidence, found.reliability.error
        return (
            f"Its confidence is {number(sure, 1)} % on average, {number(error, 1)} points off "
            "(expected calibration error)."
        )

    def _headline(self) -> str:
        task, noun = task_of(self.task), count(self.images, self.noun)
        where, value = f"{noun} of {count(len(self.domains), 'domain')}", self.value
        if task.one_class:
            first = f"{shown(task.measure, value)} of {where} are classified correctly"
        else:
            first = f"{task.measure.title} {shown(task.measure, value)} on {where}"
        second = f"{task.second_measure.name} {shown(task.second_measure, self.second)}"
        return f"{first} (90 % interval {self.overall.interval_text()} %; {second})."

    def remarks(self) -> list[str]:
        """What a reader must know before using the numbers, a sentence each."""
        lines = []
        if self.is_training_data:
            lines.append(
                "The predictor was trained on exactly this data: the numbers are too high for any "
                "other. Test on data that it has not seen."
            )
        elif self.trained_on:
            names = ", ".join(map(repr, self.trained_on))
            one = len(self.trained_on) == 1
            lines.append(
                f"The predictor was trained on {'a domain' if one else 'domains'} of the same "
                f"name: {names}. The numbers say nothing about new domains, and are too high if "
                f"these {self.noun}s were among the training {self.noun}s, which it does not "
                "record."
            )
        if self.unknown:
            lines.append(self._unknown())
        if self.absent:
            task = task_of(self.task)
            what = task.output_noun if len(self.absent) == 1 else task.output_nouns
            lines.append(
                f"No {self.noun} has the {what} {_listed(self.absent)}, which the predictor knows."
            )
        if self.unreadable:
            first = self.unreadable[0]
            lines.append(
                f"{count(len(self.unreadable), self.noun)} could not be read and "
                f"{'is' if len(self.unreadable) == 1 else 'are'} in no figure; the first is "
                f"{first.path!r}: {first.reason}."
            )
        if self.out_of_domain.images:
            lines.append(self._flagged())
        return [*lines, *(f"In the data, {issue}." for issue in self.issues)]

    def _unknown(self) -> str:
        several = len(self.unknown) > 1
        names = _listed(self.unknown)
        if not task_of(self.task).one_class:  # of which one sample can have several
            return (
                f"The predictor does not know {'labels' if several else 'a label'} of the data, "
                f"left out here, with the number of {self.noun}s: {names}."
            )
        n = count(sum(self.unknown.values()), self.noun)
        return (
            f"{n} {'are of classes' if several else 'are of a class'} that the predictor does not "
            f"know and count as wrong: {names}. Without them, the accuracy is "
            f"{number(self.known_accuracy, 1)} %"
            f"{', which is what is compared with left-out domains' if self.promise else ''}."
        )

    def _flagged(self) -> str:
        far = self.out_of_domain
        measure = task_of(self.task).part_measure
        others = "" if far.others is None else f", of the others {shown(measure, far.others)}"
        return (
            f"{number(far.images)} of {count(self.images, self.noun)} "
            f"{'is' if far.images == 1 else 'are'} unlike the training {self.noun}s: "
            f"{measure.name} {shown(measure, far.flagged)}{others}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Convert to a JSON document; metrics in percent."""
        far = self.out_of_domain
        return {
            "task": self.task,
            "metric": self.metric,
            "data": self.data,
            "noun": self.noun,
            "choice": self.choice,
            "models": list(self.models),
            **self.overall.to_dict(),
            "average": self.average,
            "domains": {name: part.to_dict() for name, part in self.domains.items()},
            "unknown": dict(self.unknown),
            "known_accuracy": self.known_accuracy,
            "absent": list(self.absent),
            "unreadable": msgspec.to_builtins(self.unreadable),
            "out_of_domain": msgspec.to_builtins(far),
            "trained_on": list(self.trained_on),
            "is_training_data": self.is_training_data,
            "issues": list(self.issues),
            "adapted": self.adapted,
            "promise": None if self.promise is None else {
                **msgspec.to_builtins(self.promise),
                "agrees": self.promise.agrees,
            },
            "findings": self.findings(),
        }  # fmt: skip

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> TestResult:
        """Restore a result from :meth:`to_dict`."""
        task = require_kind(document["task"])
        domains = document["domains"].items()
        return cls(
            task=task,
            overall=Part.from_dict(document, task),
            domains={name: Part.from_dict(part, task) for name, part in domains},
            **msgspec.structs.asdict(structured(document, _Plain, "the test")),
        )

    def __repr__(self) -> str:
        words = task_of(self.task)
        return (
            f"TestResult({self.data!r}: {words.measure.name} {shown(words.measure, self.value)} of "
            f"{count(self.images, self.noun)}, {count(len(self.domains), 'domain')})"
        )

    def __str__(self) -> str:
        return "\n".join([Table.of(*self.table()).text(), *self.findings()])

    def _repr_html_(self) -> str:
        return Table.of(*self.table(), caption=repr(self), notes=self.findings()).html()

    def table(self) -> tuple[list[str], list[list[str]]]:
        """The metrics by domain: headings, and rows of text."""
        words = task_of(self.task)
        columns = [
            "domain",
            f"{self.noun}s",
            words.measure.heading,
            "90 % interval",
            words.second_measure.heading,
        ]
        everything = {"all": self.overall} if len(self.domains) > 1 else {}
        if self.promise is not None and self.promise.verdicts:
            columns.append("promise")
        rows = []
        for name, part in [*self.domains.items(), *everything.items()]:
            row = [
                name,
                number(part.diagnosis.images),
                shown(words.measure, self.value_of(part), unit=False),
                part.interval_text(),
                shown(words.second_measure, self.second_of(part), unit=False),
            ]
            if self.promise is not None and self.promise.verdicts:
                row.append("" if part is self.overall else self.promise.verdicts.get(name, ""))
            rows.append(row)
        return columns, rows


class _Plain(msgspec.Struct):
    """The parts of a document that need no knowledge of the task."""

    data: str
    noun: str
    choice: str
    models: tuple[str, ...]
    unknown: dict[str, int]
    known_accuracy: float | None
    absent: tuple[str, ...]
    unreadable: tuple[Missed, ...]
    out_of_domain: OutOfDomain
    trained_on: tuple[str, ...] = ()
    is_training_data: bool = False
    issues: tuple[str, ...] = ()
    adapted: bool = False
    promise: Promise | None = None


def shown(measure: Measure, value: float | None, *, unit: bool = True) -> str:
    """A value of a measure as text.

    Examples
    --------
    >>> shown(CLASSIFICATION.measure, 91.66)
    '91.7 %'
    """
    if value is None:
        return number(None)
    text = significant(value) if measure.digits is None else number(value, measure.digits)
    return text + (measure.unit if unit else "")


def _listed(names: Mapping[str, int] | tuple[str, ...], most: int = 5) -> str:
    """Names in a sentence, with numbers of samples where they are known."""
    if isinstance(names, Mapping):
        texts = [f"{name!r} ({number(n)})" for name, n in names.items()]
    else:
        texts = list(map(repr, names))
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more
