from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles.leaks import task_pairs

from oodzoo.errors import InputError
from oodzoo.leaks.planning import Plan, plan_pairs

LABELS = st.lists(st.integers(-1, 3), min_size=2, max_size=30)


def pairs_of(plan: Plan) -> list[tuple[int, int]]:
    """The pairs of all tasks; one that is compared twice occurs twice."""
    found: list[tuple[int, int]] = []
    for task in plan.tasks:
        columns = None if task.columns is None else task.columns.tolist()
        pairs = task_pairs(task.rows.tolist(), columns)
        assert len(pairs) == task.pairs
        found += pairs
    return found


@given(LABELS)
def test_all_pairs_are_compared_once(labels: list[int]) -> None:
    plan = plan_pairs(np.array(labels), 10)
    assert plan.scope == "all"
    assert sorted(pairs_of(plan)) == list(combinations(range(len(labels)), 2))


@given(LABELS)
def test_pairs_of_a_class_and_those_without_a_label_are_compared_once(labels: list[int]) -> None:
    plan = plan_pairs(np.array(labels), 10, "class")
    wanted = [
        (i, j)
        for i, j in combinations(range(len(labels)), 2)
        if labels[i] == labels[j] or -1 in (labels[i], labels[j])
    ]
    assert plan.scope == "class"
    assert sorted(pairs_of(plan)) == wanted


@given(LABELS, st.integers(1, 400))
def test_a_budget_is_not_exceeded(labels: list[int], most: int) -> None:
    plan = plan_pairs(np.array(labels), 10, budget=10 * most)
    found = pairs_of(plan)
    assert len(set(found)) == len(found) == plan.pairs <= most
    n_all = len(labels) * (len(labels) - 1) // 2
    of_a_class = pairs_of(plan_pairs(np.array(labels), 10, "class"))
    expected = "all" if n_all <= most else "class" if len(of_a_class) <= most else "part"
    assert plan.scope == expected
    if expected == "part":
        assert set(found) <= set(of_a_class)


def test_a_part_has_whole_classes_as_far_as_possible() -> None:
    labels = np.repeat(np.arange(10), 20)
    plan = plan_pairs(labels, 1, budget=5 * 190 + 50)
    sizes = [len(task.rows) for task in plan.tasks]
    assert sizes[:5] == [20] * 5
    assert len(sizes) == 6
    assert 8 <= sizes[5] <= 11


def test_other_pairs_are_rejected() -> None:
    with pytest.raises(InputError, match="'some'; expected auto, all, class"):
        plan_pairs(np.zeros(3, int), 1, "some")
