"""Heads of features that are standardised within each domain, for unlabelled images of a target.

The mean and the standard deviation of a domain are taken with weights under which its classes have
the mixture of the training domains (:mod:`oodzoo.heads.adaptive`). A training domain has labels;
where it is left out, and for the target, the mixture is estimated from the predictions of a pool of
plain heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oodzoo.combination.predictions import HeadPredictions
from oodzoo.features.columns import Samples
from oodzoo.heads.adaptive import (
    Confusion,
    class_weights,
    estimate_mixture,
    weighted_mean_and_std,
)
from oodzoo.heads.kinds import best_setting
from oodzoo.heads.paths import left_out_paths

STANDARDISED = "standardised"
"""The kind of a logistic regression of features standardised within each domain."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ImageWeights:
    """Weights of images with which the classes have the same mixture in each domain.

    Attributes
    ----------
    labelled, predicted : list of arrays (n,)
        For each training domain, by its labels, and as if it had none.
    target : array (n,), optional
    confusion : Confusion
        Of the pool, on the training domains.
    """

    labelled: list[Floats]
    predicted: list[Floats]
    target: Floats | None
    confusion: Confusion


def weigh_images(
    probabilities: Sequence[Floats],
    labels: Sequence[NDArray[np.int64]],
    target: Floats | None = None,
) -> ImageWeights:
    """Weigh the images of the training domains and the target.

    Parameters
    ----------
    probabilities : sequence of arrays (n, C)
        Predicted by the pool for each training domain, out of fold.
    labels : sequence of arrays (n,)
        The classes of these images.
    target : array (n, C), optional
        Probabilities predicted for the target.
    """
    confusion = Confusion.of(probabilities, labels)
    n_classes = len(confusion.reference)
    labelled, predicted = [], []
    for at, (here, truth) in enumerate(zip(probabilities, labels, strict=True)):
        shares = np.bincount(truth, minlength=n_classes) / len(truth)
        factors = np.divide(confusion.reference, shares, out=np.zeros(n_classes), where=shares > 0)
        labelled.append(factors[truth])
        others = [other for other in range(len(labels)) if other != at]
        known = Confusion.of([probabilities[i] for i in others], [labels[i] for i in others])
        predicted.append(_weights(here, known))
    of_target = None if target is None else _weights(target, confusion)
    return ImageWeights(labelled, predicted, of_target, confusion)


def _weights(probabilities: Floats, confusion: Confusion) -> Floats:
    mixture = estimate_mixture(probabilities, confusion)
    return class_weights(probabilities, mixture, confusion.reference)


def standardised_predictions(
    samples: Samples,
    target: NDArray[np.float32] | None,
    n_classes: int,
    weights: ImageWeights,
    *,
    device: str | None = None,
) -> HeadPredictions:
    """Predictions of a head of standardised features, out of fold and for the target.

    Parameters
    ----------
    samples : Samples
        Of the training domains, numbered from 0 and in order.
    target : array (n, d), optional
        Features of the target.
    """
    labelled = standardise(samples, weights.labelled)
    numbers = range(len(weights.labelled))
    paths, labels = [], []
    for left_out in numbers:
        rows = samples.domains == left_out
        features = labelled.features.copy()
        features[rows] = _standardised(samples.features[rows], weights.predicted[left_out])
        (path,) = left_out_paths(
            labelled._replace(features=features), n_classes, [{left_out}], device=device
        )
        paths.append(path)
        labels.append(samples.labels[rows])
    setting = best_setting(paths, labels)
    out_of_fold = [path[setting] for path in paths]
    if target is None or weights.target is None:
        return HeadPredictions(setting, out_of_fold)
    number, rest = len(numbers), _standardised(target, weights.target)
    together = Samples(
        np.concatenate([labelled.features, rest]),
        np.concatenate([samples.labels, np.zeros(len(rest), np.int64)]),
        np.concatenate([samples.domains, np.full(len(rest), number)]),
    )
    (test,) = left_out_paths(together, n_classes, [{number}], device=device)
    return HeadPredictions(setting, out_of_fold, test[setting])


def standardise(samples: Samples, weights: Sequence[Floats]) -> Samples:
    """Standardise the features of each domain by their weighted mean and standard deviation."""
    features = np.empty(samples.features.shape, np.float32)
    for domain, here in enumerate(weights):
        rows = samples.domains == domain
        features[rows] = _standardised(samples.features[rows], here)
    return samples._replace(features=features)


def _standardised(features: NDArray[np.float32], weights: Floats) -> NDArray[np.float32]:
    mean, std = weighted_mean_and_std(features, weights)
    scale = np.divide(1, std, out=np.zeros_like(std), where=std > 0)
    return ((features - mean) * scale).astype(np.float32)
