"""The result of a test: figures, whether they agree with what was promised, and what to do next."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from statistics import fmean
from typing import Any, Literal, NamedTuple, get_type_hints

import msgspec

from oodzoo.combining.pool import POOL
from oodzoo.core.errors import InputError
from oodzoo.core.io import structured
from oodzoo.core.tables import Table
from oodzoo.core.text import count, did_you_mean, number, significant, span
from oodzoo.data.files import ImageFile
from oodzoo.predictor.parts import Provenance
from oodzoo.tasks import Kind, require_kind, task_of
from oodzoo.tasks.classification import ClassDiagnosis, ClassFigures, Mistake, Reliability
from oodzoo.tasks.task import Measure

Verdict = Literal["within", "below", "above", "trained on"]


@dataclass(frozen=True)
class Promise:
    """The main metric on held-out domains, measured when the predictor was fitted.

    Attributes
    ----------
    value : float
        In percent, mean over the held-out domains.
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
            f"When it was fitted, it reached {number(self.value, 1)} % on held-out domains{about}."
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

    None if it records no accuracy on held-out domains.
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
class Measurement:
    """What was measured on the images of a domain, or on all.

    Attributes
    ----------
    diagnosis : ClassDiagnosis, NumberDiagnosis or LabelDiagnosis
    interval : tuple of float, optional
        90 % interval of the main metric, in percent, for other images of the same domains; see
        :meth:`oodzoo.tasks.Task.interval`. None for a single number or set
        of labels.
    """

    diagnosis: Any
    interval: tuple[float, float] | None

    def to_dict(self) -> dict[str, Any]:
        """Convert to a JSON document."""
        return {**self.diagnosis.to_dict(), "interval": self.interval and list(self.interval)}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], task: Kind) -> Measurement:
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
    overall : Measurement
        Measured on all samples.
    domains : dict of str to Measurement
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
        What was measured on held-out domains when the predictor was fitted, if it was.
    files : dict of str to ImageFile
        Where the images of the mistakes are, by path; not part of the document.
    """

    __test__ = False  # for pytest

    task: Kind
    data: str
    noun: str
    choice: str
    models: tuple[str, ...]
    overall: Measurement
    domains: dict[str, Measurement]
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
    def diagnosis(self) -> Any:
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
        images: int = self.diagnosis.images
        return images

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

    def value_of(self, measured: Measurement) -> float:
        """The main metric of a measurement, in percent."""
        value: float = getattr(measured.diagnosis, task_of(self.task).metric)
        return value

    def second_of(self, measured: Measurement) -> float:
        """The second metric of a measurement."""
        value: float = getattr(measured.diagnosis, task_of(self.task).second_metric)
        return value

    def findings(self) -> list[str]:
        """Summarise the result, one sentence per line."""
        lines = [self._headline(), *([self.promise.text] if self.promise else [])]
        if isinstance(self.diagnosis, ClassDiagnosis):
            found = self.diagnosis.reliability
            lines.append(
                f"Its confidence is {number(found.confidence, 1)} % on average, "
                f"{number(found.error, 1)} points off (expected calibration error)."
            )
        return [*lines, *self.remarks()]

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
            f"{', which is what is compared with held-out domains' if self.promise else ''}."
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
        plain = {name: msgspec.to_builtins(getattr(self, name)) for name in _plain_fields()}
        if self.promise is not None:
            plain["promise"]["agrees"] = self.promise.agrees
        return {
            "task": self.task,
            "metric": self.metric,
            **plain,
            **self.overall.to_dict(),
            "average": self.average,
            "domains": {name: each.to_dict() for name, each in self.domains.items()},
            "findings": self.findings(),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> TestResult:
        """Restore a result from :meth:`to_dict`."""
        plain = _plain_fields()
        if missing := [name for name in plain if name not in document]:
            raise InputError(f"the test is damaged: it has no {missing[0]!r}")
        task = require_kind(document["task"])
        domains = document["domains"].items()
        return cls(
            task=task,
            overall=Measurement.from_dict(document, task),
            domains={name: Measurement.from_dict(each, task) for name, each in domains},
            **{name: structured(document[name], kind, "the test") for name, kind in plain.items()},
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
        verdicts = {} if self.promise is None else self.promise.verdicts
        measured = [*self.domains.items()]
        if len(measured) > 1:
            measured.append(("all", self.overall))
        columns = [
            "domain",
            f"{self.noun}s",
            words.measure.heading,
            "90 % interval",
            words.second_measure.heading,
        ]
        rows = [
            [
                name,
                number(each.diagnosis.images),
                shown(words.measure, self.value_of(each), unit=False),
                each.interval_text(),
                shown(words.second_measure, self.second_of(each), unit=False),
            ]
            for name, each in measured
        ]
        if verdicts:
            columns.append("promise")
            for (name, each), row in zip(measured, rows, strict=True):
                row.append("" if each is self.overall else verdicts.get(name, ""))
        return columns, rows


def _plain_fields() -> dict[str, Any]:
    """The type of each field that is in the document as it is, whatever the task."""
    kinds = get_type_hints(TestResult)
    names = (field.name for field in fields(TestResult))
    return {
        name: kinds[name] for name in names if name not in ("task", "overall", "domains", "files")
    }


def shown(measure: Measure, value: float | None, *, unit: bool = True) -> str:
    """A value of a measure as text.

    Examples
    --------
    >>> from oodzoo.tasks import CLASSIFICATION
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


# --- what to do next -----------------------------------------------------------------------------

WIDE = 10.0
"""Points of an interval that are worth more samples."""
TOO_SURE = 5.0
"""Points of confidence above the accuracy that are worth a warning."""
OFF = 10.0
"""Points of calibration error that are worth a warning."""
SURE = 90.0
"""Confidence from which a mistake may be a wrong label."""


class NextStep(NamedTuple):
    """Something to do: a title, and why and how in a sentence or two."""

    title: str
    text: str


def next_steps(result: TestResult) -> list[NextStep]:
    """Return what to do, the most important first."""
    steps = [*_about_data(result), *_about_domains(result)]
    if isinstance(result.diagnosis, ClassDiagnosis):
        steps += _about_classes(result, result.diagnosis)
    noun = result.noun
    if result.interval is None:
        text = (
            f"There is no interval: one {noun}, or {noun}s that all count alike, do not tell how "
            "much others would differ."
        )
        steps.append(NextStep(f"Test more {noun}s", text))
    elif (width := result.interval[1] - result.interval[0]) > WIDE:
        text = (
            f"The 90 % interval is {number(width)} points wide; four times as many {noun}s halve "
            "it."
        )
        steps.append(NextStep(f"Test more {noun}s", text))
    return steps


def _about_data(result: TestResult) -> list[NextStep]:
    noun, steps = result.noun, []
    if result.is_training_data or result.trained_on:
        steps.append(
            NextStep(
                "Test on new domains",
                f"The predictor knows {'this data' if result.is_training_data else 'domains of'} "
                f"{'' if result.is_training_data else 'these names '}from its training. Labelled "
                f"{noun}s of a place, time or device that it has not seen tell more.",
            )
        )
    if result.unknown and isinstance(result.diagnosis, ClassDiagnosis):
        known = [name for name in result.diagnosis.classes if name not in result.unknown]
        hints = [
            f"{name!r}: {hint}" for name in result.unknown if (hint := did_you_mean(name, known))
        ]
        text = (
            f"The predictor cannot predict them. Leave their {noun}s out, or train with such "
            f"{noun}s: a new predictor knows the classes of its training data."
        )
        if hints:
            text = (
                f"If they are only spelt differently, rename them ({' '.join(hints[:3])}). {text}"
            )
        steps.append(
            NextStep(
                f"Settle {count(len(result.unknown), 'unknown class', 'unknown classes')}", text
            )
        )
    if result.unreadable:
        steps.append(
            NextStep(
                f"Replace {count(len(result.unreadable), 'unreadable file')}",
                "They are listed with the reason, and in no figure.",
            )
        )
    return steps


def _about_domains(result: TestResult) -> list[NextStep]:
    verdicts = {} if result.promise is None else result.promise.new
    below = [repr(name) for name, each in verdicts.items() if each == "below"]
    if not below:
        return []
    text = (
        "What it was promised to reach holds for domains like those of the training, and these are "
        f"different. Labelled {result.noun}s of them, as one more domain, help most: fit again "
        "with them."
    )
    if result.choice == POOL.name and not result.adapted:
        text += " Without labels, adapting may help: test again with --adapt (adapt=True)."
    return [NextStep(f"Train with {result.noun}s of {', '.join(below)}", text)]


def _about_classes(result: TestResult, found: ClassDiagnosis) -> list[NextStep]:
    noun, steps = result.noun, []
    figures = found.per_class
    for label, predicted, images in found.confusions:
        share = 100 * images / figures[label].images
        if label not in result.unknown and images >= 3 and share >= 10:
            steps.append(
                NextStep(
                    f"Tell {label} from {predicted}",
                    f"{number(images)} of {count(figures[label].images, noun)} of {label} are "
                    f"taken for {predicted}: the most frequent confusion. More training {noun}s of "
                    f"{label} that look like these help.",
                )
            )
            break
    sure = [each for each in found.mistakes if each.confidence >= SURE]
    if sure:
        steps.append(
            NextStep(
                "Look at the most confident mistakes",
                f"{sure[0].path!r} is labelled {sure[0].label}, and predicted as "
                f"{sure[0].predicted} with {number(sure[0].confidence)} %. Where the label is "
                "wrong, the predictor is better than measured.",
            )
        )
    if about := _about_confidence(result, found):
        steps.append(NextStep("Do not take its confidence at its word here", about))
    return steps


def _about_confidence(result: TestResult, found: ClassDiagnosis) -> str:
    """How far its confidence is off, and what follows; empty if it is not."""
    confidence, error = found.reliability.confidence, found.reliability.error
    gap = confidence - found.accuracy
    if gap < TOO_SURE and error < OFF:
        return ""
    advice = f"A limit for its confidence must be chosen on {result.noun}s like these."
    if abs(gap) < TOO_SURE:
        return (
            f"It is right on average, but {number(error, 1)} points off at a given confidence "
            f"(calibration error). {advice}"
        )
    than = "and" if gap > 0 else "but"
    return (
        f"It is {number(confidence, 1)} % sure on average, {than} {number(found.accuracy, 1)} % "
        f"right. {advice}"
    )
