"""Linear discriminants: Gaussian classes with a common covariance."""

from __future__ import annotations

from oodzoo.backend import Array, Backend

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
    xp = backend.xp
    directions = xp.linalg.solve(covariance, means.T)
    offsets = log_priors - xp.sum(means.T * directions, axis=0) / 2
    return X @ directions + offsets


def log_softmax(backend: Backend, values: Array) -> Array:
    """Logarithm of the softmax of each row, without overflow."""
    xp = backend.xp
    values = values - xp.max(values, axis=1, keepdims=True)
    return values - xp.log(xp.sum(xp.exp(values), axis=1, keepdims=True))
