"""Pairs and blocks of a search for near-duplicates; few images do not reach the limits."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.leaks.data import planted
from tests.oracles import leaks as oracle

from oodzoo.store.leaks import search
from oodzoo.store.leaks.search import FeatureSpace, Plan, Search, Task, list_samples, plan_pairs

# --- models and samples ----------------------------------------------------------------------


LABELS = st.lists(st.integers(-1, 3), min_size=2, max_size=30)


def pairs_of(plan: Plan) -> list[tuple[int, int]]:
    """The pairs of all tasks; one that is compared twice occurs twice."""
    found: list[tuple[int, int]] = []
    for task in plan.tasks:
        columns = None if task.columns is None else task.columns.tolist()
        pairs = oracle.task_pairs(task.rows.tolist(), columns)
        assert len(pairs) == task.pairs
        found += pairs
    return found


@given(LABELS, st.integers(1, 400))
def test_pairs_are_compared_once_within_the_budget(labels: list[int], most: int) -> None:
    """All pairs; those of a class and those without a label; or a random part of the latter."""
    n = len(labels)
    everything, of_a_class, part = (
        plan_pairs(np.array(labels), 10),
        plan_pairs(np.array(labels), 10, "class"),
        plan_pairs(np.array(labels), 10, budget=10 * most),
    )
    assert (everything.scope, of_a_class.scope) == ("all", "class")
    assert sorted(pairs_of(everything)) == list(combinations(range(n), 2))
    wanted = [
        (i, j)
        for i, j in combinations(range(n), 2)
        if labels[i] == labels[j] or -1 in (labels[i], labels[j])
    ]
    assert sorted(pairs_of(of_a_class)) == wanted
    found = pairs_of(part)
    assert len(set(found)) == len(found) == part.pairs <= most
    expected = "all" if n * (n - 1) // 2 <= most else "class" if len(wanted) <= most else "part"
    assert part.scope == expected
    assert expected == "all" or set(found) <= set(wanted)


@pytest.mark.parametrize(("block", "memory"), [(7, 0), (64, 1 << 30), (1000, 0)])
def test_blocks_do_not_change_what_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, memory: int
) -> None:
    monkeypatch.setattr(search, "_MEMORY", memory)
    monkeypatch.setattr(search, "BLOCK", block)
    drawn = planted(per_domain=20)
    store = drawn.store(tmp_path)
    samples = list_samples(store, store.models)
    found = FeatureSpace(store, store.models, samples)
    searched = Search(found, samples, 0.1, 0.2)
    seen: list[tuple[int, int]] = []
    searched.run(plan_pairs(samples.labels, 1), lambda *done: seen.append(done))
    similar = np.full((60, 60), -1.0)
    for (i, j), value in oracle.similarities(list(drawn.models.values())).items():
        similar[i, j] = similar[j, i] = value
    domains = samples.domains
    for top, same in ((searched.across, False), (searched.within, True)):
        wanted = [
            (i, j)
            for i in range(60)
            for j in range(i + 1, 60)
            if (domains[i] == domains[j]) == same and similar[i, j] >= 0.1
        ]
        assert sorted(map(tuple, top.places.tolist())) == wanted
        assert (np.diff(top.similarities) <= 0).all()
        expected = [similar[i, j] for i, j in top.places]
        np.testing.assert_allclose(top.similarities, expected, atol=1e-4)
    assert searched.n_across == (searched.across.similarities >= 0.2).sum()
    same = (domains[:, None] == domains) & ~np.eye(60, dtype=bool)
    np.testing.assert_allclose(searched.nearest, np.where(same, similar, -1).max(axis=1), atol=1e-4)
    assert seen[-1] == (60 * 59 // 2, 60 * 59 // 2)
    part = Search(found, samples, -1, 0.2)  # rows are compared with columns
    part.run(Plan([Task(np.arange(25, 60), np.arange(0, 20))], "class"))
    pairs = [tuple(pair) for pair in part.across.places.tolist()]
    assert sorted(pairs) == [(i, j) for i in range(20) for j in range(25, 60)]
    assert not len(part.within.places)
