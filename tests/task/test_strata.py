"""Strata of samples."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from oodzoo.task.strata import RANGES, strata


def test_classes_are_their_own_strata() -> None:
    assert strata("classification", np.array([2, 0, 2])).tolist() == [2, 0, 2]


@given(seed=st.integers(0, 1000), n=st.integers(1, 60))
def test_ranges_of_numbers_have_equal_sizes_and_do_not_overlap(seed: int, n: int) -> None:
    labels = np.random.default_rng(seed).normal(size=(n, 2))
    found = strata("regression", labels)
    assert np.ptp(np.bincount(found, minlength=min(n, RANGES))[np.unique(found)]) <= 1
    order = np.argsort(labels[:, 0])
    assert (np.diff(found[order]) >= 0).all()


@given(seed=st.integers(0, 1000))
def test_the_rarest_label_of_a_sample(seed: int) -> None:
    labels = (np.random.default_rng(seed).random((30, 4)) < [0.1, 0.3, 0.6, 0.9]).astype(float)
    sizes = labels.sum(axis=0)
    for row, found in zip(labels, strata("multilabel", labels), strict=True):
        own = [c for c in range(4) if row[c]]
        assert found == (min(own, key=lambda c: (sizes[c], c)) if own else 4)
