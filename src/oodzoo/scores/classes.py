"""Counts and means per class, and features on a common footing."""

from __future__ import annotations

from typing import NamedTuple

from oodzoo.backend import Array, Backend
from oodzoo.scores.inputs import Codes

# A feature whose deviation is this small beside its values is constant, up to rounding.
_CONSTANT = 1e-10


class ClassMeans(NamedTuple):
    """One-hot classes (n, C), their counts (C,), and the means of the features (C, d)."""

    one_hot: Array
    counts: Array
    means: Array


def one_hot(where: Backend, y: Codes, n_classes: int) -> Array:
    """Y with Y_ic = 1 where sample i is of class c, else 0."""
    xp = where.xp
    classes = xp.arange(n_classes, device=where.device)
    return xp.astype(where.asarray(y)[:, None] == classes[None, :], xp.float64)


def class_means(where: Backend, X: Array, y: Codes, n_classes: int) -> ClassMeans:
    """The mean of each class; every class has a sample."""
    Y = one_hot(where, y, n_classes)
    counts = where.xp.sum(Y, axis=0)
    return ClassMeans(Y, counts, (Y.T @ X) / counts[:, None])


def centre(where: Backend, X: Array) -> Array:
    """X less its mean; a constant feature becomes zero exactly."""
    xp = where.xp
    lowest, highest = xp.min(X, axis=0), xp.max(X, axis=0)
    # The mean of equal numbers can differ from them in the last digit.
    return X - xp.where(lowest == highest, lowest, xp.mean(X, axis=0))


def standardise(where: Backend, X: Array) -> Array:
    """X less its mean, over its deviation; a constant feature becomes zero, not noise."""
    xp = where.xp
    size = xp.max(xp.abs(X), axis=0)
    X = centre(where, X)
    deviation = xp.sqrt(xp.mean(X * X, axis=0))
    varies = deviation > _CONSTANT * size
    X = xp.where(varies, X, xp.zeros_like(X))
    return X / xp.where(varies, deviation, xp.ones_like(deviation))
