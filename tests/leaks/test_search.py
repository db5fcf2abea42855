"""Pairs and blocks of a search for near-duplicates; few images do not reach the limits."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.leaks.data import planted
from tests.oracles import leaks as oracle

from oodzoo.store.leaks import search
from oodzoo.store.leaks.search import (
    FeatureSpace,
    PairPlan,
    PairSearch,
    PairTask,
    Sketch,
    list_samples,
    plan_pairs,
)
from oodzoo.store.leaks.similar import similar_images

# --- models and samples ----------------------------------------------------------------------


LABELS = st.lists(st.integers(-1, 3), min_size=2, max_size=30)


def pairs_of(plan: PairPlan) -> list[tuple[int, int]]:
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
    searched = PairSearch(found, samples, 0.1, 0.2)
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
    part = PairSearch(found, samples, -1, 0.2)  # rows are compared with columns
    part.run(PairPlan([PairTask(np.arange(25, 60), np.arange(0, 20))], "class"))
    pairs = [tuple(pair) for pair in part.across.places.tolist()]
    assert sorted(pairs) == [(i, j) for i in range(20) for j in range(25, 60)]
    assert not len(part.within.places)


# --- sketches ---------------------------------------------------------------------------------


class Drawn:
    """Unit rows as of several models: a decaying spectrum, and pairs of a given similarity."""

    width = 1500

    def __init__(self, n: int, planted: list[float], seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        scale = 1 / np.sqrt(1 + np.arange(self.width) / 40)
        scale[600:] *= 0.7
        rows = rng.normal(size=(n, self.width)) * scale
        for at, similarity in enumerate(planted):  # of which a third is alike in details only
            first, second = 2 * at, 2 * at + 1
            if at % 3 == 0:
                rows[[first, second], :400] = 0
            x = rows[first] / np.linalg.norm(rows[first])
            other = rows[second] - (rows[second] @ x) * x
            other /= np.linalg.norm(other)
            rows[first] = x
            rows[second] = similarity * x + np.sqrt(1 - similarity**2) * other
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        self.all = rows.astype(np.float32)

    def rows(self, positions: search.Positions) -> search.Features:
        return self.all[positions]


def samples_of(n: int) -> search.SampleColumns:
    groups = np.full(n, -1)
    groups[10:13] = 0
    names = [str(at) for at in range(n)]
    return search.SampleColumns(
        names, names, np.arange(n) // 2 % 3, np.zeros(n, np.intp), np.zeros(n, np.intp), groups,
        ("a", "b", "c"), ("x",),
    )  # fmt: skip


@pytest.mark.parametrize("low", [0.35, 0.42, 0.6])
def test_a_sketch_loses_no_pair(monkeypatch: pytest.MonkeyPatch, low: float) -> None:
    monkeypatch.setattr(search, "BLOCK", 500)
    just = [low + 1e-4] * 300
    above, below = np.linspace(low + 1e-3, 1, 200).tolist(), [low - 1e-3] * 100
    space: Any = Drawn(2200, [*just, *above, *below])
    samples = samples_of(2200)
    samples.domains[1:1200:4] = 2  # planted pairs within domains, and between them
    plan = plan_pairs(samples.strata, 1)
    sketch = Sketch(space.rows(np.arange(0, 2200, 2)), low)
    assert sketch.cost < 2 * space.width
    exact, by_sketch = (PairSearch(space, samples, low, 0.5, each) for each in (None, sketch))
    done: list[tuple[int, int]] = []
    exact.run(plan)
    by_sketch.run(plan, lambda *at: done.append(at))
    assert len(exact.across.places) + len(exact.within.places) >= 490
    for name in ("across", "within"):
        wanted, found = getattr(exact, name), getattr(by_sketch, name)
        assert set(map(tuple, found.places.tolist())) == set(map(tuple, wanted.places.tolist()))
        np.testing.assert_allclose(found.similarities, wanted.similarities, atol=1e-5)
    assert by_sketch.n_across == exact.n_across
    assert samples.probes.all()
    np.testing.assert_allclose(by_sketch.nearest, exact.nearest, atol=1e-5)
    assert done[-1] == (2200 * 2199 // 2, 2200 * 2199 // 2)


def test_sketches_are_bounds_of_similarities_at_the_threshold() -> None:
    space: Any = Drawn(4000, [0.35] * 1900)
    rows = space.all
    short = Sketch(rows[::4], 0.35).rows(rows)
    assert short.shape == (4000, 512)
    bounds = (short[0:3800:2] * short[1:3800:2]).sum(axis=1)
    similar = (rows[0:3800:2] * rows[1:3800:2]).sum(axis=1)
    assert (bounds - similar).min() > 0


def test_a_sketch_only_where_it_is_cheaper(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 12_000
    space: Any = Drawn(n, [])
    assert Sketch.if_cheaper(space, 3000, 0.5) is None  # soon done
    monkeypatch.setattr(search, "_SMALL", 0)
    assert Sketch.if_cheaper(space, 3000, 0.5) is None  # sketches and probes cost more
    found = Sketch.if_cheaper(space, n, 0.5)
    assert found is not None
    assert 512 <= found.cost < space.width
    assert Sketch.if_cheaper(space, n, 0.05) is None  # most pairs would be candidates
    space.width = 512
    assert Sketch.if_cheaper(space, n, 0.5) is None


def test_a_plan_counts_whole_rows_where_no_sketch_is_used() -> None:
    """Images without a label are compared by whole rows with those that have one."""
    labels = np.repeat(np.arange(-1, 9), 100)
    plan = plan_pairs(labels, 1, budget=60_000, between=100)
    cost = sum(t.pairs * (1 if t.columns is None else 100) for t in plan.tasks)
    assert plan.scope == "part"
    assert cost <= 60_000


def test_near_duplicates_by_sketch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = planted(per_domain=150, alike=0.5).store(tmp_path)
    expected = similar_images(store)
    made: list[Sketch] = []

    def always(space: FeatureSpace, n: int, low: float) -> Sketch:
        monkeypatch.setattr(search, "SKETCH", 128)
        made.append(Sketch(space.rows(np.arange(n)), low))
        return made[-1]

    monkeypatch.setattr(Sketch, "if_cheaper", always)
    assert similar_images(store) == expected
    assert len(made) == 1
    assert len(expected.across)
    assert len(expected.within)


def test_typical_neighbours_of_large_domains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "PROBES", 50)
    samples = samples_of(400)
    probes = samples.probes
    assert [int((probes & (samples.domains == d)).sum()) for d in range(3)] == [50, 50, 50]
    np.testing.assert_array_equal(probes, samples_of(400).probes)
