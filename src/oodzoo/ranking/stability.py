r"""Inter-domain stability: how ordinary the features of a left-out domain look.

The paper (Section 3.1, Appendix B.4) fits a Gaussian :math:`N(\mu, \Sigma)` to the features of the
domains kept and takes the log-density of the left-out domain. :class:`PaperDensity` is that
formula. It compares badly between models: the density moves by :math:`-d \ln c` when features are
scaled by c, and with n near d the covariance is nearly singular, so that richer features look
stranger. :class:`RelativeDensity` shrinks the covariance and takes the density relative to the
training data's own average; what is reported of a domain is how many times as far out it lies as
the training data do, as a logarithm, so that one strange domain does not drown the others. It does
not change with rotation, translation or a common scale of the features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from oodzoo.backend import Array, backend_of
from oodzoo.evidence import Spectrum
from oodzoo.moments import Moments, oas_shrinkage

COVARIANCE_FLOOR = 1e-6
"""Least eigenvalue of the paper's covariance, as a share of the largest."""

CONSTANT = 1e-12
"""Features whose variance is at most this share of their mean square do not vary."""


class Density(Protocol):
    """Density of features under a Gaussian fitted to the training domains."""

    def log_density(self, features: Array, projected: Array, squared: Array) -> Array:
        r"""One number for each sample, (n,).

        Parameters
        ----------
        features : array (n, d)
        projected, squared : array (n, d)
            :math:`P = \Phi V` in the eigenbasis of the Gram matrix of the training domains, and
            its elementwise square.
        """
        ...

    def stability(self, mean: float) -> tuple[float, float]:
        """Stability of a domain whose samples have this mean log-density, and its derivative."""
        ...


@dataclass(frozen=True, eq=False)
class PaperDensity:
    r"""The log-density as printed, :math:`\log N(\phi; \mu, \Sigma)`.

    Eigenvalues of :math:`\Sigma` below :data:`COVARIANCE_FLOOR` of the largest are raised to it,
    for a singular covariance has no density. Where the training features do not vary at all the
    density is taken as zero for every sample.
    """

    mean: Array
    whitening: Array
    constant: float

    @classmethod
    def of(cls, kept: Moments) -> PaperDensity:
        """The Gaussian of the training domains."""
        backend = backend_of(kept.gram)
        xp = backend.xp
        if not varies(kept):
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
    r"""Log-density relative to the training data's own average, per dimension.

    .. math::

        \frac1d\Big(\log N(\phi;\mu,\hat\Sigma) - \frac1n\sum_j \log N(\phi_j;\mu,\hat\Sigma)\Big)
        = \frac{\operatorname{tr}(\hat\Sigma^{-1}\Sigma)
                - (\phi-\mu)^\top\hat\Sigma^{-1}(\phi-\mu)}{2d}

    with :math:`\hat\Sigma = (1-\rho)\Sigma + \rho\,\frac{\operatorname{tr}\Sigma}{d} I` and
    :math:`\rho` of :func:`oas_shrinkage`. Zero is as ordinary as a training sample; a domain that
    lies k times as far out as they do has about (1 - k²)/2. Where the training features do not
    vary at all there is nothing to measure by, and the value is zero for every sample.

    In the basis V of the Gram matrix, :math:`\hat\Sigma = K - (1-\rho)uu^\top` with diagonal K and
    :math:`u = V^\top\mu`, so the Sherman–Morrison formula gives the distance from the projections
    that the linear model has already made: no decomposition of the covariance is needed.

    The stability of a domain is :math:`-\ln k`, where :math:`k^2` is the ratio of its mean squared
    distance to that of the training data, and k at least 1: to lie nearer to the centre than the
    training data (in the extreme, to be a single point) is no merit.

    Attributes
    ----------
    inverse : array (d,)
        Diagonal of :math:`K^{-1}`; zeros where the features do not vary.
    mean : array (d,)
        u.
    correction : float
        :math:`(1-\rho) / (1 - (1-\rho)u^\top K^{-1}u)`.
    expected : float
        Mean squared distance :math:`\operatorname{tr}(\hat\Sigma^{-1}\Sigma)` of the training data.
    shrinkage : float
        :math:`\rho`.
    """

    inverse: Array
    mean: Array
    correction: float
    expected: float
    shrinkage: float

    @classmethod
    def of(cls, kept: Moments, spectrum: Spectrum, eigenvectors: Array) -> RelativeDensity:
        """The Gaussian of the training domains, whose Gram matrix has been decomposed."""
        xp = backend_of(kept.gram).xp
        d = kept.n_features
        mean = kept.mean @ eigenvectors
        if not varies(kept):
            return cls(xp.zeros_like(mean), mean, 0.0, 0.0, 1.0)
        covariance = kept.covariance
        shrinkage = oas_shrinkage(covariance, kept.n)
        kept_share = 1 - shrinkage
        ridge = shrinkage * float(xp.linalg.trace(covariance)) / d
        inverse = 1 / (kept_share * spectrum.eigenvalues / kept.n + ridge)
        correction = kept_share / (1 - kept_share * float(xp.sum(mean**2 * inverse)))
        # tr(Σ̂⁻¹Σ) by way of tr Σ̂⁻¹, since (1-ρ)Σ = Σ̂ - ridge·I.
        trace_inverse = float(xp.sum(inverse)) + correction * float(xp.sum((mean * inverse) ** 2))
        expected = (d - ridge * trace_inverse) / kept_share if kept_share > 0 else float(d)
        return cls(inverse, mean, correction, expected, shrinkage)

    def log_density(self, features: Array, projected: Array, squared: Array) -> Array:
        # ‖P-u‖² in the metric K⁻¹, multiplied out so that P is not copied once more.
        scaled = self.mean * self.inverse
        offset = backend_of(self.mean).xp.sum(self.mean * scaled)
        along = projected @ scaled - offset
        distance = squared @ self.inverse - 2 * along - offset + self.correction * along**2
        return (self.expected - distance) / (2 * self.inverse.shape[0])

    def stability(self, mean: float) -> tuple[float, float]:
        if self.expected <= 0:
            return 0.0, 0.0
        per_dimension = self.inverse.shape[0] / self.expected
        ratio = 1 - 2 * mean * per_dimension
        if ratio <= 1:
            return 0.0, 0.0
        return -0.5 * math.log(ratio), per_dimension / ratio


def varies(moments: Moments) -> bool:
    """Whether the features differ between samples by more than rounding."""
    xp = backend_of(moments.gram).xp
    mean_square = float(xp.linalg.trace(moments.gram)) / moments.n
    variance = mean_square - float(xp.sum(moments.mean**2))
    return variance > CONSTANT * mean_square
