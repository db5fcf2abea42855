"""From values to pixels."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from oodzoo.report.numbers import is_number, number


@dataclass(frozen=True)
class Scale:
    """A straight line from [low, high] to pixels [start, end]."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)

    def ticks(self, most: int = 5) -> list[tuple[float, str]]:
        """Round values, and how they are written."""
        step = _step(self.high - self.low, most)
        digits = max(0, -math.floor(math.log10(step) + 1e-9))
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [(at * step, number(at * step, digits)) for at in range(first, last + 1)]


def covering(
    values: Iterable[object], start: float, end: float, *, zero: bool = False, air: float = 0.0
) -> Scale:
    """A scale that holds all values; from zero where lengths are compared, as with bars."""
    known = [float(value) for value in values if is_number(value)]
    if zero or not known:
        known.append(0.0)
    low, high = min(known), max(known)
    if low == high:
        low, high = (low - 0.5, high + 0.5) if low or not zero else (0.0, 1.0)
    room = air * (high - low)
    low, high = low - (room if low or not zero else 0), high + (room if high or not zero else 0)
    return Scale(low, high, start, end)


def percent(values: Iterable[object], start: float, end: float) -> Scale:
    """A scale for percentages of values that lie close together: whole tens around them."""
    known = [float(value) for value in values if is_number(value)]
    low = math.floor(min(known, default=0) / 10) * 10
    high = math.ceil(max(known, default=100) / 10) * 10
    return Scale(max(low, 0), min(max(high, low + 10), 100) if low < 100 else 110, start, end)


def _step(width: float, most: int) -> float:
    rough = width / max(most - 1, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    return next(unit * power for unit in (1, 2, 5, 10) if unit * power >= rough * (1 - 1e-9))
