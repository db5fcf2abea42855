"""Calls in background threads, with results in order, and limits on what threads use."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import islice
from threading import Condition, Lock
from typing import Any, Generic, TypeVar

from threadpoolctl import ThreadpoolController

T = TypeVar("T")

thread_seconds = time.perf_counter if sys.platform == "win32" else time.thread_time
"""CPU time of this thread; that of Windows advances in steps of 16 ms, too few for one pass."""

LARGE = 2**25
"""Number of feature values from which BLAS threads pay off in a fit; on fewer they mostly wait."""

LARGE_PRODUCT = 2**20
"""The same for a few products and decompositions."""


@contextmanager
def blas_threads(size: int, large: int | None = None) -> Iterator[None]:
    """Limit BLAS to one thread where more would mostly wait for each other.

    `size` is the number of feature values, `large` the first one for several threads, `LARGE` if
    None. Threads that wait are slow where cores are busy.
    """
    if size < (LARGE if large is None else large):
        with _one_blas_thread:
            yield
    else:
        yield


class _OneBlasThread:
    """Limits BLAS to one thread while anybody wants that.

    The limit is one of the process. Of several threads that set and restore it, one would find the
    limit of another, and restore that at the end.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._users:
                self._limit = _libraries().limit(limits=1, user_api="blas")
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                self._limit.restore_original_limits()


_one_blas_thread = _OneBlasThread()


@cache
def _libraries() -> ThreadpoolController:
    """The BLAS libraries of NumPy and SciPy. Finding them takes longer than a small fit."""
    return ThreadpoolController()


class Prefetch(Iterator[T], Generic[T]):
    """Results of calls that run in background threads from the start.

    These are threads of the standard library, because a global setting can replace joblib's by
    processes, which would write to copies of shared arrays.

    Parameters
    ----------
    function : callable
    calls : iterable of tuple
        Arguments of each call.
    n_threads : int
    ahead : int, optional
        Number of calls to start before their results are taken; all of them if None.
    """

    def __init__(
        self,
        function: Callable[..., T],
        calls: Iterable[tuple[object, ...]],
        *,
        n_threads: int,
        ahead: int | None = None,
    ) -> None:
        self._function = function
        self._calls = iter(calls)
        self._pool = ThreadPoolExecutor(n_threads)
        self._pending: deque[Future[T]] = deque()
        self._start(ahead)

    def __next__(self) -> T:
        if not self._pending:
            self.close()
            raise StopIteration
        try:
            result = self._pending.popleft().result()
        except BaseException:
            self.close()
            raise
        self._start(1)
        return result

    def close(self, *, wait: bool = False) -> None:
        """Cancel the calls that have not started, and optionally wait for the others."""
        self._pool.shutdown(wait=wait, cancel_futures=True)
        self._pending.clear()

    def _start(self, n: int | None) -> None:
        for call in islice(self._calls, n):
            self._pending.append(self._pool.submit(self._function, *call))


class Budget:
    """An amount that threads share, such as bytes of memory.

    A thread that holds a part of it must not reserve another part: two such threads could wait for
    each other.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._used = 0
        self._released = Condition()
        self._queue = Lock()  # otherwise small amounts could be served before a large one for ever

    @contextmanager
    def reserve(self, amount: int) -> Iterator[None]:
        """Wait until an amount is free, and hold it; more than the total is held alone."""
        with self._queue, self._released:
            self._released.wait_for(lambda: not self._used or self._used + amount <= self._total)
            self._used += amount
        try:
            yield
        finally:
            with self._released:
                self._used -= amount
                self._released.notify()
