from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.leaks.data import planted
from tests.oracles import leaks as oracle

from oodzoo.leaks import search
from oodzoo.leaks.planning import Plan, Task, plan_pairs
from oodzoo.leaks.search import Search, TopPairs
from oodzoo.leaks.space import FeatureSpace, list_samples


@pytest.mark.parametrize("block", [7, 64, 1000])
@pytest.mark.parametrize("memory", [0, 1 << 30])
def test_blocks_do_not_change_what_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, memory: int
) -> None:
    monkeypatch.setattr(search, "_MEMORY", memory)
    drawn = planted(per_domain=20)
    store = drawn.store(tmp_path)
    samples = list_samples(store, store.models)
    space = FeatureSpace(store, store.models, samples)
    searched = Search(space, samples, 0.1, 0.2, block)
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


def test_rows_are_compared_with_columns(tmp_path: Path) -> None:
    drawn = planted(per_domain=20)
    store = drawn.store(tmp_path)
    samples = list_samples(store, store.models)
    space = FeatureSpace(store, store.models, samples)
    part = Search(space, samples, -1, 0.2, block=9)
    part.run(Plan([Task(np.arange(25, 60), np.arange(0, 20))], "class"))
    wanted = {(i, j) for j in range(25, 60) for i in range(20)}
    assert set(map(tuple, part.across.places.tolist())) == wanted
    assert len(part.across.places) == len(wanted)
    assert not len(part.within.places)


def test_the_most_similar_pairs_are_kept() -> None:
    rng = np.random.default_rng(0)
    top = TopPairs(most=5)
    values = rng.permutation(40).astype(np.float32)
    for at in range(0, 40, 8):
        rows = np.arange(at, at + 8)
        top.add(values[rows], rows + 100, rows)
    assert top.similarities.tolist() == [39, 38, 37, 36, 35]
    assert top.places.tolist() == [[i, i + 100] for i in np.argsort(-values)[:5]]
