"""Pools for a target of which there are unlabelled images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from oodzoo.combination.adaptation import (
    STANDARDISED,
    ImageWeights,
    standardised_predictions,
    weigh_images,
)
from oodzoo.combination.heads import Heads, Pool, choose_pool
from oodzoo.combination.pool import Limits
from oodzoo.combination.predictions import Head, HeadPredictions
from oodzoo.combination.zero_shot import pool_columns
from oodzoo.features.source import FeatureSource, groups_of


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
        Predictions for the training domains, and for the target as the test domain.
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
