"""Background calls come back in order, can be cancelled, and run in threads in any event."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from tests.fixtures import draw_digits
from tests.joblib_backends import results_under
from threadpoolctl import threadpool_info, threadpool_limits

from oodzoo.core.threads import LARGE, Budget, Prefetch, blas_threads


def test_results_are_in_order() -> None:
    def slow_first(number: int) -> int:
        time.sleep(0.02 if number == 0 else 0)
        return number * number

    calls = [(number,) for number in range(20)]
    squares = [number * number for number in range(20)]
    assert list(Prefetch(slow_first, calls, n_threads=3)) == squares
    assert list(Prefetch(slow_first, calls, n_threads=3, ahead=2)) == squares


def test_an_error_is_raised_where_the_result_is_wanted() -> None:
    def fail(number: int) -> int:
        return 1 // number

    results = Prefetch(fail, [(1,), (0,), (1,)], n_threads=2)
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert list(results) == []


def test_cancelled_calls_do_not_run() -> None:
    ran: list[int] = []

    def record(number: int) -> int:
        time.sleep(0.01)
        ran.append(number)
        return number

    results = Prefetch(record, [(number,) for number in range(500)], n_threads=2, ahead=4)
    assert next(results) == 0
    results.close()
    time.sleep(0.1)
    assert len(ran) < 10


def test_results_do_not_depend_on_the_backend_of_joblib(tmp_path: Path) -> None:
    photos = draw_digits(tmp_path / "photos", 6)
    found = [results_under(name, photos, tmp_path / name) for name in ("default", "loky")]
    assert found[0] == found[1]


def test_threads_share_a_budget() -> None:
    budget, most, used, turn = Budget(10), 0, 0, threading.Lock()

    def work(amount: int) -> int:
        nonlocal most, used
        with budget.reserve(amount):
            with turn:
                used += amount
                most = max(most, used)
            time.sleep(0.001)
            with turn:
                used -= amount
        return amount

    amounts = [(1 + number % 10,) for number in range(100)]
    assert sum(Prefetch(work, amounts, n_threads=16)) == 550
    assert (5 < most <= 10, used) == (True, 0)


def _blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.mark.parametrize("large", [None, 100])
def test_small_problems_use_one_blas_thread(large: int | None) -> None:
    first = LARGE if large is None else large
    with threadpool_limits(2, user_api="blas"):
        if _blas_threads() != {2}:
            pytest.skip("this BLAS cannot use two threads")
        with blas_threads(first - 1, large):
            assert _blas_threads() == {1}
        with blas_threads(first, large):
            assert _blas_threads() == {2}
        assert _blas_threads() == {2}
