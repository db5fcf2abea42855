"""Work that threads do ahead, and that nobody may want in the end."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable
from typing import Any

from joblib import Parallel, delayed


def in_background(
    function: Callable[..., Any], calls: Iterable[tuple[Any, ...]], *, n_jobs: int, ahead: int | str
) -> Generator[Any, None, None]:
    """Call a function in threads, `ahead` calls in advance ("all" at once), results in order."""
    # one thread would be this one, and would not work ahead
    parallel = Parallel(max(2, n_jobs), prefer="threads", return_as="generator", pre_dispatch=ahead)
    results: Generator[Any, None, None] = parallel(delayed(function)(*call) for call in calls)
    return results


def abandon(results: Generator[Any, None, None]) -> None:
    """Stop the work; joblib would warn that some of it was in vain."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results.close()
