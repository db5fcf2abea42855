"""Which images, models and pairs are compared, and what a search in blocks finds."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.leaks.data import extract_copies, planted
from tests.oracles import leaks as oracle

from oodzoo.core.errors import InputError
from oodzoo.store.feature_store import FeatureStore
from oodzoo.store.leaks import search, space
from oodzoo.store.leaks.search import Plan, Search, Task, TopPairs, plan_pairs
from oodzoo.store.leaks.space import FeatureSpace, Whitening, choose_models, list_samples

# --- whitened features -----------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d"), [(40, 6), (12, 30), (2, 3)])
@pytest.mark.parametrize("scale", [1e-3, 1, 1e4])
def test_inner_products_are_cosines_in_the_metric_of_the_data(n: int, d: int, scale: float) -> None:
    """Shift, scale and rotation do not matter."""
    rng = np.random.default_rng(n)
    features = scale * (rng.normal(size=(n, d)) * rng.uniform(0.1, 5, d) + 3)
    rows = Whitening.fit(features).unit_rows(features)
    found = rows @ rows.T
    for (i, j), expected in oracle.similarities([features]).items():
        assert found[i, j] == pytest.approx(expected, abs=2e-4)
    turned = 3 * features @ np.linalg.qr(rng.normal(size=(d, d)))[0] + rng.normal(size=d)
    other = Whitening.fit(turned).unit_rows(turned)
    np.testing.assert_allclose(other @ other.T, found, atol=2e-4)


def test_what_all_images_share_does_not_make_them_similar() -> None:
    rng = np.random.default_rng(2)
    features = rng.normal(size=(60, 8))
    features[:, 0] = 100
    features[:30, 1] += 30  # a class
    cosines = features @ features.T / np.outer(*[np.linalg.norm(features, axis=1)] * 2)
    rows = Whitening.fit(features).unit_rows(features)
    off = ~np.eye(60, dtype=bool)
    assert np.median(cosines[off]) > 0.9
    assert abs(np.median((rows @ rows.T)[off])) < 0.1
    constant = np.full((5, 3), 7.0)
    assert not Whitening.fit(constant).unit_rows(constant).any()


def test_of_many_features_some_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "WIDEST", 4)
    features = np.random.default_rng(3).normal(size=(20, 10))
    fitted = Whitening.fit(features)
    assert fitted.columns.tolist() == [0, 3, 6, 9]
    expected = Whitening.fit(features[:, ::3]).unit_rows(features[:, ::3])
    np.testing.assert_allclose(fitted.unit_rows(features), expected)


# --- models and samples ----------------------------------------------------------------------


def test_models_are_spread_from_narrow_to_wide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = planted(per_domain=10)
    rng = np.random.default_rng(0)
    drawn.models = {f"m{width:02d}": rng.normal(size=(30, width)) for width in range(2, 13)}
    drawn.groups[3] = drawn.groups[4] = "burst"
    drawn.groups[5] = "other"
    store = drawn.store(tmp_path)
    assert len(choose_models(store)) == space.MODELS
    for most, expected in ((3, ("m02", "m07", "m12")), (1, ("m02",)), (100, store.models)):
        monkeypatch.setattr(space, "MODELS", most)
        assert choose_models(store) == expected
    groups = list_samples(store, store.models).groups
    assert groups[3] == groups[4] >= 0
    assert groups[5] not in (-1, groups[3])
    assert (groups[6:] == -1).all()


def test_noise_is_that_of_pairs_of_different_domains(tmp_path: Path) -> None:
    """Of one domain, that of all pairs."""
    drawn = planted()
    store = drawn.store(tmp_path)
    found = FeatureSpace(store, store.models, list_samples(store, store.models))
    across = [
        abs(value)
        for (i, j), value in oracle.similarities(list(drawn.models.values())).items()
        if drawn.domains[i] != drawn.domains[j]
    ]
    assert found.noise == pytest.approx(1.4826 * np.median(across), abs=1e-4)
    assert found.width == 300
    assert np.linalg.norm(found.rows(np.arange(5)), axis=1) == pytest.approx(1)
    samples = list_samples(store, store.models, set(store.images("ink")))
    assert len(samples) == 40
    assert 0 < FeatureSpace(store, store.models, samples).noise < space.USELESS


def test_samples_have_their_columns(tmp_path: Path) -> None:
    store = FeatureStore(extract_copies(tmp_path) / "store")
    samples = list_samples(store, store.models)
    assert samples.domain_names == ("chalk", "marker", "paper", "target")
    at = samples.paths.index("other.jpg")
    assert samples.place(at) == ("other.jpg", "target", None)
    at = samples.paths.index("paper/1/exact.png")
    assert samples.place(at) == ("paper/1/exact.png", "paper", "1")
    assert samples.images.count(samples.images[at]) == 2
    assert (samples.groups == -1).all()


# --- pairs -----------------------------------------------------------------------------------

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


def test_a_part_has_whole_classes_as_far_as_possible() -> None:
    plan = plan_pairs(np.repeat(np.arange(10), 20), 1, budget=5 * 190 + 50)
    sizes = [len(task.rows) for task in plan.tasks]
    assert sizes[:5] == [20] * 5
    assert len(sizes) == 6
    assert 8 <= sizes[5] <= 11
    with pytest.raises(InputError, match="'some'; expected auto, all, class"):
        plan_pairs(np.zeros(3, int), 1, "some")


# --- the search ------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [7, 64, 1000])
@pytest.mark.parametrize("memory", [0, 1 << 30])
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


def test_the_most_similar_pairs_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "KEPT", 5)
    top = TopPairs()
    values = np.random.default_rng(0).permutation(40).astype(np.float32)
    for at in range(0, 40, 8):
        rows = np.arange(at, at + 8)
        top.add(values[rows], rows + 100, rows)
    assert top.similarities.tolist() == [39, 38, 37, 36, 35]
    assert top.places.tolist() == [[i, i + 100] for i in np.argsort(-values)[:5]]
