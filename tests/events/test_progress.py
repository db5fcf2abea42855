"""The time left: with a simulated clock, and with durations that were recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.events.heard import Heard

from oodzoo.core.events.progress import TimeLeft, current_part, shares_of, tracked
from oodzoo.events import Stage

LOOKS = 300
"""How often somebody looks at the time left."""


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def looks(
    durations: Sequence[float], weights: Sequence[float], steps: int = 1
) -> Iterator[tuple[float, float]]:
    """The real time left, and the estimated one if there is one, at many times.

    Each task reports `steps` times how far it is.
    """
    clock = Clock()
    left = TimeLeft(clock)
    whole, start, looked = sum(durations), 0.0, 0.0
    ends = shares_of(weights)
    for number, duration in enumerate(durations):
        before = ends[number - 1] if number else 0.0
        for step in range(1, steps + 1):
            at = start + duration * step / steps
            while looked + whole / LOOKS < at:
                looked += whole / LOOKS
                clock.now = 100.0 + looked
                if left.seconds is not None:
                    yield whole - looked, left.seconds
            clock.now = 100.0 + at
            left.reach(before + (ends[number] - before) * step / steps)
        start += duration
    assert left.seconds == 0.0


def worst_rise(found: Sequence[tuple[float, float]]) -> float:
    """The largest factor by which an estimate is longer than an earlier one, less a second."""
    lowest, worst = float("inf"), 0.0
    for _, left in found:
        worst = max(worst, (left - 1.0) / lowest)
        lowest = min(lowest, left)
    return worst


costs = st.lists(st.floats(0.2, 300.0), min_size=2, max_size=40)


@settings(deadline=None, max_examples=50)
@given(costs, st.integers(1, 20), st.floats(0.1, 10.0))
def test_with_known_costs_it_does_not_rise_and_is_never_zero(
    weights: list[float], steps: int, speed: float
) -> None:
    found = list(looks([weight * speed for weight in weights], weights, steps))
    assert all(left >= 1.0 for _, left in found)
    assert worst_rise(found) <= 1.1
    if steps > 1:
        assert all(left <= 1.3 * truth + 3.0 for truth, left in found)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(5.0, 50.0), min_size=4, max_size=30), st.data())
def test_costs_that_are_known_roughly(weights: list[float], data: st.DataObject) -> None:
    noise = st.lists(st.floats(0.9, 1.1), min_size=len(weights), max_size=len(weights))
    durations = [w * factor for w, factor in zip(weights, data.draw(noise), strict=True)]
    found = list(looks(durations, weights, 10))
    assert worst_rise(found) <= 1.35


DIGITS = [5.8, 4.3, 6.0, *[8.0] * 6, 11.7]
"""Expected costs of the steps of an evaluation: 19 narrow models, 600 images, 6 domains."""

WIDE = [11.9, 15.5, 65.7, *[87.6] * 4]
"""The same for 6 wide models, 2,000 images, 4 domains, without what would change the result."""


@pytest.mark.parametrize(
    ("costs", "recorded"),
    [
        (DIGITS, [6.0, 4.6, 7.8, 7.6, 7.8, 6.5, 7.4, 5.7, 4.3, 6.8]),
        (DIGITS, [16.5, 6.6, 11.5, 15.1, 16.5, 13.9, 14.8, 12.6, 9.1, 33.6]),  # a busy machine
        (WIDE, [11.3, 14.6, 59.0, 89.8, 81.0, 78.0, 80.0]),
    ],
)
def test_recorded_durations(costs: list[float], recorded: list[float]) -> None:
    found = list(looks(recorded, costs, 10))
    errors = [abs(left - truth) for truth, left in found]
    assert sum(errors) / len(errors) < 0.2 * sum(recorded)
    assert worst_rise(found) <= 1.8
    assert all(left >= 1.0 for _, left in found)
    assert len(found) > 0.9 * LOOKS


@pytest.mark.parametrize("steps", [1, 10])
def test_what_was_there_before_does_not_count(steps: int) -> None:
    found = list(looks([0.01] * 5 + [60.0] * 5, [1.0] * 10, steps))
    late = [(truth, left) for truth, left in found if truth < 235.0]
    assert late
    assert all(abs(left - truth) < 0.1 * truth + 61.0 for truth, left in late)
    assert worst_rise(found) <= 1.1


def test_of_a_part_that_is_overdue_nothing_is_known() -> None:
    clock = Clock()
    left = TimeLeft(clock)
    assert left.seconds is None
    clock.now += 1.0
    left.reach(0.005)
    assert left.seconds is None  # too early
    clock.now += 99.0
    left.reach(0.5)
    assert left.seconds == 100.0
    clock.now += 90.0
    assert left.seconds == 10.0
    clock.now += 12.0
    assert left.seconds == 1.0
    clock.now += 90.0
    assert left.seconds is None
    left.reach(0.75)
    assert left.seconds is not None
    assert round(left.seconds) == 128
    left.reach(1.0)
    assert left.seconds == 0.0


def test_a_loop_that_fails_leaves_nothing_behind() -> None:
    heard = Heard()
    failed: list[BaseException] = []
    try:
        with Stage(heard, "ranking") as stage:
            for _ in stage.tracked("ab"):
                for _ in tracked("cd"):
                    raise ValueError
    except ValueError as error:
        failed.append(error)  # with the frames of the loops
    with Stage(None, "other") as other:
        for _ in other.tracked("ab"):
            failed.clear()
            assert current_part.get() is not None
    assert current_part.get() is None
    assert heard.outline() == [("ranking", "start"), ("ranking", "failed")]


def test_a_stage_within_a_part_moves_the_stage_outside() -> None:
    heard = Heard()
    with Stage(heard, "predictor") as stage:
        phase = stage.phases({"evaluation": 3.0, "choice": 1.0})
        with phase("evaluation"), Stage(None, "evaluation") as inner:
            for _ in inner.tracked("abc"):
                pass
        stage.say("evaluated")
    shares = [facts.get("share", 0.0) for _, facts in heard.of("progress")]
    assert shares == sorted(shares)
    assert shares[-1] == 0.75
    assert heard.steps()[-1] == (1, 2)
