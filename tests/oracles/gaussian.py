"""The distance of an image from the training images, literally as its formula says."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def distance(
    x: Floats, features: Floats, labels: NDArray[np.int64], domains: NDArray[np.int64], axes: int
) -> float:
    """Of one image from the nearest class of a domain, not divided by any limit."""
    mean, std = features.mean(axis=0), features.std(axis=0)

    def direction(row: Floats) -> Floats:
        z = np.array([(row[j] - mean[j]) / std[j] if std[j] else 0.0 for j in range(len(row))])
        unit: Floats = z / np.sqrt((z**2).sum())
        return unit

    z = np.array([direction(row) for row in features])
    cells = sorted(set(zip(domains.tolist(), labels.tolist(), strict=True)))
    centres = {
        cell: np.mean([z[i] for i in range(len(z)) if (domains[i], labels[i]) == cell], axis=0)
        for cell in cells
    }
    covariance = np.zeros((z.shape[1], z.shape[1]))
    for i in range(len(z)):
        deviation = z[i] - centres[int(domains[i]), int(labels[i])]
        covariance += np.outer(deviation, deviation) / len(z)
    values, vectors = np.linalg.eigh(covariance)
    values, vectors = values[::-1], vectors[:, ::-1]
    rest = values[axes:].mean()
    model = rest * np.eye(len(values))
    for value, vector in zip(values[:axes], vectors.T, strict=False):
        model += (value - rest) * np.outer(vector, vector)
    inverse = np.linalg.inv(model)
    new = direction(x)
    return min(float(np.sqrt((new - c) @ inverse @ (new - c))) for c in centres.values())
