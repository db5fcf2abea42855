"""What to do after a test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import oodzoo
from oodzoo.predictor.assessment.advice import next_steps
from oodzoo.predictor.assessment.result import Missed, Part, Promise
from oodzoo.predictor.assessment.testing import metric_interval
from oodzoo.tasks.diagnosis.classes import diagnose_classes

CLASSES = ["cat", "dog", "Cat"]
CONFIDENCE = "Do not take its confidence at its word here"


@pytest.fixture
def good(result: oodzoo.TestResult) -> oodzoo.TestResult:
    """A result that leaves nothing to do."""
    return replace(result, overall=confident(400, 0), promise=None)


def confident(right: int, wrong: int, sure: Any = 0.99) -> Part:
    """Cats, of which some are taken for dogs."""
    n = right + wrong
    first = np.broadcast_to(sure, n)
    probabilities = np.stack([first, 1 - first, np.zeros(n)], axis=1)
    probabilities[right:, :2] = probabilities[right:, 1::-1]
    y = np.zeros(n, np.int64)
    paths = [f"{at}.png" for at in range(n)]
    diagnosis = diagnose_classes(probabilities, y, CLASSES, paths=paths, domains="new")
    return Part(diagnosis, metric_interval("classification", probabilities.argmax(axis=1), y))


def titles(result: oodzoo.TestResult) -> list[str]:
    return [step.title for step in next_steps(result)]


def test_each_problem_has_its_step(good: oodzoo.TestResult) -> None:
    assert titles(good) == []
    below = Promise(99.0, (98.0, 100.0), {"tilted": "below", "chalk": "within"})
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"trained_on": ("chalk",)}, "Test on new domains", ""),
        ({"is_training_data": True}, "Test on new domains", ""),
        ({"unknown": {"Cat": 3}}, "Settle 1 unknown class", "'Cat': did you mean cat?"),
        ({"unreadable": (Missed("a", "b", "c"),)}, "Replace 1 unreadable file", ""),
        ({"promise": below}, "Train with images of 'tilted'", "--adapt"),
        ({"overall": confident(4, 0)}, "Test more images", ""),
        (
            {"overall": replace(good.overall, interval=None)},
            "Test more images",
            "There is no interval: one image, or images that all count alike",
        ),
        ({"overall": confident(400, 0, 0.6)}, CONFIDENCE, "It is 60.0 % sure on average, but 100"),
        (
            # the unsure ones are always right, of the others 60 %
            {"overall": confident(320, 80, np.repeat([0.6, 0.99], 200))},
            CONFIDENCE,
            "It is right on average, but 39.5 points off at a given confidence",
        ),
    ]
    for change, title, words in cases:
        *_, step = steps = next_steps(replace(good, **change))
        assert step.title == title
        assert words in step.text
        assert len(steps) == 1 or "39.5" in words
    assert "--adapt" not in next_steps(replace(good, promise=below, adapted=True))[0].text


def test_confusions_mistakes_and_confidence_are_named(good: oodzoo.TestResult) -> None:
    steps = next_steps(replace(good, overall=confident(700, 300)))
    assert [step.title for step in steps] == [
        "Tell cat from dog",
        "Look at the most confident mistakes",
        CONFIDENCE,
    ]
    texts = " ".join(step.text for step in steps)
    assert "300 of 1,000 images of cat are taken for dog" in texts
    assert "'700.png' is labelled cat, and predicted as dog with 99 %" in texts
    assert "99.0 % sure on average, and 70.0 % right" in texts
