r"""Intervals of ranks and accuracies, and statistical ties between models.

Two models are compared by their difference :math:`D_i` on each held-out domain i, which removes the
difficulty of the domain. The standard error of its mean over m domains has two sources: the domains
are a sample of all possible domains, and the images are a sample of their domain. The variance of
:math:`D_i` between domains contains both, but is estimated from few values; the variance due to
the images alone (leaving out one image, or one group of images, at a time) is a lower bound for it.
The larger of the two is used.

A model is *clearly better* than another if the 90 % interval of the mean difference, by Student's t
with m - 1 degrees of freedom, is above zero; two models are *tied* if neither is clearly better.
The interval of a model's rank reaches from one more than the number of clearly better models to the
number of models that are not clearly worse (Mogstad, Romano, Shaikh, Wilhelm, Inference for Ranks,
2024, without their correction for multiple comparisons: with four domains, nearly all models would
be tied). In simulations (``tests/ranking/test_intervals.py``) the intervals contain the true rank
in at least 90 % of cases, averaged over models. For the best model the coverage is lower if many
models are nearly equal, since some of them beat it by chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

CONFIDENCE = 0.9

ROUNDING = 1e-9
"""Relative differences below this are rounding: backends agree only up to it."""

Floats = NDArray[np.float64]


def covariance_of_means(values: Floats, groups: Sequence[str | None] | None = None) -> Floats:
    """Estimate the covariance of the column means of values (images, models).

    One group of rows is left out at a time; a row whose group is None is a group of its own.
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
    """Pairwise comparison of models."""

    better: NDArray[np.bool_]
    """Whether the row's model is clearly better than the column's, (M, M)."""

    @classmethod
    def of(cls, scores: Floats, image_covariances: Sequence[Floats]) -> Comparison:
        """Compare models by their scores (M, m) on m held-out domains."""
        m = scores.shape[1]
        differences = scores[:, None, :] - scores[None, :, :]
        between = differences.var(axis=2, ddof=1) / m
        summed = np.sum(image_covariances, axis=0) / m**2
        variances = np.diag(summed)
        within = variances[:, None] + variances[None, :] - 2 * summed
        error = np.sqrt(np.maximum(between, np.maximum(within, 0.0)))
        error = np.maximum(error, ROUNDING * np.abs(scores).max())
        quantile = stats.t.ppf((1 + CONFIDENCE) / 2, m - 1)
        return cls(differences.mean(axis=2) > quantile * error)

    def rank_intervals(self) -> list[tuple[int, int]]:
        """Return the 90 % interval of the rank of each model."""
        best = 1 + self.better.sum(axis=0)
        worst = len(self.better) - self.better.sum(axis=1)
        return [(int(low), int(high)) for low, high in zip(best, worst, strict=True)]

    def ties(self, model: int) -> list[int]:
        """Return the models that are statistically tied with this one."""
        differs = self.better[model] | self.better[:, model]
        return [other for other in np.flatnonzero(~differs).tolist() if other != model]


def mean_interval(values: Floats, image_variances: Floats) -> tuple[float, float]:
    """Compute the 90 % interval of the mean over domains, by Student's t."""
    m = len(values)
    error = np.sqrt(max(values.var(ddof=1) / m, image_variances.sum() / m**2))
    margin = float(stats.t.ppf((1 + CONFIDENCE) / 2, m - 1) * error)
    return float(values.mean()) - margin, float(values.mean()) + margin
