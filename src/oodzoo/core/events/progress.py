"""How far work is: parts within parts, and the time that is left."""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import TypeVar

from oodzoo.core.text import duration

T = TypeVar("T")


class Part:
    """A part of the work of a stage, which reports the share of the stage that is done.

    Parameters
    ----------
    report : callable
        Called with the share.
    start, size : float
        Where in the stage the part is; all of it by default.
    one_loop : bool
        Whether the first loop in it is all of it. Otherwise, loops follow each other that nobody
        knows before, and each takes half of what is left.
    """

    def __init__(
        self,
        report: Callable[[float], None],
        start: float = 0.0,
        size: float = 1.0,
        *,
        one_loop: bool = False,
    ) -> None:
        self._report = report
        self._start = start
        self._size = size
        self._one_loop = one_loop
        self._taken = 0.0

    def reach(self, share: float) -> None:
        """So much of the part is done."""
        self._report(self._start + self._size * min(max(share, 0.0), 1.0))

    def within(self, start: float, end: float, *, one_loop: bool = False) -> Part:
        """Return a part of this part."""
        place, size = self._start + self._size * start, self._size * (end - start)
        return Part(self._report, place, size, one_loop=one_loop)

    def next_loop(self) -> Part:
        """Return the part that is a loop in it."""
        start, self._taken = self._taken, 1.0 if self._one_loop else (1.0 + self._taken) / 2
        return self.within(start, self._taken)

    @contextmanager
    def between(self, start: float, end: float) -> Iterator[None]:
        """The next loop in this block is the part of this part between two shares."""
        outside = current_part.get()
        self.reach(start)
        current_part.set(self.within(start, end, one_loop=True))
        try:
            yield
        finally:
            current_part.set(outside)
        self.reach(end)

    def tracked(
        self, items: Iterable[T], n: int | None = None, weights: Sequence[float] | None = None
    ) -> Iterator[T]:
        """Yield items; what is tracked meanwhile is a part of this part. See :func:`tracked`."""
        ends = None if weights is None else shares_of(weights)
        total = len(items) if n is None else n  # type: ignore[arg-type]
        outside, start = current_part.get(), 0.0
        inside = outside
        try:
            for number, item in enumerate(items):
                end = (number + 1) / total if ends is None else ends[number]
                self.reach(start)
                inside = self.within(start, end)
                current_part.set(inside)
                yield item
                start = end
        finally:
            if current_part.get() is inside:  # after an exception, this can be much later
                current_part.set(outside)
        self.reach(start)


current_part: ContextVar[Part | None] = ContextVar("current_part", default=None)
"""What the work that is being done is a part of; None if nobody asks."""


def tracked(
    items: Iterable[T], n: int | None = None, *, weights: Sequence[float] | None = None
) -> Iterator[T]:
    """Yield items; the work on each is a part of the current work, and can have parts of its own.

    Of loops that follow each other, each is half of what is left, unless :func:`part` says it.

    Parameters
    ----------
    items : iterable
    n : int, optional
        Their number, if they have no length.
    weights : sequence of float, optional
        Expected costs, in any unit; the same for all by default.

    Examples
    --------
    >>> seen = []
    >>> for _ in Part(seen.append).tracked("ab", weights=[1, 3]):
    ...     with part(0, 1):
    ...         for _ in tracked("cd"):
    ...             pass
    >>> list(dict.fromkeys(round(share, 3) for share in seen))
    [0.0, 0.125, 0.25, 0.625, 1.0]
    """
    current = current_part.get()
    return iter(items) if current is None else current.next_loop().tracked(items, n, weights)


@contextmanager
def part(start: float, end: float) -> Iterator[None]:
    """The next loop in this block is the part of the current work between two shares."""
    current = current_part.get()
    with nullcontext() if current is None else current.between(start, end):
        yield


class Together:
    """Tasks that are done at the same time, which together are the next loop.

    Parameters
    ----------
    weights : sequence of float
        Their expected costs.
    """

    def __init__(self, weights: Sequence[float]) -> None:
        current = current_part.get()
        self._part = None if current is None else current.next_loop()
        ends = shares_of(weights)
        self._sizes = [end - start for start, end in zip([0.0, *ends], ends, strict=False)]
        self._done = [0.0] * len(ends)

    def reach(self, number: int, share: float = 1.0) -> None:
        """So much of a task is done."""
        self._done[number] = max(share, self._done[number])
        if self._part is not None:
            pairs = zip(self._done, self._sizes, strict=True)
            self._part.reach(sum(share * size for share, size in pairs))


def advance(done: float, total: float) -> None:
    """So much of the current work is done."""
    current = current_part.get()
    if current is not None and total:
        current.reach(done / total)


def shares_of(weights: Sequence[float]) -> list[float]:
    """The shares of all work at which parts end that follow each other.

    Examples
    --------
    >>> shares_of([1, 1, 2]), shares_of([0, 0])
    ([0.25, 0.5, 1.0], [0.5, 1.0])
    """
    known = list(weights) if sum(weights) > 0 else [1.0] * len(weights)
    ends, total = [], 0.0
    for weight in known:
        total += weight
        ends.append(total)
    return [end / total for end in ends]


class TimeLeft:
    """Estimates the time left from the share of work that is done.

    The speed is the mean without the first fifth of the time: what was there before does not
    count. While nothing is reported, the time runs down. An estimate that is slightly longer than
    the last one is not shown.

    Parameters
    ----------
    clock : callable, optional
        Returns the time in seconds; by default, that of the machine.
    """

    SOON = 2.0
    """Seconds after which the time left can be estimated."""
    STEADY = 1.1
    """Longer estimates up to this factor are not shown."""
    LATE = 0.05
    """Share of the time by which a part must be overdue until nothing is known any more."""
    FIRST = 0.2
    """Share of the time that does not count."""
    LEAST = 0.01
    """Share of the work after which the time left can be estimated."""
    _MOST = 200
    """Number of reports that are kept."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or time.monotonic
        self._start = self._clock()
        self._times, self._shares = [0.0], [0.0]
        self._left: float | None = None
        self._since = 0.0

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._start

    @property
    def share(self) -> float:
        """The share of work that is done."""
        return self._shares[-1]

    def reach(self, share: float) -> None:
        """So much is done."""
        if share <= self.share:
            return
        now = self.elapsed
        self._times.append(now)
        self._shares.append(share if share < 1.0 - 1e-9 else 1.0)
        if len(self._times) > self._MOST:
            del self._times[1:-1:2], self._shares[1:-1:2]
        found = self._estimate(now)
        shown = self.seconds
        if found is not None and (shown is None or not shown <= found <= self.STEADY * shown):
            self._left, self._since = found, now

    def _estimate(self, now: float) -> float | None:
        if now < self.SOON or not self.LEAST <= self.share < 1.0:
            return None
        first = self.FIRST * now
        at = bisect_right(self._times, first)
        (early, late), (low, high) = self._times[at - 1 : at + 1], self._shares[at - 1 : at + 1]
        before = low + (high - low) * (first - early) / (late - early)
        return (1.0 - self.share) * (now - first) / (self.share - before)

    @property
    def seconds(self) -> float | None:
        """The time left, 1 or more before all is done; None if it is not known."""
        if self.share == 1.0:
            return 0.0
        if self._left is None:
            return None
        left = self._left - (self.elapsed - self._since)
        return None if left < -max(2.0, self.LATE * self._since) else max(left, 1.0)

    @property
    def words(self) -> str:
        """The time left in whole seconds; nothing if it is not known.

        Examples
        --------
        >>> TimeLeft().words
        ''
        """
        if not self.seconds:
            return ""
        whole = math.ceil(self.seconds)
        return f"{whole} s left" if whole < 60 else f"{duration(whole)} left"
