r"""How sure an order is: which models can be told apart, and between which ranks each may lie.

Two models are compared by their difference :math:`D_i` on each left-out domain i, since what
makes a domain hard makes it hard for both. Its mean over m domains has a standard error from two
sources: the domains are a sample of those one may meet, and the images of each are a sample of it.
The spread of :math:`D_i` between domains contains both, but is estimated from few numbers; the
error that follows from the images alone, by leaving out one image (or one group of images) at a
time, is a lower bound for it. The larger one is taken.

A model is *clearly better* than another when the 90 % interval of the mean difference, by
Student's t with m - 1 degrees of freedom, lies above zero, and two models are *tied* when neither
is clearly better. A model's rank then lies between one more than the number of models clearly
better than it, and the number of those not clearly worse (Mogstad, Romano, Shaikh, Wilhelm,
Inference for Ranks, 2024, without their correction for many comparisons, which with four domains
would leave nothing to say). In simulations (``tests/test_certainty.py``) these intervals hold the
true rank in 90 % of the cases or more on average over the models. For the truly best one it is
less where many are nearly equal: some will beat it by luck.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

CONFIDENCE = 0.9

ROUNDING = 1e-9

Floats = NDArray[np.float64]


def covariance_of_means(values: Floats, groups: Sequence[str | None] | None = None) -> Floats:
    """Covariance of the means of several columns, by leaving out one group of rows at a time.

    Parameters
    ----------
    values : array (n, M)
        One column for each model, one row for each image.
    groups : sequence, optional
        Rows that belong together; None for a row on its own.
    """
    n = len(values)
    residuals = values - values.mean(axis=0)
    if groups is not None and any(group is not None for group in groups):
        names = [f"g{g}" if g is not None else f"r{row}" for row, g in enumerate(groups)]
        _, inverse = np.unique(names, return_inverse=True)
        sums = np.zeros((int(inverse.max()) + 1, values.shape[1]))
        np.add.at(sums, inverse, residuals)
        residuals = sums
    units = len(residuals)
    if units < 2:
        return np.zeros((values.shape[1], values.shape[1]))
    covariance: Floats = residuals.T @ residuals * (units / (units - 1)) / n**2
    return covariance


@dataclass(frozen=True)
class Comparison:
    """Every model against every other.

    Attributes
    ----------
    better : array of bool (M, M)
        Whether the model of the row is clearly better than that of the column.
    """

    better: NDArray[np.bool_]

    @classmethod
    def of(cls, scores: Floats, image_covariances: Sequence[Floats]) -> Comparison:
        """Compare models by their scores (M, m) on m left-out domains."""
        m = scores.shape[1]
        differences = scores[:, None, :] - scores[None, :, :]
        between = differences.var(axis=2, ddof=1) / m
        summed = np.sum(image_covariances, axis=0) / m**2
        variances = np.diag(summed)
        within = variances[:, None] + variances[None, :] - 2 * summed
        error = np.sqrt(np.maximum(between, np.maximum(within, 0.0)))
        # Below what backends agree to, a difference is rounding.
        error = np.maximum(error, ROUNDING * np.abs(scores).max())
        quantile = stats.t.ppf((1 + CONFIDENCE) / 2, m - 1)
        return cls(differences.mean(axis=2) > quantile * error)

    def rank_intervals(self) -> list[tuple[int, int]]:
        """Between which ranks each model may lie."""
        best = 1 + self.better.sum(axis=0)
        worst = len(self.better) - self.better.sum(axis=1)
        return [(int(low), int(high)) for low, high in zip(best, worst, strict=True)]

    def ties(self, model: int) -> list[int]:
        """The models that cannot be told apart from this one."""
        apart = self.better[model] | self.better[:, model]
        return [other for other in np.flatnonzero(~apart).tolist() if other != model]


def mean_interval(values: Floats, image_variances: Floats) -> tuple[float, float]:
    """Interval of the mean over domains, at the confidence of this module, by Student's t."""
    m = len(values)
    error = np.sqrt(max(values.var(ddof=1) / m, image_variances.sum() / m**2))
    reach = float(stats.t.ppf((1 + CONFIDENCE) / 2, m - 1) * error)
    return float(values.mean()) - reach, float(values.mean()) + reach
