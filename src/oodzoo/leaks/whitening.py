"""Whitened features: what sets an image apart from the others of a data set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

Features = NDArray[np.float32]

SHRINKAGE = 0.1
"""Added to every variance, relative to the mean variance."""

WIDEST = 4096
"""Features of a model that are used; evenly spaced ones of a model with more."""


@dataclass(frozen=True)
class Whitening:
    r"""A linear map of features to coordinates of equal variance, and then to unit length.

    With the mean :math:`\mu` and the covariance :math:`C` of a sample of images,

    .. math:: z = L^{-1} (x - \mu), \quad L L^\top = C + \lambda I, \quad
              \lambda = 0.1 \, \frac{\operatorname{tr} C}{\min(d, n - 1)}

    The inner product of two rows :math:`z / |z|` is the cosine similarity in the metric of the
    data set: what all images of a domain or a class share counts little, what only few of them
    have counts much. :math:`\lambda` keeps directions without signal from counting most.
    """

    columns: NDArray[np.intp]
    mean: NDArray[np.float64]
    transform: Features
    """The inverse of L; zeros if all images have the same features."""

    @classmethod
    def fit(cls, features: NDArray[np.floating]) -> Whitening:
        """Compute the map from the features (n, d) of a sample of the images."""
        n, width = features.shape
        columns = np.linspace(0, width - 1, min(width, WIDEST)).round().astype(np.intp)
        sample = np.asarray(features, np.float64)[:, columns]
        mean = sample.mean(axis=0)
        centred = sample - mean
        d = len(columns)
        total = float(np.square(centred).sum()) / n
        if total == 0:
            return cls(columns, mean, np.zeros((d, d), np.float32))
        scaled = (centred * np.sqrt(d / total)).astype(np.float32)  # the trace is d
        covariance = (scaled.T @ scaled).astype(np.float64) / n
        covariance[np.diag_indices(d)] += SHRINKAGE * d / min(d, n - 1)
        lower = np.linalg.cholesky(covariance)
        inverse = solve_triangular(lower, np.eye(d), lower=True) * np.sqrt(d / total)
        return cls(columns, mean, inverse.astype(np.float32))

    @property
    def width(self) -> int:
        return len(self.columns)

    def unit_rows(self, features: NDArray[np.floating]) -> Features:
        """Whiten features (n, d) and scale each row to unit length; zeros stay zeros."""
        centred = (features[:, self.columns] - self.mean).astype(np.float32)
        rows: Features = centred @ self.transform.T
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float32).tiny)
        return rows
