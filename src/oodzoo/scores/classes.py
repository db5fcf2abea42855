"""Counts and means per class; centred and standardised features."""

from __future__ import annotations

from typing import NamedTuple

from oodzoo.backend import Array, Backend
from oodzoo.scores.inputs import Codes

# A feature whose deviation relative to its values is below this is constant up to rounding.
_CONSTANT = 1e-10


class ClassMeans(NamedTuple):
    """One-hot labels (n, C), class counts (C,), and mean features per class (C, d)."""

    one_hot: Array
    counts: Array
    means: Array


def one_hot(backend: Backend, y: Codes, n_classes: int) -> Array:
    """One-hot labels (n, C): 1 if sample i is of class c, else 0."""
    xp = backend.xp
    classes = xp.arange(n_classes, device=backend.device)
    return xp.astype(backend.asarray(y)[:, None] == classes[None, :], xp.float64)


def class_means(backend: Backend, X: Array, y: Codes, n_classes: int) -> ClassMeans:
    """Compute the means of classes that have at least one sample each."""
    Y = one_hot(backend, y, n_classes)
    counts = backend.xp.sum(Y, axis=0)
    return ClassMeans(Y, counts, (Y.T @ X) / counts[:, None])


def centre(backend: Backend, X: Array) -> Array:
    """Subtract the mean; a constant feature becomes exactly zero."""
    xp = backend.xp
    lowest, highest = xp.min(X, axis=0), xp.max(X, axis=0)
    # The mean of equal numbers can differ from them by rounding.
    return X - xp.where(lowest == highest, lowest, xp.mean(X, axis=0))


def standardise(backend: Backend, X: Array) -> Array:
    """Scale to zero mean and unit variance; a constant feature becomes zero, not noise."""
    xp = backend.xp
    size = xp.max(xp.abs(X), axis=0)
    X = centre(backend, X)
    deviation = xp.sqrt(xp.mean(X * X, axis=0))
    varies = deviation > _CONSTANT * size
    X = xp.where(varies, X, xp.zeros_like(X))
    return X / xp.where(varies, deviation, xp.ones_like(deviation))
