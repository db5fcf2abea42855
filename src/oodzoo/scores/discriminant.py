"""Linear discriminants: Gaussian classes that share one covariance."""

from __future__ import annotations

from oodzoo.backend import Array, Backend

# What is taken of the spread of the data where the classes have none of their own.
_COLLAPSED = 1e-12


def shrink(backend: Backend, covariance: Array, shrinkage: float, spread: float) -> Array:
    """(1 - λ) S + λ μ I with μ the mean variance.

    `spread` is the mean variance of all the data. Where every class is a single point S is zero
    and has no inverse; a sliver of the spread then stands in for it, so that distances are very
    large instead of undefined.
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
    """ln p(x, c) for each sample and class (n, C), up to what is the same for all classes."""
    xp = backend.xp
    directions = xp.linalg.solve(covariance, means.T)
    offsets = log_priors - xp.sum(means.T * directions, axis=0) / 2
    return X @ directions + offsets


def log_softmax(backend: Backend, values: Array) -> Array:
    """ln of the softmax of each row, without overflow."""
    xp = backend.xp
    values = values - xp.max(values, axis=1, keepdims=True)
    return values - xp.log(xp.sum(xp.exp(values), axis=1, keepdims=True))
