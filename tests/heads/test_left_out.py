"""Masks of left-out samples, splits, and the threads that compute for several sets of domains."""

from __future__ import annotations

from collections.abc import Set
from threading import Barrier, get_ident
from typing import Any

import numpy as np
import pytest
from tests.heads.planted import planted
from threadpoolctl import threadpool_info, threadpool_limits

from oodzoo._threads import LARGE
from oodzoo.errors import InputError
from oodzoo.features.columns import Samples
from oodzoo.heads import left_out
from oodzoo.heads.left_out import Split, call_for_sets, left_out_masks, predict_splits_by
from oodzoo.heads.ridge import left_out_ridges


def test_masks_of_the_samples_of_each_set() -> None:
    samples = planted(12, 3, 2, 3)._replace(domains=np.array([7, 1, 4] * 4))
    first, second = left_out_masks(samples, [{7}, {1, 4}])
    assert first.tolist() == [True, False, False] * 4
    assert second.tolist() == [False, True, True] * 4


@pytest.mark.parametrize("some", [set(), {0, 1}, {2}])
def test_domains_that_cannot_be_left_out(some: Set[int]) -> None:
    with pytest.raises(InputError, match=r"not all, of the domains \[0, 1\], got"):
        left_out_masks(planted(20, 3, 2, 2), [{0}, some])


def test_splits_by_left_out_domains() -> None:
    """Each prediction is that of a direct fit without the fold, and no fit is made twice."""
    samples = planted(60, 5, 3, 4)
    folds = np.random.default_rng(0).permutation(60) % 5
    folds[samples.domains == 3] = 7  # only samples that are not used are in this fold
    training = samples.domains != 3
    splits = [
        Split(training, (samples.domains, folds)),
        Split(samples.domains != 2, (samples.domains,)),  # shares fits with the first
        Split.of(samples.domains, samples.domains // 2),
    ]
    sets: list[int] = []

    def counted(given: Samples, *arguments: Any, **options: Any) -> Any:
        sets.append(len(arguments[1]))
        return left_out_ridges(given, *arguments, **options)

    found = predict_splits_by(counted, samples, 3, splits)
    masks = set()
    for (training, partitions), (inside, rest) in zip(splits, found, strict=True):
        for partition, outputs in zip(partitions, inside, strict=True):
            for fold in np.unique(partition[training]):
                rows = training & (partition == fold)
                expected = _without(samples, ~training | rows, rows)
                np.testing.assert_allclose(outputs[:, rows[training]], expected, atol=1e-6)
                masks.add((~training | rows).tobytes())
        assert rest.shape[1:] == ((~training).sum(), 3)
        if not training.all():
            np.testing.assert_allclose(
                rest, _without(samples, ~training, ~training), rtol=1e-6, atol=1e-6
            )
            masks.add((~training).tobytes())
    assert sets == [len(masks)]
    assert len(masks) < sum(len(np.unique(p[t])) + 1 for t, parts in splits for p in parts)


def _without(samples: Samples, left_out: Any, rows: Any) -> Any:
    """Predictions of some samples by heads that are fitted without those that are left out."""
    domains = np.where(rows, 1, 0)[rows | ~left_out]
    kept = Samples(*(each[rows | ~left_out] for each in samples))._replace(domains=domains)
    return left_out_ridges(kept, 3, [{1}])[0]


def test_a_split_that_leaves_nothing_out() -> None:
    (found,) = predict_splits_by(
        left_out_ridges, planted(12, 3, 2, 3), 2, [Split(np.ones(12, np.bool_), ())]
    )
    assert found.partitions == []
    assert found.rest.shape[1:] == (0, 2)


def _blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_small_problems_use_one_blas_thread() -> None:
    with threadpool_limits(2, user_api="blas"):
        if _blas_threads() != {2}:
            pytest.skip("this BLAS cannot use two threads")
        assert call_for_sets(_blas_threads, [()], 1, on_cpu=True) == [{1}]


def test_small_sets_are_computed_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_out, "cpu_count", lambda: 2)
    both = Barrier(2)

    def wait(number: int) -> int:
        both.wait(timeout=20)
        return number

    assert call_for_sets(wait, [(1,), (2,)], LARGE - 1, on_cpu=True) == [1, 2]


@pytest.mark.parametrize(("size", "on_cpu"), [(LARGE, True), (1, False)])
def test_other_sets_are_computed_one_by_one(
    size: int, on_cpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many calls in one thread: two would share them."""
    monkeypatch.setattr(left_out, "cpu_count", lambda: 2)
    threads = call_for_sets(get_ident, [()] * 500, size, on_cpu=on_cpu)
    assert len(set(threads)) == 1
