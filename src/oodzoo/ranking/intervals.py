r"""Intervals of ranks and accuracies, and statistical ties between models.

Two models are compared by their difference :math:`D_i` on each held-out domain i, which removes the
difficulty of the domain. The standard error of its mean over m domains has two sources: the domains
are a sample of all possible domains, and the images are a sample of their domain. The variance of
:math:`D_i` between domains contains both; the variance due to the images alone (leaving out one
image, or one group of images, at a time) is a lower bound for it.

**Moderated variance.** With few domains, the variance of one pair is hardly known: it has
:math:`f = m - 1` degrees of freedom. All pairs together tell more. The true variances of the pairs
are assumed to follow a scaled inverse chi-squared distribution with :math:`f_0` degrees of freedom
and scale :math:`s_0^2`, fitted to the logarithms of the observed variances (Smyth, Linear models
and empirical Bayes methods, 2004). The variance of a pair is then

.. math:: \tilde s^2 = \frac{f_0 s_0^2 + f s^2}{f_0 + f}

with :math:`f_0 + f` degrees of freedom, but at most :math:`(M - 1) f` for M models. If all pairs
vary alike, :math:`f_0` is large and all have nearly the same variance; if they differ much,
:math:`f_0` is small and each pair has its own.

**Many comparisons.** A model is *clearly better* than another if the mean difference is more than
q standard errors above zero. Since each model is compared with M - 1 others, q is the 90 % quantile
of the largest of M - 1 variables with Student's t distribution and correlation 1/2 (Dunnett, A
multiple comparison procedure, 1955). Two models are *tied* if neither is clearly better. The
interval of a model's rank reaches from one more than the number of clearly better models to the
number of models that are not clearly worse (Mogstad, Romano, Shaikh, Wilhelm, Inference for Ranks,
2024).

In simulations (``tests/maths/test_intervals.py``), the intervals contain the rank of the truly
best of 27 models, ten of them nearly equal, in about 90 % of cases or more. For ranks in the middle
they are conservative.

**Weights of domains** :math:`w_i`, which add up to 1, replace 1/m. The variance between domains is
:math:`\sum_i w_i (D_i - \bar D)^2 / (1 - \sum_i w_i^2)`, that of the mean is :math:`\sum_i w_i^2`
times it, and its degrees of freedom f follow from its first two moments (Satterthwaite).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

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
class PairwiseComparison:
    """Pairwise comparison of models."""

    better: NDArray[np.bool_]
    """Whether the row's model is clearly better than the column's, (M, M)."""

    @classmethod
    def of(
        cls, scores: Floats, image_covariances: Sequence[Floats], weights: Floats | None = None
    ) -> PairwiseComparison:
        """Compare models by their scores (M, m) on m held-out domains.

        Parameters
        ----------
        scores : array (M, m)
        image_covariances : sequence of arrays (M, M)
            For each domain, the covariance of the scores that is due to its images.
        weights : array (m,), optional
            Weights of the domains, which add up to 1; by default equal.
        """
        n_models, m = scores.shape
        weights = np.full(m, 1 / m) if weights is None else weights
        freedom = _degrees_of_freedom(weights)
        if n_models < 2 or freedom == 0:  # nothing tells how much domains vary
            return cls(np.zeros((n_models, n_models), np.bool_))
        differences = scores[:, None, :] - scores[None, :, :]
        rounding = ROUNDING * np.abs(scores).max()
        between, freedom = _moderated(_variance(differences, weights), freedom, rounding**2)
        summed = np.tensordot(weights**2, np.asarray(image_covariances), axes=1)
        variances = np.diag(summed)
        within = variances[:, None] + variances[None, :] - 2 * summed
        error = np.sqrt(np.maximum(np.sum(weights**2) * between, np.maximum(within, 0.0)))
        quantile = largest_t_quantile(n_models - 1, freedom)
        return cls(differences @ weights > quantile * np.maximum(error, rounding))

    def rank_intervals(self) -> list[tuple[int, int]]:
        """Return the 90 % interval of the rank of each model."""
        best = 1 + self.better.sum(axis=0)
        worst = len(self.better) - self.better.sum(axis=1)
        return [(int(low), int(high)) for low, high in zip(best, worst, strict=True)]

    def ties(self, model: int) -> list[int]:
        """Return the models that are statistically tied with this one."""
        differs = self.better[model] | self.better[:, model]
        return [other for other in np.flatnonzero(~differs).tolist() if other != model]


def new_domain_interval(
    values: Floats,
    image_variances: Floats,
    weights: Floats | None = None,
    *,
    chosen_from: Floats | None = None,
) -> tuple[float, float]:
    r"""Compute the 90 % interval for a single new domain, by Student's t.

    The value on a new domain differs from the estimated mean by the variation between domains,
    :math:`s^2`, and by the error of the mean, :math:`s^2 \sum_i w_i^2`. :math:`s^2` is at least
    what the images alone explain. `weights` add up to 1; by default they are equal.

    A model that was chosen as the best of several (M, m), `chosen_from`, is often one whose values
    happened to vary little between the domains. If its :math:`s^2` is less than the median of
    theirs, which was not chosen, it is moved half-way to it.
    """
    m = len(values)
    weights = np.full(m, 1 / m) if weights is None else weights
    mean, freedom = float(values @ weights), _degrees_of_freedom(weights)
    if freedom == 0:
        return -np.inf, np.inf
    variance = float(_variance(values, weights))
    if chosen_from is not None:
        typical = float(np.median(_variance(chosen_from, weights)))
        variance = max(variance, (variance + typical) / 2)
    spread = max(variance, float(weights @ image_variances))
    error = np.sqrt(spread * (1 + np.sum(weights**2)))
    margin = float(special.stdtrit(freedom, (1 + CONFIDENCE) / 2) * error)
    return mean - margin, mean + margin


@functools.lru_cache(maxsize=256)
def largest_t_quantile(k: int, freedom: float, confidence: float = CONFIDENCE) -> float:
    r"""Compute the quantile of the largest of k Student's t variables with correlation 1/2.

    These are :math:`(Z_i - Z_0) / (\sqrt 2 S)` with independent standard normal Z and a common S,
    whose square is chi-squared over its degrees of freedom.

    Examples
    --------
    >>> round(largest_t_quantile(1, 10.0), 3), round(largest_t_quantile(26, 10.0), 3)
    (1.372, 2.743)
    """
    nodes, normal, points, uniform = _quadrature()
    # √2 S at quantiles of the chi-squared distribution
    scales = np.sqrt(4 * special.gammaincinv(freedom / 2, points) / freedom)

    def excess(q: float) -> float:
        below = special.ndtr(q * scales[:, None] + nodes) ** k
        return float(uniform @ below @ normal) - confidence

    single, corrected = special.stdtrit(freedom, [confidence, 1 - (1 - confidence) / k])
    return float(optimize.brentq(excess, 0.9 * single, 1.1 * corrected, xtol=1e-6))


@functools.cache
def _quadrature() -> tuple[Floats, Floats, Floats, Floats]:
    """Return nodes and weights for the standard normal and the uniform distribution."""
    nodes, normal = np.polynomial.hermite_e.hermegauss(40)
    points, uniform = np.polynomial.legendre.leggauss(60)
    return nodes, normal / normal.sum(), (points + 1) / 2, uniform / 2


def _degrees_of_freedom(weights: Floats) -> float:
    """Return the degrees of freedom of :func:`_variance`: m - 1 for m equal weights."""
    squares = float(np.sum(weights**2))
    if 1 - squares < ROUNDING:  # one domain has all the weight
        return 0.0
    return (1 - squares) ** 2 / float(squares - 2 * np.sum(weights**3) + squares**2)


def _variance(values: Floats, weights: Floats) -> Floats:
    """Estimate the variance over the last axis; an unbiased estimate if all vary alike."""
    deviations = values - (values @ weights)[..., None]
    variance: Floats = deviations**2 @ weights / (1 - np.sum(weights**2))
    return variance


def _moderated(variances: Floats, freedom: float, rounding: float) -> tuple[Floats, float]:
    """Shrink the variances (M, M) of pairs towards their common scale; return their freedom too.

    Pairs of the same model twice, whose variance is rounding, say nothing about the others.
    """
    n_models = len(variances)
    pairs = variances[np.triu_indices(n_models, 1)]
    logs = np.log(pairs[pairs > rounding])
    if len(logs) < 2:
        return variances, freedom
    logs -= special.digamma(freedom / 2) - np.log(freedom / 2)
    spread = logs.var(ddof=1) - special.polygamma(1, freedom / 2)
    most = (n_models - 2) * freedom
    prior = min(2 * _inverse_trigamma(spread), most) if spread > 0 else most
    scale = np.exp(logs.mean() + special.digamma(prior / 2) - np.log(prior / 2))
    return (prior * scale + freedom * variances) / (prior + freedom), prior + freedom


def _inverse_trigamma(value: float) -> float:
    """Return x with trigamma(x) = value; 1/x² < trigamma(x) < 1/(x - 1/2) brackets it."""
    low, high = value**-0.5, 0.5 + 1 / value
    return float(optimize.brentq(lambda x: special.polygamma(1, x) - value, low, high))
