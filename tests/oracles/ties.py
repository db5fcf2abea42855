"""Simultaneous bootstrap intervals, one resample after the other."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def simultaneous_intervals(
    values: Sequence[float], draws: Sequence[Sequence[float]], confidence: float
) -> list[tuple[float, float]]:
    """Value ± c·s of each difference; c is a quantile of the largest standardised deviation."""
    means = [statistics.fmean(each) for each in draws]
    spreads = [statistics.pstdev(each) for each in draws]
    largest = []
    for resample in range(len(draws[0])):
        deviations = [
            abs(each[resample] - mean) / spread
            for each, mean, spread in zip(draws, means, spreads, strict=True)
            if spread > 0
        ]
        largest.append(max(deviations, default=0.0))
    critical = _quantile(sorted(largest), confidence)
    return [(v - critical * s, v + critical * s) for v, s in zip(values, spreads, strict=True)]


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Linear interpolation between order statistics."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
