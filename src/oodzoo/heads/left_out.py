"""Fits for several sets of left-out domains: their samples, and the threads that compute them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, TypeVar

import numpy as np
from joblib import cpu_count
from numpy.typing import NDArray

from oodzoo._threads import LARGE, Prefetch, blas_threads
from oodzoo.errors import InputError
from oodzoo.features.columns import Samples

T = TypeVar("T")


def left_out_masks(
    samples: Samples, left_out: Sequence[AbstractSet[int]]
) -> list[NDArray[np.bool_]]:
    """For each set of domains, which samples are of one of them.

    Raises an InputError for a set without domains, with all of them, or with unknown ones.
    """
    domains = set(samples.domains.tolist())
    for some in left_out:
        if not some or not domains > some:
            raise InputError(
                "each set of left_out must have at least one, and not all, of the domains "
                f"{sorted(domains)}, got {sorted(some)}"
            )
    return [np.isin(samples.domains, list(some)) for some in left_out]


def call_for_sets(
    function: Callable[..., T], calls: Sequence[tuple[Any, ...]], size: int, *, on_cpu: bool
) -> list[T]:
    """Call a function for each set of left-out domains, in parallel if that is faster.

    `size` is the number of feature values. For small products on a CPU, one thread per set is
    faster than threads within BLAS.
    """
    n_threads = cpu_count() if on_cpu and size < LARGE else 1
    with blas_threads(size, LARGE):
        return list(Prefetch(function, calls, n_threads=n_threads))
