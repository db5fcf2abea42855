"""The result of a test: JSON, text, intervals, what was promised, and what to do next."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import oodzoo
from oodzoo.core.errors import InputError
from oodzoo.predictor.assessment import Measurement, Missed, Promise, next_steps, promise_of
from oodzoo.predictor.parts import Provenance
from oodzoo.tasks import CLASSIFICATION
from oodzoo.tasks.task import Z

# --- text and JSON -------------------------------------------------------------------------------


def test_a_result_is_restored_from_json(result: oodzoo.TestResult) -> None:
    document = json.loads(json.dumps(result.to_dict()))
    assert oodzoo.TestResult.from_dict(document) == result
    for key in ("accuracy", "balanced_accuracy", "per_class", "confusion"):  # the contract
        assert key in document
    assert document["accuracy"] == result.accuracy
    assert tuple(document["domains"]["tilted"]["interval"]) == result.domains["tilted"].interval
    assert document["promise"]["agrees"] in (True, False)
    each = [domain["accuracy"] for domain in document["domains"].values()]
    assert document["average"] == pytest.approx(sum(each) / 2)
    with pytest.raises(InputError, match="damaged"):
        oodzoo.TestResult.from_dict(document | {"confusion": [["x"]]})


def test_texts(result: oodzoo.TestResult) -> None:
    assert repr(result).endswith(f"accuracy {result.accuracy:.1f} % of 36 images, 2 domains)")
    assert len(repr(result)) < 200
    lines = str(result).splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["pencil", "tilted", "all"]
    assert "images of 2 domains are classified correctly (90 % interval" in str(result)
    html = result._repr_html_()
    for name in ("pencil", "tilted", "all", "within"):
        assert f">{name}</t" in html
    assert "<b>" not in replace(result, domains={"<b>": result.overall})._repr_html_()
    assert (result.trained_on, result.is_training_data) == ((), False)
    assert not any("trained on" in line for line in result.remarks())
    assert result.promise is not None
    assert result.promise.text in result.findings()
    without = replace(result, promise=None)
    assert not any("left-out" in line for line in without.findings())
    several = replace(result, task="multilabel", unknown={"ant": 2, "emu": 1})
    assert "left out here, with the number of images: 'ant' (2), 'emu' (1)." in several._unknown()
    assert "3 images" not in several._unknown()  # one image may have several labels


# --- intervals -----------------------------------------------------------------------------------


def test_the_interval_is_that_of_scipy() -> None:
    assert pytest.approx(stats.norm.ppf(0.95)) == Z
    found = stats.binomtest(37, 50).proportion_ci(0.9, method="wilson")
    guess = np.array([1] * 37 + [0] * 13)
    expected = (100 * found.low, 100 * found.high)
    assert CLASSIFICATION.interval(guess, np.ones(50)) == pytest.approx(expected)
    one = np.array([1.0])
    assert CLASSIFICATION.interval(one, one) == pytest.approx((26.99, 100), abs=0.01)


# --- what was promised ---------------------------------------------------------------------------

PROVENANCE = Provenance(
    ("day", "night"), 100, "", {}, 8, None, accuracy=90.0, accuracy_interval=(80.0, 95.0)
)
WITHIN = {f"d{at}": (84.0, 92.0) for at in range(9)}


def promised(**intervals: tuple[float, float]) -> Promise:
    found = promise_of(PROVENANCE, intervals, ["day"])
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("intervals", "agrees", "words"),
    [
        ({"dawn": (84, 92)}, True, "agrees: the new domain is within this interval."),
        ({"dawn": (84, 92), "dusk": (85, 90)}, True, "the 2 new domains are within this interval."),
        ({"dawn": (84, 92), "day": (0, 1)}, True, "the new domain is within this interval."),
        ({"day": (84, 92)}, None, "cannot be compared with it: it was trained on domains"),
        ({}, None, "cannot be compared with it: what was measured on its domains has no interval"),
        ({"a": (1, 2), "b": (1, 2)}, False, "'a', 'b' are below this interval."),
        (WITHIN | {"dusk": (60, 70)}, True, "of the 10 new domains, as many as one in ten may be"),
        (WITHIN | {"dusk": (60, 70), "dawn": (60, 70)}, False, "does not agree: 'dusk', 'dawn' ar"),
        ({"d0": (84, 92), "d1": (84, 92), "dusk": (60, 70)}, False, "does not agree: 'dusk' is"),
    ],
)
def test_whether_a_test_agrees(
    intervals: dict[str, tuple[float, float]], agrees: bool | None, words: str
) -> None:
    found = promised(**intervals)
    assert found.agrees is agrees
    assert found.text.startswith("When it was fitted, it reached 90.0 % on held-out domains, 80–95")
    assert words in found.text


def test_a_domain_is_outside_only_if_its_interval_is() -> None:
    found = promised(dawn=(70, 81), dusk=(60, 79.9), noon=(95.1, 99), day=(99, 100))
    expected = {"dawn": "within", "dusk": "below", "noon": "above", "day": "trained on"}
    assert found.verdicts == expected
    text = "does not agree: 'dusk' is below this interval, 'noon' is above this interval."
    assert text in found.text
    alone = promise_of(replace(PROVENANCE, accuracy_interval=None), {"dawn": (1.0, 2.0)}, [])
    assert alone is not None
    assert alone.agrees is None
    assert "that has no interval" in alone.text
    assert promise_of(replace(PROVENANCE, accuracy=None), {}, []) is None


CLASSES = ["cat", "dog", "Cat"]
CONFIDENCE = "Do not take its confidence at its word here"


@pytest.fixture
def good(result: oodzoo.TestResult) -> oodzoo.TestResult:
    """A result that leaves nothing to do."""
    return replace(result, overall=confident(400, 0), promise=None)


def confident(right: int, wrong: int, sure: Any = 0.99) -> Measurement:
    """Cats, of which some are taken for dogs."""
    n = right + wrong
    first = np.broadcast_to(sure, n)
    probabilities = np.stack([first, 1 - first, np.zeros(n)], axis=1)
    probabilities[right:, :2] = probabilities[right:, 1::-1]
    y = np.zeros(n, np.int64)
    paths = [f"{at}.png" for at in range(n)]
    diagnosis = CLASSIFICATION.diagnose(probabilities, y, CLASSES, paths=paths, domains="new")
    return Measurement(diagnosis, CLASSIFICATION.interval(probabilities, y))


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
