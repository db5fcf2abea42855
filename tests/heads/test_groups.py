"""Numbers of groups, and folds that keep groups whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.heads.partition import require_whole

from oodzoo.errors import InputError
from oodzoo.heads.groups import group_numbers, grouped_folds


def test_a_sample_without_a_group_is_one_of_its_own() -> None:
    found = group_numbers(["b", None, "a", "b", None], 5)
    assert found is not None
    assert found.tolist() == [0, 1, 2, 0, 3]


@pytest.mark.parametrize("groups", [None, [None, None, None]])
def test_no_groups(groups: list[None] | None) -> None:
    assert group_numbers(groups, 3) is None


def test_as_many_groups_as_samples() -> None:
    with pytest.raises(InputError, match="3 samples, but groups of 2; give one per sample"):
        group_numbers(["a", "b"], 3)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 40), st.integers(2, 4))
def test_folds_keep_groups_whole(seed: int, n_groups: int, n_classes: int) -> None:
    rng = np.random.default_rng(seed)
    numbers = np.unique(rng.integers(0, n_groups, 120), return_inverse=True)[1]
    labels = rng.integers(0, n_classes, 120)
    folds = grouped_folds(labels, numbers, 5)
    for fold in range(5):
        require_whole(numbers, np.flatnonzero(folds == fold), np.flatnonzero(folds != fold))
    assert len(np.unique(folds)) == min(5, numbers.max() + 1)


def test_folds_are_stratified_and_of_about_equal_size() -> None:
    rng = np.random.default_rng(0)
    numbers = np.unique(rng.integers(0, 60, 600), return_inverse=True)[1]
    labels = rng.integers(0, 3, len(numbers))
    folds = grouped_folds(labels, numbers, 5)
    table = np.array([[np.sum((folds == f) & (labels == c)) for c in range(3)] for f in range(5)])
    assert np.abs(table / table.sum(axis=0) - 0.2).max() < 0.04
