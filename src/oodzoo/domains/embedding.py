r"""Coordinates of samples without what their labels explain, from the features of several models.

For each model, the part of the features that is a linear function of the labels is removed (for
classes: the mean of each class), because domains should not be classes. What is left is projected
onto its first principal components, each divided by its standard deviation:

.. math:: R = \Phi - \tilde Y (\tilde Y^\top \tilde Y)^{+} \tilde Y^\top \Phi,\qquad
   Z = R V_p \operatorname{diag}(\sigma_1, \dots, \sigma_p)^{-1},

with :math:`\tilde Y = [1, Y]`. The coordinates of all models are concatenated, so that each model
weighs the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.extmath import randomized_svd

from oodzoo.backend import to_numpy
from oodzoo.errors import InputError
from oodzoo.features.source import FeatureSource

Floats = NDArray[np.float64]

PER_MODEL = 10
"""Principal components of a model."""

_FITTED = 5000
"""Samples that principal components are computed from."""


def embed(source: FeatureSource, models: Sequence[str], *, seed: int = 0) -> Floats:
    """Return the coordinates (n, p) of the samples of all domains, in the order of the source.

    Raises
    ------
    InputError
        If no feature varies within the classes.
    """
    targets = np.concatenate([_targets(source, domain) for domain in source.domains])
    parts = [_of_model(source, model, targets, seed) for model in models]
    found = np.concatenate(parts, axis=1)
    if not found.shape[1]:
        raise InputError("the features do not vary within a class; they cannot be clustered")
    return found


def principal_components(matrix: Floats, most: int) -> Floats:
    """Return the first principal components (n, at most `most`) of a matrix, not scaled."""
    centred = matrix - matrix.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred)
    order = np.argsort(-values)[:most]
    kept = vectors[:, order[values[order] > 1e-10 * values.max()]]
    # eigenvectors are unique up to their sign
    kept = kept * np.sign(kept[np.abs(kept).argmax(axis=0), np.arange(kept.shape[1])])
    projected: Floats = centred @ kept
    return projected


def _targets(source: FeatureSource, domain: str) -> Floats:
    """Return the matrix [1, Y] of a domain."""
    labels = source.labels(domain)
    if labels.ndim == 1:
        labels = np.eye(len(source.classes))[labels]
    return np.concatenate([np.ones((len(labels), 1)), labels], axis=1)


def _of_model(source: FeatureSource, model: str, targets: Floats, seed: int) -> Floats:
    sums = np.zeros((targets.shape[1], source.facts(model).feature_dim))
    for rows, block in _blocks(source, model):
        sums += targets[rows].T @ block
    weights = np.linalg.pinv(targets.T @ targets, hermitian=True) @ sums
    n = len(targets)
    sample = np.sort(np.random.default_rng(seed).permutation(n)[:_FITTED])
    chosen = np.zeros(n, bool)
    chosen[sample] = True
    rest = np.concatenate(
        [(block - targets[rows] @ weights)[chosen[rows]] for rows, block in _blocks(source, model)]
    )
    most = min(PER_MODEL, *rest.shape)
    _, scales, components = randomized_svd(rest, most, random_state=seed)
    total = np.sqrt((rest**2).sum())
    varying = scales > 1e-6 * max(total, np.sqrt((sums**2).sum()) / n)
    axes = components[varying].T / (scales[varying] / np.sqrt(len(rest)))
    projected = [(block - targets[rows] @ weights) @ axes for rows, block in _blocks(source, model)]
    return np.concatenate(projected)


def _blocks(source: FeatureSource, model: str) -> Iterator[tuple[slice, Floats]]:
    """Yield the rows and the features of each block of all domains."""
    start = 0
    for domain in source.domains:
        for features, _ in source.shards(model, domain):
            block = to_numpy(features).astype(np.float64)
            yield slice(start, start + len(block)), block
            start += len(block)
