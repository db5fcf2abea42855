"""Coordinates, clusters and separability, against literal forms."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GroupKFold, KFold
from tests.oracles import domains as oracle

from oodzoo.core.errors import InputError
from oodzoo.data.proposals import MIN_IMAGES
from oodzoo.extraction.source import ArraySource
from oodzoo.ranking.domains.clusters import (
    PER_MODEL,
    Floats,
    choose,
    cluster,
    confined_classes,
    embed,
    principal_components,
    separability,
    stability_of,
)

RNG = np.random.default_rng(0)
N = 90
Y = RNG.integers(0, 3, N)
DOMAINS = np.sort(RNG.choice(["x", "y"], N))  # the order of the source is that of the rows


# --- coordinates ----------------------------------------------------------------------------------


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


def test_each_model_has_coordinates_of_its_own() -> None:
    small, large = RNG.normal(size=(N, 3)), 1000 * RNG.normal(size=(N, 20))
    found = embedded(small=small, large=large)
    assert found.shape == (N, 3 + PER_MODEL)
    np.testing.assert_allclose((found**2).mean(axis=0), 1, atol=1e-6)
    np.testing.assert_allclose(found[:, :3], embedded(small=small))
    np.testing.assert_array_equal(found, embedded(small=small, large=large))


def test_numbers_and_several_labels_are_removed_too() -> None:
    y = RNG.normal(size=(N, 2))
    features = np.concatenate([y @ RNG.normal(size=(2, 4)), RNG.normal(size=(N, 1))], axis=1)
    found = embedded(y, m=features)
    assert found.shape == (N, 1)  # nothing but noise is left of the fifth feature
    np.testing.assert_allclose(found.T @ y, 0, atol=1e-6)


def test_principal_components_have_falling_variances() -> None:
    found = principal_components(RNG.normal(size=(50, 6)) * [1, 5, 2, 0, 3, 4], 4)
    assert found.shape == (50, 4)
    assert (np.diff(found.var(axis=0)) < 0).all()
    product = found.T @ found
    np.testing.assert_allclose(product, np.diag(np.diag(product)), atol=1e-8)


# --- clusters -------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("k", "groups", "words"),
    [
        (1, [None] * 60, "the number of clusters must be at least 2, got 1"),
        (4, [None] * 60, "60 samples in 60 groups are too few for 4 clusters of at least 20 sam"),
        (None, ["a", "b"] * 30, "60 samples in 2 groups are too few for 2 clusters"),
    ],
)
def test_bad_numbers_of_clusters(k: int | None, groups: list[str | None], words: str) -> None:
    points, _ = blobs([30, 30])
    with pytest.raises(InputError) as caught:
        cluster(points, labels_of(60), groups, k=k)
    assert words in str(caught.value)


def test_stability_and_the_choice_of_the_number() -> None:
    rng = np.random.default_rng(0)
    assert stability_of(rng.normal(size=(300, 5)), np.ones(300), 4, 0) < 0.6
    points, _ = blobs([100, 100, 100])
    assert stability_of(points, np.ones(300), 3, 0) > 0.99
    first, second = rng.integers(0, 3, 40).tolist(), rng.integers(0, 4, 40).tolist()
    value = adjusted_rand_score(first, second)
    assert value == pytest.approx(oracle.rand_index(first, second))
    assert choose({2: 0.95, 3: 0.91, 4: 0.5}) == choose({2: 0.5, 3: 0.7, 4: 0.7}) == 3
    assert confined_classes(["x", "y"], [("a", "b"), ("a",)]) == {"b": "x"}


# --- separability ---------------------------------------------------------------------------------


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


def test_limits_of_separability() -> None:
    codes = np.arange(200) % 2
    names = [f"d{code}" for code in codes]
    points = codes[:, None].astype(np.float64)
    assert separability(points, names, [None] * 200) == 1
    assert separability(RNG.normal(size=(200, 3)), names, [None] * 200) < 0.3
    assert separability(points, names, ["a"] * 200) == 0  # one group
    # a fold to learn from can have a single domain
    halves = ["g1"] * 100 + [f"h{n % 4}" for n in range(100)]
    assert separability(points, ["a"] * 100 + ["b"] * 100, halves) < 1
