"""Heads of features that are standardised within each domain, for unlabelled images of a target.

The mean and the standard deviation of a domain are taken with weights under which its classes have
the mixture of the training domains (:mod:`oodzoo.linear.heads.adaptive`). A training domain has
labels; where it is left out, and for the target, the mixture is estimated from the predictions of a
pool of plain heads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from oodzoo.combining.pool_weights import Pool, choose_pool
from oodzoo.combining.predictions import SHARES, Head, HeadPredictions, Heads, pool_columns
from oodzoo.core.limits import Limits
from oodzoo.extraction.columns import Samples
from oodzoo.extraction.features import FeatureSource, groups_of
from oodzoo.linear.heads.adaptive import (
    Confusion,
    class_weights,
    estimate_mixture,
    weighted_mean_and_std,
)
from oodzoo.linear.heads.kinds import best_settings, folds_within
from oodzoo.linear.heads.paths import Split
from oodzoo.linear.heads.ridge import left_out_ridges, predict_ridge_splits
from oodzoo.linear.heads.samples import Groups
from oodzoo.tasks import CLASSIFICATION

STANDARDISED = "standardised"
"""The kind of a head of features standardised within each domain."""

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
    groups: Groups | None = None,
    device: str | None = None,
) -> dict[float, HeadPredictions]:
    """Predictions of heads of standardised features, by their share of held-out domains.

    Parameters
    ----------
    samples : Samples
        Of the training domains, numbered from 0 and in order.
    target : array (n, d), optional
        Features of the target.
    groups : sequence, optional
        Groups of samples that the cross-validation within the domains keeps whole.
    """
    labelled = standardise(samples, weights.labelled)
    numbers = range(len(weights.labelled))
    paths, labels = [], []
    for left_out in numbers:
        rows = samples.domains == left_out
        features = labelled.features.copy()
        features[rows] = _standardised(samples.features[rows], weights.predicted[left_out])
        (path,) = left_out_ridges(
            labelled._replace(features=features), n_classes, [{left_out}], device=device
        )
        paths.append(path)
        labels.append(samples.labels[rows])
    features, truth, domains = labelled
    if target is not None and weights.target is not None:
        rest = _standardised(target, weights.target)
        features = np.concatenate([features, rest])
        truth = np.concatenate([truth, np.zeros(len(rest), np.int64)])
    training = np.arange(len(features)) < len(domains)
    folds = np.full(len(features), -1)
    folds[training] = folds_within(CLASSIFICATION, samples.labels, samples.domains, groups)
    several = len(np.unique(folds[training])) > 1
    every = Samples(features, truth, folds)
    split = Split(training, (folds,) if several else ())
    (found,) = predict_ridge_splits(every, n_classes, [split], device=device)
    inside = None
    if several:
        inside = [found.partitions[0][:, samples.domains == number] for number in numbers]
    result = {}
    settings = best_settings(paths, inside, labels, CLASSIFICATION, SHARES)
    for share, at in zip(SHARES, settings, strict=True):
        result[share] = HeadPredictions(
            at,
            [path[at] for path in paths],
            None if inside is None else [path[at] for path in inside],
            None if target is None else found.rest[at],
        )
    return result


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


@dataclass(frozen=True)
class TargetPool:
    """A pool for a target, its candidates, and the weights of images that these use."""

    pool: Pool
    heads: Heads
    weights: ImageWeights


def pool_for_target(
    source: FeatureSource,
    heads: Heads,
    plain: Pool,
    target: Callable[[str], NDArray[np.float32]],
    limits: Limits | None = None,
    *,
    device: str | None = None,
) -> TargetPool:
    """Choose a pool among plain heads and heads of features standardised within each domain.

    Parameters
    ----------
    source : FeatureSource
    heads : Heads
        Predictions for the training domains, and for the target as the held-out domain.
    plain : Pool
        Chosen among these; its predictions estimate the mixture of classes of a domain.
    target : callable
        Returns the features (n, d) of the target by the name of a model.
    """
    if plain.test is None:
        raise ValueError("the pool has no predictions for the target")
    out_of_fold = [np.exp(each) for each in plain.out_of_fold]
    weights = weigh_images(out_of_fold, heads.labels, np.exp(plain.test))
    candidates = with_standardised_heads(
        source, heads, tuple(heads.alone), weights, target, device=device
    )
    return TargetPool(choose_pool(candidates, limits), candidates, weights)


def with_standardised_heads(
    source: FeatureSource,
    heads: Heads,
    models: Sequence[str],
    weights: ImageWeights,
    target: Callable[[str], NDArray[np.float32]] | None = None,
    *,
    device: str | None = None,
) -> Heads:
    """Add heads of features standardised within each domain to the candidates."""
    added: dict[Head, HeadPredictions] = {}
    for model in models:
        samples = pool_columns(source, [model]).samples(source, heads.domains)
        features = None if target is None else target(model)
        found = standardised_predictions(
            samples,
            features,
            len(source.classes),
            weights,
            groups=groups_of(source, heads.domains),
            device=device,
        )
        added |= {Head(model, STANDARDISED, share): each for share, each in found.items()}
    return replace(heads, candidates=heads.candidates | added)
