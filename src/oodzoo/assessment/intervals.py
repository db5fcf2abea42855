r"""90 % intervals of measured metrics: what other images of the same domains would give.

For an accuracy p of n images, the interval of Wilson (1927), which is never empty and stays within
0 and 1, with the quantile z of the normal distribution:

.. math:: \frac{p + \frac{z^2}{2n} \pm z\sqrt{\frac{p(1-p)}{n} + \frac{z^2}{4n^2}}}{1 + z^2/n}.

For other metrics, their value ± z standard errors of the mean of the contributions of the images
(:mod:`oodzoo.metrics`). Where all contribute the same there is none: for one image, labels that do
not vary, or predictions without any error. Neither says anything about new domains.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.metrics import contributions
from oodzoo.task import Kind

Z = 1.6448536269514722
"""The 95 % quantile of the normal distribution."""


def wilson(correct: int, n: int) -> tuple[float, float]:
    """Compute the interval of an accuracy, as fractions.

    Examples
    --------
    >>> [round(end, 3) for end in wilson(9, 10)]
    [0.652, 0.977]
    >>> [round(end, 3) for end in wilson(10, 10)]
    [0.787, 1.0]
    """
    p = correct / n
    middle = p + Z**2 / (2 * n)
    margin = Z * math.sqrt(p * (1 - p) / n + Z**2 / (4 * n**2))
    low, high = (middle - margin) / (1 + Z**2 / n), (middle + margin) / (1 + Z**2 / n)
    # exactly 0 or 1 without rounding
    return (0.0 if correct == 0 else low), (1.0 if correct == n else high)


def metric_interval(
    kind: Kind, predicted: NDArray[Any], labels: NDArray[Any]
) -> tuple[float, float] | None:
    """Compute the interval of the main metric, in percent; None if all samples contribute the same.

    A standard error of zero would make the interval a point, however few samples there are. An
    accuracy always has an interval.

    Parameters
    ----------
    kind : {"classification", "regression", "multilabel"}
    predicted, labels : array
        As in :func:`oodzoo.metrics.contributions`.
    """
    values, n = contributions(kind, predicted, labels), len(labels)
    if kind == "classification":
        low, high = wilson(int(values.sum()), n)
    elif np.ptp(values) <= 1e-12:
        return None
    else:
        mean = float(values.mean())
        error = float(np.std(values, ddof=1)) / math.sqrt(n)
        low, high = mean - Z * error, min(mean + Z * error, 1.0)
        if kind == "multilabel":
            low = max(low, 0.0)
    return 100 * low, 100 * high
