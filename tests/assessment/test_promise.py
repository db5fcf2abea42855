"""What was promised, and whether a test agrees."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oodzoo.assessment.result import Promise, promise_of
from oodzoo.predictor.parts import Provenance

PROVENANCE = Provenance(
    ("day", "night"), 100, "", {}, 8, None, accuracy=90.0, accuracy_interval=(80.0, 95.0)
)


def promised(**intervals: tuple[float, float]) -> Promise:
    found = promise_of(PROVENANCE, intervals, ["day"])
    assert found is not None
    return found


def test_a_domain_is_outside_only_if_its_interval_is() -> None:
    found = promised(dawn=(70, 81), dusk=(60, 79.9), noon=(95.1, 99), day=(99, 100))
    assert found.verdicts == {
        "dawn": "within",
        "dusk": "below",
        "noon": "above",
        "day": "trained on",
    }
    assert found.agrees is False
    assert (
        "does not agree: 'dusk' is below this interval, 'noon' is above this interval."
        in found.text
    )


@pytest.mark.parametrize(
    ("intervals", "agrees", "words"),
    [
        ({"dawn": (84, 92)}, True, "agrees: the new domain is within this interval."),
        ({"dawn": (84, 92), "dusk": (85, 90)}, True, "the 2 new domains are within this interval."),
        ({"dawn": (84, 92), "day": (0, 1)}, True, "the new domain is within this interval."),
        ({"day": (84, 92)}, None, "cannot be compared with it: it was trained on domains"),
        ({}, None, "cannot be compared with it: what was measured on its domains has no interval"),
        ({"a": (1, 2), "b": (1, 2)}, False, "'a', 'b' are below this interval."),
    ],
)
def test_the_text_says_whether_they_agree(
    intervals: dict[str, tuple[float, float]], agrees: bool | None, words: str
) -> None:
    found = promised(**intervals)
    assert found.agrees is agrees
    assert found.text.startswith("When it was fitted, it reached 90.0 % on left-out domains, 80–95")
    assert words in found.text


def test_a_tenth_of_many_domains_may_be_outside() -> None:
    """The interval is one of 90 % for a single domain."""
    within = {f"d{at}": (84.0, 92.0) for at in range(9)}
    found = promised(**within, dusk=(60.0, 70.0))
    assert found.verdicts["dusk"] == "below"
    assert found.agrees is True
    assert found.text.endswith(
        "This test agrees: of the 10 new domains, as many as one in ten may be outside; 'dusk' is "
        "below this interval."
    )
    assert promised(**within, dusk=(60.0, 70.0), dawn=(60.0, 70.0)).agrees is False
    few = {name: within[name] for name in ("d0", "d1")}
    assert promised(**few, dusk=(60.0, 70.0)).agrees is False


def test_without_an_interval_nothing_is_compared() -> None:
    found = promise_of(replace(PROVENANCE, accuracy_interval=None), {"dawn": (1.0, 2.0)}, [])
    assert found is not None
    assert found.agrees is None
    assert "that has no interval" in found.text
    assert promise_of(replace(PROVENANCE, accuracy=None), {}, []) is None
