"""Cancellable background prefetching."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable
from typing import Any

from joblib import Parallel, delayed


def in_background(
    function: Callable[..., Any], calls: Iterable[tuple[Any, ...]], *, n_jobs: int, ahead: int | str
) -> Generator[Any, None, None]:
    """Call a function in threads, `ahead` calls in advance (or "all"); yield results in order."""
    # with one thread joblib would run in this one, without prefetching
    parallel = Parallel(max(2, n_jobs), prefer="threads", return_as="generator", pre_dispatch=ahead)
    results: Generator[Any, None, None] = parallel(delayed(function)(*call) for call in calls)
    return results


def cancel(results: Generator[Any, None, None]) -> None:
    """Cancel pending calls, without joblib's warning about unused results."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results.close()
