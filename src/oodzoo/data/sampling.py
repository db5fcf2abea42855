"""Stratified, nested samples of a data set that keep groups whole.

The stratum of a sample is its class; for other tasks see :mod:`oodzoo.tasks.strata`.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import defaultdict
from collections.abc import Sequence

from oodzoo.core.errors import InputError
from oodzoo.data.listing import Sample
from oodzoo.tasks import CLASSIFICATION, Task
from oodzoo.tasks.strata import strata

Cell = tuple[str, str]
"""(domain, stratum)"""

_STRATA = {
    "classification": "class",
    "regression": "range of numbers",
    "multilabel": "rarest label",
}


def stratified_sample(
    samples: Sequence[Sample], n: int, seed: int = 0, task: Task = CLASSIFICATION
) -> list[int]:
    """Choose about n samples, in proportion to the sizes of domains and strata.

    A larger n gives a superset, and the order of the samples does not matter. Groups are kept
    whole, so with groups there may be more than n. Returns sorted positions.
    """
    cells: dict[Cell, list[int]] = defaultdict(list)
    cell_of = strata_of(task, [sample.label for sample in samples])
    for at, (sample, stratum) in enumerate(zip(samples, cell_of, strict=True)):
        cells[sample.domain, stratum].append(at)
    if n < len(cells):
        raise InputError(
            f"a sample of {n} images is too small: there are {len(cells)} combinations of domain "
            f"and {_STRATA[task.kind]} with images, and each needs at least one"
        )
    chosen: set[int] = set()
    groups: set[tuple[str, str]] = set()
    for cell, quota in apportion({c: len(members) for c, members in cells.items()}, n).items():
        order = sorted(cells[cell], key=lambda at: _sort_key(samples[at], seed))
        chosen.update(order[:quota])
    for at in chosen:
        group = samples[at].group
        if group is not None:
            groups.add((samples[at].domain, group))
    whole = {at for at, s in enumerate(samples) if s.group and (s.domain, s.group) in groups}
    return sorted(chosen | whole)


def strata_of(task: Task, labels: Sequence[str]) -> list[str]:
    """Return the stratum of each label: its class, or see :mod:`oodzoo.tasks.strata`.

    Examples
    --------
    >>> strata_of(Task("regression", ("age",)), ["1.0", "2.0", "9.0", "3.0", "4.0"])
    ['0', '1', '4', '2', '3']
    """
    if task.is_classification or not labels:
        return list(labels)
    return [str(stratum) for stratum in strata(task.kind, task.decode(labels)).tolist()]


def apportion(sizes: dict[Cell, int], n: int) -> dict[Cell, int]:
    """Apportion n in proportion to sizes, at least one each, by the Sainte-Laguë method.

    As a divisor method it is house-monotone: no share shrinks when n grows.
    """
    n = min(n, sum(sizes.values()))
    shares = dict.fromkeys(sorted(sizes), 1)
    queue = [(-sizes[cell] / 3, cell) for cell in shares if sizes[cell] > 1]
    heapq.heapify(queue)
    for _ in range(n - len(shares)):
        _, cell = heapq.heappop(queue)
        shares[cell] += 1
        if shares[cell] < sizes[cell]:
            heapq.heappush(queue, (-sizes[cell] / (2 * shares[cell] + 1), cell))
    return shares


def _sort_key(sample: Sample, seed: int) -> bytes:
    """Hash a sample, or its group if it has one, to a random sort key."""
    unit = sample.group if sample.group is not None else sample.path
    return hashlib.sha256(f"{seed}\0{sample.domain}\0{unit}".encode()).digest()
