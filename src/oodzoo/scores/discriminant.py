"""Linear discriminants: Gaussian classes with a common covariance."""

from __future__ import annotations

from typing import NamedTuple

from oodzoo.backend import Array, Backend, backend_of
from oodzoo.moments import Moments

# Within-class variance, relative to the total variance, to assume if all classes are points.
_COLLAPSED = 1e-12


def shrink(backend: Backend, covariance: Array, shrinkage: float, spread: float) -> Array:
    """Shrink a covariance S to (1 - λ) S + λ μ I, where μ is its mean variance.

    `spread` is the mean variance of all data. If every class is a single point, S is zero and has
    no inverse; a small part of the spread then replaces it, so that distances are very large
    instead of undefined.
    """
    xp = backend.xp
    d = covariance.shape[0]
    mean = float(xp.linalg.trace(covariance)) / d
    eye = xp.eye(d, dtype=xp.float64, device=backend.device)
    if mean <= _COLLAPSED * spread:
        return eye * (_COLLAPSED * spread if spread > 0 else 1.0)
    return (1 - shrinkage) * covariance + shrinkage * mean * eye


def log_joint(
    backend: Backend, X: Array, means: Array, covariance: Array, log_priors: Array
) -> Array:
    """ln p(x, c) per sample and class (n, C), up to a constant per sample."""
    return Discriminant.of(backend, means, covariance, log_priors).log_joint(X)


class Discriminant(NamedTuple):
    """ln p(x, c) as a linear function of x: directions (d, C) and offsets (C,)."""

    directions: Array
    offsets: Array

    @classmethod
    def of(
        cls, backend: Backend, means: Array, covariance: Array, log_priors: Array
    ) -> Discriminant:
        xp = backend.xp
        directions = xp.linalg.solve(covariance, means.T)
        return cls(directions, log_priors - xp.sum(means.T * directions, axis=0) / 2)

    def log_joint(self, X: Array) -> Array:
        return X @ self.directions + self.offsets


class Gaussians(NamedTuple):
    """Classes with a common covariance: means (C, d), within-class covariance S_W, ln π_c (C,).

    The prior of a class without samples is 0. `spread` is the mean variance of all features.
    """

    means: Array
    within: Array
    log_priors: Array
    spread: float

    @classmethod
    def of(cls, moments: Moments) -> Gaussians:
        xp = backend_of(moments.gram).xp
        present = moments.label_sum > 0
        counts = xp.where(present, moments.label_sum, xp.ones_like(moments.label_sum))
        means = (moments.products / counts).T
        within = (moments.gram - moments.products @ means) / moments.n
        priors = xp.where(present, xp.log(counts / moments.n), -xp.inf + xp.zeros_like(counts))
        spread = float(xp.linalg.trace(moments.covariance)) / moments.n_features
        return cls(means, within, priors, max(spread, 0.0))

    def discriminant(self, shrinkage: float) -> Discriminant:
        """The discriminant with the shrunk covariance."""
        backend = backend_of(self.within)
        covariance = shrink(backend, self.within, shrinkage, self.spread)
        return Discriminant.of(backend, self.means, covariance, self.log_priors)


def log_softmax(backend: Backend, values: Array) -> Array:
    """Logarithm of the softmax of each row, without overflow."""
    xp = backend.xp
    values = values - xp.max(values, axis=1, keepdims=True)
    return values - xp.log(xp.sum(xp.exp(values), axis=1, keepdims=True))
