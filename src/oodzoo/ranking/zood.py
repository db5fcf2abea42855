r"""The two terms of the ZooD score on a held-out domain: discriminability and stability.

**Discriminability**: how well the labels of the held-out domain are predicted. The paper (Section
3.1, Appendix B.4) takes :math:`\log p(y_i \mid \Phi_i, y_{-i}, \Phi_{-i})` of the Bayesian linear
model, for each domain i with the model of the training domains, -i. It is a difference of two log
evidences, both with the precisions of the training domains, so moments are enough to compute it.
The predictions for single samples of the held-out domain take a second pass over its features.

**Stability**: how close its features are to the training domains. The paper fits a Gaussian
:math:`N(\mu, \Sigma)` to the features of the training domains and takes the log-density of the
held-out domain. :class:`PaperDensity` is that formula. It is not comparable between models: the
density changes by :math:`-d \ln c` when features are scaled by c, and for n close to d the
covariance is nearly singular, which penalises richer features. :class:`RelativeDensity` shrinks the
covariance and takes the density relative to the average over the training data. The stability of a
domain is the negative logarithm of its distance relative to that of the training data, so that one
distant domain does not dominate the mean. It is invariant to rotation, translation and a common
scale of the features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from oodzoo.core.backend import Array, backend_of
from oodzoo.linear.evidence import Precisions, Spectrum, log_evidence
from oodzoo.linear.moments import Moments, oas_shrinkage


def discriminability(kept: Spectrum, union: Spectrum, precisions: Precisions) -> float:
    r"""Compute the mean over classes of :math:`\log p(y_i \mid \Phi_i, y_{-i}, \Phi_{-i}) / n_i`.

    `kept` and `precisions` are those of the training domains, -i; `union` is the spectrum of the
    training domains and the held-out domain together.
    """
    gain = log_evidence(union, precisions) - log_evidence(kept, precisions)
    return float(backend_of(gain).xp.mean(gain)) / (union.n - kept.n)


@dataclass(frozen=True, eq=False)
class LinearModel:
    r"""Posterior of the weights, :math:`N(m, A^{-1})`, in the eigenbasis V of the training domains.

    Attributes
    ----------
    weights : array (d, C)
        :math:`V^\top m`, that is :math:`t/(S+\delta)`.
    variances : array (d, C)
        Diagonal of :math:`V^\top A^{-1} V`, that is :math:`1/(\alpha + \beta S)`.
    noise : array (C,)
        :math:`1/\beta`.
    """

    weights: Array
    variances: Array
    noise: Array

    @classmethod
    def of(cls, kept: Spectrum, precisions: Precisions) -> LinearModel:
        """Compute the posterior at given precisions."""
        kernel = 1 / (kept.eigenvalues[:, None] + precisions.ridge[None, :])
        return cls(
            weights=kept.projections.T * kernel,
            variances=kernel / precisions.beta[None, :],
            noise=1 / precisions.beta,
        )

    def label_log_density(self, predicted: Array, squared: Array, one_hot: Array) -> Array:
        r"""Compute the log-density of the labels of each sample, averaged over classes, (n,).

        These are the marginals of the paper's Remark,
        :math:`y_{ij} \sim N(\phi_{ij}^\top m,\; \beta^{-1} + \phi_{ij}^\top A^{-1}\phi_{ij})`,
        from the predicted means (n, C), the squares (n, d) of the projected features and the labels
        (n, C), a row of zeros for a class that the model lacks.
        """
        xp = backend_of(predicted).xp
        variance = self.noise[None, :] + squared @ self.variances
        error = one_hot - predicted
        return -0.5 * xp.mean(xp.log(2 * math.pi * variance) + error**2 / variance, axis=1)


COVARIANCE_FLOOR = 1e-6
"""Lower bound of the eigenvalues of the paper's covariance, relative to the largest."""


class Density(Protocol):
    """Density of features under a Gaussian fitted to the training domains."""

    def log_density(self, features: Array, projected: Array, squared: Array) -> Array:
        r"""Compute the log-density of each sample, (n,).

        `projected` is :math:`P = \Phi V` in the eigenbasis of the Gram matrix of the training
        domains, `squared` its elementwise square.
        """
        ...

    def stability(self, mean: float) -> tuple[float, float]:
        """Compute the stability of a domain with this mean log-density, and its derivative."""
        ...


@dataclass(frozen=True, eq=False)
class PaperDensity:
    r"""The published log-density, :math:`\log N(\phi; \mu, \Sigma)`.

    Eigenvalues of :math:`\Sigma` below :data:`COVARIANCE_FLOOR` of the largest are raised to it,
    since a singular covariance has no density. If the training features are constant, the density
    is defined as zero for every sample.
    """

    mean: Array
    whitening: Array
    constant: float

    @classmethod
    def of(cls, kept: Moments) -> PaperDensity:
        """Fit the Gaussian to the training domains."""
        backend = backend_of(kept.gram)
        xp = backend.xp
        if not kept.varies:
            return cls(kept.mean, xp.zeros_like(kept.gram), 0.0)
        eigenvalues, eigenvectors = backend.eigh(kept.covariance)
        eigenvalues = xp.clip(eigenvalues, min=COVARIANCE_FLOOR * float(eigenvalues[-1]))
        determinant = float(xp.sum(xp.log(eigenvalues)))
        constant = -0.5 * (kept.n_features * math.log(2 * math.pi) + determinant)
        return cls(kept.mean, eigenvectors / xp.sqrt(eigenvalues)[None, :], constant)

    def log_density(self, features: Array, projected: Array, squared: Array) -> Array:
        xp = backend_of(features).xp
        white = (features - self.mean[None, :]) @ self.whitening
        return self.constant - 0.5 * xp.sum(white**2, axis=1)

    def stability(self, mean: float) -> tuple[float, float]:
        return mean, 1.0


@dataclass(frozen=True, eq=False)
class RelativeDensity:
    r"""Log-density relative to the average over the training data, per dimension.

    .. math::

        \frac1d\Big(\log N(\phi;\mu,\hat\Sigma) - \frac1n\sum_j \log N(\phi_j;\mu,\hat\Sigma)\Big)
        = \frac{\operatorname{tr}(\hat\Sigma^{-1}\Sigma)
                - (\phi-\mu)^\top\hat\Sigma^{-1}(\phi-\mu)}{2d}

    with :math:`\hat\Sigma = (1-\rho)\Sigma + \rho\,\frac{\operatorname{tr}\Sigma}{d} I` and
    :math:`\rho` from :func:`~oodzoo.linear.moments.oas_shrinkage` in scikit-learn's form. An
    average training sample has density zero, a domain at k times their distance about (1 - k²)/2.
    If the training features are constant, the value is zero for every sample.

    In the basis V of the Gram matrix, :math:`\hat\Sigma = K - (1-\rho)uu^\top` with diagonal K and
    :math:`u = V^\top\mu`, so the Sherman–Morrison formula gives the distance from the projections
    that the linear model needs anyway; the covariance need not be decomposed.

    The stability of a domain is :math:`-\ln k`, where :math:`k^2` is the ratio of its mean squared
    distance to that of the training data, and k is at least 1: a domain closer to the centre than
    the training data (in the extreme case a single point) is not rewarded.

    Attributes
    ----------
    inverse : array (d,)
        Diagonal of :math:`K^{-1}`; zeros if the features are constant.
    mean : array (d,)
        The vector u.
    correction : float
        :math:`(1-\rho) / (1 - (1-\rho)u^\top K^{-1}u)`.
    expected : float
        Mean squared distance :math:`\operatorname{tr}(\hat\Sigma^{-1}\Sigma)` of the training data.
    shrinkage : float
        The coefficient :math:`\rho`.
    n_features : int
        The number d.
    axes : array (d, d), optional
        Eigenvectors of the covariance. Only for features with a large offset, where the correction
        would cancel: K is then the decomposed :math:`\hat\Sigma` itself, and `mean` is
        :math:`\mu`.
    """

    inverse: Array
    mean: Array
    correction: float
    expected: float
    shrinkage: float
    n_features: int
    axes: Array | None = None

    @classmethod
    def of(
        cls,
        kept: Moments,
        spectrum: Spectrum,
        eigenvectors: Array,
        n_features: int | None = None,
    ) -> RelativeDensity:
        """Fit the Gaussian to the training domains, given the decomposed Gram matrix.

        `n_features` is the number of features, if the moments are of fewer coordinates; no sample
        varies in the other directions.
        """
        xp = backend_of(kept.gram).xp
        d = n_features or kept.n_features
        mean = kept.mean @ eigenvectors
        if not kept.varies:
            return cls(xp.zeros_like(mean), mean, 0.0, 0.0, 1.0, d)
        covariance = kept.covariance
        shrinkage = oas_shrinkage(covariance, kept.n, n_features=d)
        kept_share = 1 - shrinkage
        ridge = shrinkage * float(xp.linalg.trace(covariance)) / d
        if kept.centred is not None:
            variances, axes = backend_of(covariance).eigh(covariance)
            inverse = 1 / (kept_share * xp.clip(variances, min=0.0) + ridge)
            expected = float(xp.sum(xp.clip(variances, min=0.0) * inverse))
            return cls(inverse, kept.mean, 0.0, expected, shrinkage, d, axes)
        inverse = 1 / (kept_share * spectrum.eigenvalues / kept.n + ridge)
        correction = kept_share / (1 - kept_share * float(xp.sum(mean**2 * inverse)))
        # tr(Σ̂⁻¹Σ) by way of tr Σ̂⁻¹, since (1-ρ)Σ = Σ̂ - ridge·I.
        trace_inverse = float(xp.sum(inverse)) + correction * float(xp.sum((mean * inverse) ** 2))
        coordinates = kept.n_features
        expected = float(d)
        if kept_share > 0:
            expected = (coordinates - ridge * trace_inverse) / kept_share
        return cls(inverse, mean, correction, expected, shrinkage, d)

    def log_density(self, features: Array, projected: Array, squared: Array) -> Array:
        if self.axes is not None:
            distance = ((features - self.mean[None, :]) @ self.axes) ** 2 @ self.inverse
            return (self.expected - distance) / (2 * self.n_features)
        # ‖P-u‖² in the metric K⁻¹, multiplied out to avoid another copy of P.
        scaled = self.mean * self.inverse
        offset = backend_of(self.mean).xp.sum(self.mean * scaled)
        along = projected @ scaled - offset
        distance = squared @ self.inverse - 2 * along - offset + self.correction * along**2
        return (self.expected - distance) / (2 * self.n_features)

    def stability(self, mean: float) -> tuple[float, float]:
        if self.expected <= 0:
            return 0.0, 0.0
        per_dimension = self.n_features / self.expected
        ratio = 1 - 2 * mean * per_dimension
        if ratio <= 1:
            return 0.0, 0.0
        return -0.5 * math.log(ratio), per_dimension / ratio
