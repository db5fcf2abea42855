"""Numbers in each domain, against literal counting."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oodzoo.data.listing import Sample
from oodzoo.data.summary_rows import overlap, spreads
from oodzoo.task import Task

numbers = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20)


def quantile(values: list[float], share: float) -> float:
    """The linear interpolation between order statistics."""
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


@given(numbers, numbers)
def test_overlap_is_that_of_the_definition(values: list[float], others: list[float]) -> None:
    low, high = quantile(others, 0.05), quantile(others, 0.95)
    tolerance = 1e-9 * max(map(abs, others))
    surely = sum(low + tolerance <= value <= high - tolerance for value in values)
    perhaps = sum(low - tolerance <= value <= high + tolerance for value in values)
    found = overlap(np.array(values), np.array(others))
    assert found is not None
    assert 100 * surely / len(values) - 1e-9 <= found <= 100 * perhaps / len(values) + 1e-9


@given(numbers, numbers)
def test_spreads_of_two_domains(day: list[float], night: list[float]) -> None:
    task = Task("regression", ("age", "twice"))
    samples = [
        Sample(str(at), domain, task.encode([value, 2 * value]))
        for domain, values in (("day", day), ("night", night))
        for at, value in enumerate(values)
    ]
    parts = {"day": slice(0, len(day)), "night": slice(len(day), len(samples))}
    by_domain, total = spreads(task, samples, parts)
    for values, found in ((day, by_domain["day"]), (night, by_domain["night"])):
        age = found["age"]
        assert (age.smallest, age.largest) == (min(values), max(values))
        assert age.mean == pytest.approx(statistics.fmean(values), abs=1e-6)
        assert age.deviation == pytest.approx(statistics.pstdev(values), rel=1e-6, abs=1e-6)
        assert found["twice"].largest == 2 * age.largest
    assert by_domain["day"]["age"].overlap == overlap(np.array(day), np.array(night))
    assert total["age"].smallest == min(*day, *night)
    assert total["age"].overlap is None


def test_one_domain_has_nothing_to_overlap_with() -> None:
    assert overlap(np.array([1.0]), np.array([])) is None
