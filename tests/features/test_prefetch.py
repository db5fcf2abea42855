"""Background calls come back in order and can be cancelled."""

from __future__ import annotations

import threading
import time
import warnings

import pytest

from oodzoo.features.prefetch import cancel, in_background


def test_results_are_in_order() -> None:
    def slow_first(number: int) -> int:
        time.sleep(0.02 if number == 0 else 0)
        return number * number

    calls = [(number,) for number in range(20)]
    assert list(in_background(slow_first, calls, n_jobs=3, ahead="all")) == [
        number * number for number in range(20)
    ]


def test_calls_run_before_their_results_are_wanted() -> None:
    started = threading.Event()
    results = in_background(started.set, [()], n_jobs=1, ahead="all")
    assert started.wait(10)
    assert list(results) == [None]


def test_an_error_is_raised_where_the_result_is_wanted() -> None:
    def fail(number: int) -> int:
        return 1 // number

    with pytest.raises(ZeroDivisionError):
        list(in_background(fail, [(1,), (0,)], n_jobs=2, ahead="all"))


def test_cancelled_calls_do_not_run_and_do_not_warn() -> None:
    ran: list[int] = []

    def record(number: int) -> int:
        time.sleep(0.01)
        ran.append(number)
        return number

    calls = [(number,) for number in range(500)]
    results = in_background(record, calls, n_jobs=2, ahead=4)
    assert next(results) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cancel(results)
    assert len(ran) < 100
