"""What to do after a test."""

from __future__ import annotations

from typing import NamedTuple

from oodzoo.core.text import count, did_you_mean, number
from oodzoo.predictor.assessment.result import TestResult
from oodzoo.tasks.classification import ClassDiagnosis

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
    return [*steps, *_about_number(result)]


def _about_number(result: TestResult) -> list[NextStep]:
    noun = result.noun
    if result.interval is None:
        text = (
            f"There is no interval: one {noun}, or {noun}s that all count alike, do not tell how "
            "much others would differ."
        )
        return [NextStep(f"Test more {noun}s", text)]
    low, high = result.interval
    if high - low <= WIDE:
        return []
    text = (
        f"The 90 % interval is {number(high - low)} points wide; four times as many {noun}s halve "
        "it."
    )
    return [NextStep(f"Test more {noun}s", text)]


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
    if result.choice == "pool" and not result.adapted:
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
