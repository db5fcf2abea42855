r"""How well the order of a score agrees with that of accuracy, and how sure that is.

Kendall's tau and the weighted tau of Vigna (A Weighted Correlation Index for Rankings with Ties,
WWW 2015), as ``scipy.stats.kendalltau`` and ``scipy.stats.weightedtau`` define them:

.. math:: \tau = \frac{\langle x, y\rangle}{\sqrt{\langle x, x\rangle\langle y, y\rangle}},\qquad
   \langle x, y\rangle = \sum_{i,j} \operatorname{sign}(x_i-x_j)\operatorname{sign}(y_i-y_j)\,
   (w_i + w_j),

with :math:`w_i = 1` for Kendall's and :math:`w_i = 1/(1+r_i)` for the weighted one, where
:math:`r_i` is the place of model i from the best, by x and then y; the mean is taken with that by
y and then x. The best models weigh most: who chooses a model looks at the top.

Resamples of models are described by how often each was drawn. Copies of a model stand beside
each other in every order and are tied with each other, so the order of the models is found once,
and all resamples together are a product of matrices.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oodzoo.ranking.intervals import CONFIDENCE

Kind = Literal["weighted_tau", "tau"]
Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


def correlation(kind: Kind, x: ArrayLike, y: ArrayLike) -> float | None:
    """The correlation of two orders; None where one of them has no order at all.

    Examples
    --------
    >>> correlation("tau", [1, 2, 3, 4], [10, 20, 40, 30])
    0.6666666666666666
    >>> correlation("tau", [1, 1, 1], [10, 20, 40]) is None
    True
    """
    value = resampled(kind, x, y, np.ones((1, np.size(x)), np.int64))[0]
    return float(value) if np.isfinite(value) else None


def resampled(kind: Kind, x: ArrayLike, y: ArrayLike, counts: Counts) -> Floats:
    """The correlation in each resample.

    Parameters
    ----------
    kind : {"weighted_tau", "tau"}
    x, y : array (n,)
    counts : array (B, n)
        How often each model is in each resample.

    Returns
    -------
    array (B,)
        NaN where all that was drawn is tied.
    """
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if kind == "tau":
        return _ratio(x, y, counts.astype(np.float64), counts)
    return (
        _ratio(x, y, _hyperbolic(np.lexsort((y, x))[::-1], counts), counts)
        + _ratio(x, y, _hyperbolic(np.lexsort((x, y))[::-1], counts), counts)
    ) / 2


def _hyperbolic(order: NDArray[np.intp], counts: Counts) -> Floats:
    """For each model the sum of 1/(1 + place) over the places that its copies take."""
    ends = counts[:, order].cumsum(axis=1)
    most = int(ends[:, -1].max(initial=0)) if len(order) else 0
    sums = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, most + 1))])
    weights = np.empty(counts.shape)
    weights[:, order] = np.diff(sums[ends], axis=1, prepend=0.0)
    return weights


def _ratio(x: Floats, y: Floats, weights: Floats, counts: Counts) -> Floats:
    in_x, in_y = (np.sign(z[:, None] - z[None, :]) for z in (x, y))

    def product(signs: Floats) -> Floats:
        total: Floats = ((weights @ signs) * counts).sum(axis=1)
        return total

    of_x = product(in_x * in_x)
    # mostly nothing is tied but a model with itself
    of_y = of_x if np.array_equal(in_x == 0, in_y == 0) else product(in_y * in_y)
    scale = np.sqrt(of_x * of_y)
    ratio = np.divide(
        product(in_x * in_y), scale, out=np.full(len(counts), np.nan), where=scale > 0
    )
    clipped: Floats = np.clip(ratio, -1.0, 1.0)  # rounding can lead out of the interval
    return clipped


def draw(models: Sequence[str], resamples: int, seed: int) -> Counts:
    """How often each model is drawn, with replacement, in each resample.

    The same models get the same resamples, whatever the data set: what is compared is paired.
    """
    names = hashlib.sha256("\n".join(models).encode()).digest()
    rng = np.random.default_rng([seed, int.from_bytes(names[:8], "big")])
    counts: Counts = rng.multinomial(len(models), np.full(len(models), 1 / len(models)), resamples)
    return counts


def interval(draws: Floats) -> tuple[float, float] | None:
    """The central part of resampled values; None where no resample has any."""
    draws = draws[np.isfinite(draws)]
    if not len(draws):
        return None
    low, high = np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def apart(one: Floats, two: Floats) -> bool:
    """Whether the interval of a paired difference leaves zero out."""
    between = interval(one - two)
    return between is not None and (between[0] > 0 or between[1] < 0)
