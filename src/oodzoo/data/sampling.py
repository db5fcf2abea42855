"""A stratified sample of a data set that keeps groups whole and grows with its size."""

from __future__ import annotations

import hashlib
import heapq
from collections import defaultdict
from collections.abc import Sequence

from oodzoo.data.listing import Sample
from oodzoo.errors import InputError

Cell = tuple[str, str]
"""A domain and a class."""


def stratified_sample(samples: Sequence[Sample], n: int, seed: int = 0) -> list[int]:
    """Positions of about n samples, shared out over domains and classes by their size.

    A larger n gives a superset, and the order of the samples does not matter. Whole groups are
    taken, so with groups the number can be exceeded.
    """
    cells: dict[Cell, list[int]] = defaultdict(list)
    for at, sample in enumerate(samples):
        cells[sample.domain, sample.label].append(at)
    if n < len(cells):
        raise InputError(
            f"a sample of {n} images is too small: there are {len(cells)} pairs of domain and "
            "class that have images; take at least one of each"
        )
    chosen: set[int] = set()
    groups: set[tuple[str, str]] = set()
    for cell, quota in apportion({c: len(members) for c, members in cells.items()}, n).items():
        order = sorted(cells[cell], key=lambda at: _lot(samples[at], seed))
        chosen.update(order[:quota])
    for at in chosen:
        group = samples[at].group
        if group is not None:
            groups.add((samples[at].domain, group))
    whole = {at for at, s in enumerate(samples) if s.group and (s.domain, s.group) in groups}
    return sorted(chosen | whole)


def apportion(sizes: dict[Cell, int], n: int) -> dict[Cell, int]:
    """Share n out in proportion to sizes, at least one each, by Sainte-Laguë's method.

    Of the methods of apportionment this one gives nobody fewer when n grows.
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


def _lot(sample: Sample, seed: int) -> bytes:
    """A number drawn for a sample (the same for its whole group), whatever else there is."""
    what = sample.group if sample.group is not None else sample.path
    return hashlib.sha256(f"{seed}\0{sample.domain}\0{what}".encode()).digest()
