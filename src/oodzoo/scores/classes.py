"""Counts and means per class; centred and standardised features."""

from __future__ import annotations

from typing import NamedTuple

from oodzoo.backend import Array, Backend
from oodzoo.scores.inputs import Codes, float64_blocks

# A feature whose deviation relative to its values is below this is constant up to rounding.
CONSTANT = 1e-10


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
    return X - column_centre(backend, X)


def column_centre(backend: Backend, X: Array) -> Array:
    """Compute the mean of each feature (d,), in float64; the value itself of a constant feature."""
    xp = backend.xp
    lowest, highest, total = None, None, None
    for _, block in float64_blocks(backend, X):
        low, high, part = xp.min(block, axis=0), xp.max(block, axis=0), xp.sum(block, axis=0)
        lowest = low if lowest is None else xp.minimum(lowest, low)
        highest = high if highest is None else xp.maximum(highest, high)
        total = part if total is None else total + part
    # The mean of equal numbers can differ from them by rounding.
    return xp.where(lowest == highest, lowest, total / X.shape[0])


def standardise(backend: Backend, X: Array) -> Array:
    """Scale to zero mean and unit variance; a constant feature becomes zero, not noise."""
    xp = backend.xp
    size = xp.max(xp.abs(X), axis=0)
    X = centre(backend, X)
    deviation = xp.sqrt(xp.mean(X * X, axis=0))
    varies = deviation > CONSTANT * size
    X = xp.where(varies, X, xp.zeros_like(X))
    return X / xp.where(varies, deviation, xp.ones_like(deviation))
