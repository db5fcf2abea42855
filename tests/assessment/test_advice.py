"""What to do after a test."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import oodzoo
from oodzoo.predictor.assessment.advice import next_steps
from oodzoo.predictor.assessment.result import Missed, Part, Promise
from oodzoo.predictor.assessment.testing import metric_interval
from oodzoo.tasks.diagnosis.classes import diagnose_classes

CLASSES = ["cat", "dog", "Cat"]


@pytest.fixture
def good(result: oodzoo.TestResult) -> oodzoo.TestResult:
    """A result that leaves nothing to do."""
    part = confident(right=400, wrong=0)
    return replace(result, overall=part, promise=None)


def confident(right: int, wrong: int, sure: float = 0.99) -> Part:
    """Cats, of which some are taken for dogs."""
    n = right + wrong
    probabilities = np.tile([sure, 1 - sure, 0.0], (n, 1))
    probabilities[right:, :2] = probabilities[right:, 1::-1]
    y = np.zeros(n, np.int64)
    diagnosis = diagnose_classes(
        probabilities, y, CLASSES, paths=[f"{at}.png" for at in range(n)], domains="new"
    )
    return Part(diagnosis, metric_interval("classification", probabilities.argmax(axis=1), y))


def titles(result: oodzoo.TestResult) -> list[str]:
    return [step.title for step in next_steps(result)]


def test_a_good_result_leaves_nothing_to_do(good: oodzoo.TestResult) -> None:
    assert titles(good) == []


def test_each_problem_has_its_step(good: oodzoo.TestResult) -> None:
    below = Promise(99.0, (98.0, 100.0), {"tilted": "below", "chalk": "within"})
    cases: list[tuple[dict[str, object], str]] = [
        ({"trained_on": ("chalk",)}, "Test on new domains"),
        ({"is_training_data": True}, "Test on new domains"),
        ({"unknown": {"Cat": 3}}, "Settle 1 unknown class"),
        ({"unreadable": (Missed("a", "b", "c"),)}, "Replace 1 unreadable file"),
        ({"promise": below}, "Train with images of 'tilted'"),
        ({"overall": confident(4, 0)}, "Test more images"),
    ]
    for change, title in cases:
        assert titles(replace(good, **change)) == [title]  # type: ignore[arg-type]
    step = next_steps(replace(good, unknown={"Cat": 3}))[0]
    assert "'Cat': did you mean cat?" in step.text
    assert "--adapt" in next_steps(replace(good, promise=below))[0].text
    assert "--adapt" not in next_steps(replace(good, promise=below, adapted=True))[0].text
    (alike,) = next_steps(replace(good, overall=replace(good.overall, interval=None)))
    assert alike.text.startswith("There is no interval: one image, or images that all count alike")


def test_confusions_mistakes_and_confidence_are_named(good: oodzoo.TestResult) -> None:
    bad = replace(good, overall=confident(700, 300))
    assert titles(bad) == [
        "Tell cat from dog",
        "Look at the most confident mistakes",
        "Do not take its confidence at its word here",
    ]
    texts = " ".join(step.text for step in next_steps(bad))
    assert "300 of 1,000 images of cat are taken for dog" in texts
    assert "'700.png' is labelled cat, and predicted as dog with 99 %" in texts
    assert "99.0 % sure on average, and 70.0 % right" in texts


def test_confidence_that_is_too_low_is_named(good: oodzoo.TestResult) -> None:
    unsure = replace(good, overall=confident(400, 0, sure=0.6))
    (step,) = next_steps(unsure)
    assert step.title == "Do not take its confidence at its word here"
    assert step.text.startswith("It is 60.0 % sure on average, but 100.0 % right.")


def test_confidence_that_is_right_only_on_average_is_named(good: oodzoo.TestResult) -> None:
    y = np.zeros(400, np.int64)
    right = np.repeat([0.6, 0.99], 200)  # the unsure ones are always right, of the others 60 %
    probabilities = np.stack([right, 1 - right, np.zeros(400)], axis=1)
    probabilities[320:, :2] = probabilities[320:, 1::-1]
    found = diagnose_classes(probabilities, y, CLASSES, paths=["x"] * 400, domains="new")
    part = Part(found, metric_interval("classification", probabilities.argmax(axis=1), y))
    text = next_steps(replace(good, overall=part))[-1].text
    assert text.startswith("It is right on average, but 39.5 points off at a given confidence")
