"""Coordinates, clusters and separability against literal forms; a store shows their result."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from sklearn.model_selection import GroupKFold, KFold
from tests.oracles import domains as oracle

from oodzoo.core.errors import InputError
from oodzoo.data.proposals import MIN_IMAGES
from oodzoo.extraction.features import ArraySource
from oodzoo.ranking.clusters import (
    PER_MODEL,
    Floats,
    cluster,
    embed,
    separability,
)

RNG = np.random.default_rng(0)
N = 90
Y = RNG.integers(0, 3, N)
DOMAINS = np.sort(RNG.choice(["x", "y"], N))  # the order of the source is that of the rows


def embedded(y: np.ndarray = Y, **features: np.ndarray) -> Floats:
    return embed(ArraySource(features, y, DOMAINS), list(features))


def test_coordinates_are_whitened_residuals() -> None:
    features = RNG.normal(size=(N, 14)) * np.linspace(3, 1, 14) + 5 * np.eye(14)[Y] + 7
    found = embedded(m=features)
    rest = oracle.without_class_means(features, Y.tolist())
    expected = oracle.whitened(rest, PER_MODEL)
    # components are unique up to their sign
    signs = np.sign((found * expected).sum(axis=0))
    np.testing.assert_allclose(found, expected * signs, atol=1e-6)
    with pytest.raises(InputError, match="do not vary within a class"):
        embedded(m=np.eye(3)[Y])


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


def test_small_clusters_and_those_of_a_single_class_are_merged() -> None:
    points, truth = blobs([60, 50, MIN_IMAGES - 1])
    found = cluster(points, labels_of(len(points)), [None] * len(points), k=3)
    assert (found.k, len(found)) == (3, 2)
    assert sum(Counter(found.numbers.tolist()).values()) == len(truth)
    points, truth = blobs([60, 50, 40])
    labels = [("a",) if number == 2 else ("ab"[row % 2],) for row, number in enumerate(truth)]
    assert len(cluster(points, labels, [None] * 150, k=3)) == 2
    assert len(cluster(points, [()] * 150, [None] * 150, k=3)) == 3  # numbers have no classes
    labels = [("a",) if number else ("ab"[row % 2],) for row, number in enumerate(truth)]
    with pytest.raises(InputError, match=r"^of 3 clusters a single one is left"):
        cluster(points, labels, [None] * 150, k=3)


@pytest.mark.parametrize("k", [2, 3, 4])
def test_separability_equals_the_oracle(k: int) -> None:
    codes = RNG.integers(0, k, 150)
    points = RNG.normal(size=(150, 6)) + np.eye(6)[codes]
    folds = [test.tolist() for _, test in KFold(5, shuffle=True, random_state=3).split(points)]
    found = separability(points, [f"d{code}" for code in codes], [None] * 150, seed=3)
    assert found == pytest.approx(oracle.separability(points, codes.tolist(), folds))
    assert 0.1 < found < 1


def test_groups_are_not_split() -> None:
    groups = [f"g{row // 5:02d}" for row in range(150)]
    codes = np.array([row // 5 % 2 for row in range(150)])
    points = np.repeat(RNG.normal(size=(30, 20)), 5, axis=0)  # a group shows its domain
    number = [int(group[1:]) for group in groups]
    folds = [test.tolist() for _, test in GroupKFold(5).split(points, groups=number)]
    names = [f"d{code}" for code in codes]
    found = separability(points, names, list(groups))
    assert found == pytest.approx(oracle.separability(points, codes.tolist(), folds))
    assert found < separability(points, names, [None] * 150)
    assert separability(points, names, ["a"] * 150) == 0  # a single group
    # a fold to learn from can have a single domain
    halves = ["g1"] * 75 + [f"h{n % 4}" for n in range(75)]
    assert separability(points, ["a"] * 75 + ["b"] * 75, halves) < 1
