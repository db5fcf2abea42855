"""Masks of left-out samples, and the threads that compute for several sets of domains."""

from __future__ import annotations

from collections.abc import Set
from threading import Barrier, get_ident

import numpy as np
import pytest
from tests.heads.planted import planted
from threadpoolctl import threadpool_info, threadpool_limits

from oodzoo._threads import LARGE
from oodzoo.errors import InputError
from oodzoo.heads import left_out
from oodzoo.heads.left_out import call_for_sets, left_out_masks


def test_masks_of_the_samples_of_each_set() -> None:
    samples = planted(12, 3, 2, 3)._replace(domains=np.array([7, 1, 4] * 4))
    first, second = left_out_masks(samples, [{7}, {1, 4}])
    assert first.tolist() == [True, False, False] * 4
    assert second.tolist() == [False, True, True] * 4


@pytest.mark.parametrize("some", [set(), {0, 1}, {2}])
def test_domains_that_cannot_be_left_out(some: Set[int]) -> None:
    with pytest.raises(InputError, match=r"not all, of the domains \[0, 1\], got"):
        left_out_masks(planted(20, 3, 2, 2), [{0}, some])


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
