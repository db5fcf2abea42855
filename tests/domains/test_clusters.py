"""Clusters: their number, groups, small ones and bad input."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score
from tests.oracles import domains as oracle

from oodzoo.data.proposals import MIN_IMAGES
from oodzoo.domains.clusters import Floats, choose, cluster, confined_classes, stability_of
from oodzoo.errors import InputError


def blobs(sizes: list[int], seed: int = 0) -> tuple[Floats, list[int]]:
    """Well separated clouds of points."""
    rng = np.random.default_rng(seed)
    truth = [number for number, size in enumerate(sizes) for _ in range(size)]
    centres = 20 * np.eye(6)[: len(sizes)]
    return centres[truth] + rng.normal(size=(len(truth), 6)), truth


def labels_of(n: int) -> list[tuple[str]]:
    return [("ab"[row % 2],) for row in range(n)]


@pytest.mark.parametrize("k", [2, 3, 5])
def test_separated_clusters_are_found_with_their_number(k: int) -> None:
    points, truth = blobs([60 - 4 * number for number in range(k)])
    found = cluster(points, labels_of(len(points)), [None] * len(points))
    assert (found.k, len(found)) == (k, k)
    assert found.numbers.tolist() == truth  # the largest first
    assert found.stability[k] > 0.95
    assert set(found.stability) == set(range(2, min(8, len(points) // MIN_IMAGES) + 1))


def test_the_seed_determines_the_result() -> None:
    points = np.random.default_rng(1).normal(size=(200, 8))
    same = [cluster(points, labels_of(200), [None] * 200, k=4, seed=5).numbers for _ in range(2)]
    other = cluster(points, labels_of(200), [None] * 200, k=4, seed=6).numbers
    assert same[0].tolist() == same[1].tolist()
    assert same[0].tolist() != other.tolist()


@settings(max_examples=20)
@given(st.integers(0, 1000), st.integers(2, 4))
def test_groups_stay_whole_and_clusters_are_large(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(160, 5))
    groups = [None if g > 30 else f"g{g}" for g in rng.integers(0, 60, 160)]
    try:
        found = cluster(points, labels_of(160), groups, k=k, seed=seed)
    except InputError:
        return  # a single one is left
    clusters_of: dict[str, set[int]] = {}
    for group, number in zip(groups, found.numbers.tolist(), strict=True):
        if group is not None:
            clusters_of.setdefault(group, set()).add(number)
    assert all(len(numbers) == 1 for numbers in clusters_of.values())
    sizes = Counter(found.numbers.tolist())
    assert sorted(sizes) == list(range(len(found)))
    assert [sizes[n] for n in range(len(found))] == sorted(sizes.values(), reverse=True)
    assert min(sizes.values()) >= MIN_IMAGES


def test_small_clusters_are_merged() -> None:
    points, truth = blobs([60, 50, MIN_IMAGES - 1])
    found = cluster(points, labels_of(len(points)), [None] * len(points), k=3)
    assert (found.k, len(found)) == (3, 2)
    sizes = Counter(found.numbers.tolist())
    assert sum(sizes.values()) == len(truth)


def test_a_cluster_of_a_single_class_is_merged() -> None:
    points, truth = blobs([60, 50, 40])
    labels = [("a",) if number == 2 else ("ab"[row % 2],) for row, number in enumerate(truth)]
    assert len(cluster(points, labels, [None] * 150, k=3)) == 2
    assert len(cluster(points, [()] * 150, [None] * 150, k=3)) == 3  # numbers have no classes


def test_one_cluster_only() -> None:
    points, truth = blobs([100, 30])
    labels = [("a",) if number else ("ab"[row % 2],) for row, number in enumerate(truth)]
    with pytest.raises(InputError, match=r"^of 2 clusters a single one is left"):
        cluster(points, labels, [None] * 130, k=2)


def test_bad_numbers_of_clusters() -> None:
    points, _ = blobs([30, 30])
    with pytest.raises(InputError, match="at least 2, got 1"):
        cluster(points, labels_of(60), [None] * 60, k=1)
    with pytest.raises(InputError, match=r"^60 samples in 60 groups are too few for 4 clusters"):
        cluster(points, labels_of(60), [None] * 60, k=4)
    with pytest.raises(InputError, match=r"^60 samples in 2 groups are too few for 2 clusters"):
        cluster(points, labels_of(60), ["a", "b"] * 30)


def test_stability_is_low_without_clusters() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(300, 5))
    assert stability_of(noise, np.ones(300), 4, 0) < 0.6
    points, _ = blobs([100, 100, 100])
    assert stability_of(points, np.ones(300), 3, 0) > 0.99


def test_the_agreement_of_clusterings_is_the_adjusted_rand_index() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 3, 40).tolist(), rng.integers(0, 4, 40).tolist()
    value = adjusted_rand_score(first, second)
    assert value == pytest.approx(oracle.rand_index(first, second))


def test_choice_of_the_number() -> None:
    assert choose({2: 0.95, 3: 0.91, 4: 0.5}) == 3
    assert choose({2: 0.5, 3: 0.7, 4: 0.7}) == 3


def test_classes_in_one_domain() -> None:
    assert confined_classes(["x", "y"], [("a", "b"), ("a",)]) == {"b": "x"}
