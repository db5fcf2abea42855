"""A pool of heads, with the weights of :mod:`oodzoo.combining.pool_weights`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import replace

import numpy as np

from oodzoo.combining.adaptation import (
    STANDARDISED,
    ImageWeights,
    pool_for_target,
    standardise,
    weigh_images,
    with_standardised_heads,
)
from oodzoo.combining.combination import Chosen, Combination, FinalHead, ForSets, Training
from oodzoo.combining.one_head import SINGLE
from oodzoo.combining.pool_weights import Pool, choose_pool, left_out_pools, pool_of
from oodzoo.combining.predictions import (
    TRAINED,
    Head,
    Heads,
    Pooled,
    find_zero_shot,
    fit_kind,
    pool_columns,
)
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.features import FeatureSource
from oodzoo.linear.heads.adaptive import AdaptiveHead, weighted_mean_and_std
from oodzoo.linear.heads.linear import LinearHead
from oodzoo.linear.heads.samples import require_classes_for

C_OF_A_POOL = 1.0
"""Stands for the inverse regularisation strength of a pool, which has several."""


class PoolOfHeads(Combination):
    """The weighted mean of heads, each on one model."""

    name = "pool"
    title = "Pool"
    words = "a pool of heads of {models}"
    made = "a pool: the weighted mean of {pooled} of heads, each on one model"
    from_heads = True
    adapts = True

    def choose(self, training: Training) -> Chosen:
        return self._chosen(training, choose_pool(training.heads, training.limits))

    def _chosen(self, training: Training, pool: Pool) -> Chosen:
        source = training.source
        return Chosen(
            pool_columns(source, pool.models),
            len(Columns.all_of(source, source.models)),
            dict(zip(pool.members, pool.weights, strict=True)),
            pool.test,
        )

    def choose_for_target(self, training: Training, chosen: Chosen) -> Chosen:
        assert training.target is not None
        heads, plain = training.heads, pool_of(training.heads, chosen.weights)
        found = pool_for_target(
            training.source, heads, plain, training.target, training.limits, device=training.device
        )
        return self._chosen(training, found.pool)

    def left_out(self, training: Training, chosen: Chosen) -> Pooled:
        return left_out_pools(training.heads, training.limits)

    def for_sets(self, training: Training, chosen: Chosen) -> ForSets:
        heads, limits, domains = training.heads_by_test, training.limits, training.source.domains
        values = left_out_pools(heads[None], limits).out_of_fold
        if len(heads) == 1:  # of two domains, one cannot choose a pool
            return ForSets(values, None)
        without = {}
        for at, domain in enumerate(domains):
            outputs = choose_pool(heads[domain], limits).test
            assert outputs is not None
            without[domain] = [*values[:at], outputs, *values[at + 1 :]]
        return ForSets(values, without)

    def fit(self, training: Training, chosen: Chosen) -> FinalHead:
        """Fit a pool, and for classes one that adapts to unlabelled images."""
        pool = pool_of(training.heads, chosen.weights)
        if training.target is None:
            return fit_pool(training.source, training.heads, pool, device=training.device)
        return fit_pool_for_target(training, pool)

    def shown(self, models: Sized) -> str:
        """A pool of one model is a single model."""
        return SINGLE.name if len(models) == 1 else self.name


POOL = PoolOfHeads()


def fit_pool(
    source: FeatureSource,
    heads: Heads,
    pool: Pool,
    *,
    given: Mapping[Head, LinearHead] | None = None,
    device: str | None = None,
) -> FinalHead:
    """Fit a pool, and for classes, with the same models, one that adapts to images of a domain.

    `given` are heads that are trained already, on all domains: those of fine-tuned models. The
    features of such a model have seen the labels of all domains, so no other head is fitted to
    them.
    """
    given = given or {}
    columns = pool_columns(source, pool.models)
    base = _fit_members(source, heads, pool.members, columns, None, pool.weights, given)
    frozen = [model for model in pool.models if model not in {head.model for head in given}]
    if not source.task.one_class or not frozen:
        return FinalHead(columns, base, _weights(pool))
    weights = weigh_images([np.exp(each) for each in pool.out_of_fold], heads.labels)
    known = {head: p for head, p in heads.candidates.items() if head.model in pool.models}
    candidates = with_standardised_heads(
        source, replace(heads, candidates=known), frozen, weights, device=device
    )
    chosen = choose_pool(candidates)
    adaptive = _adaptive(source, candidates, chosen, columns, base, weights, given)
    return FinalHead(columns, base, _weights(pool), adaptive)


def fit_pool_for_target(training: Training, plain: Pool) -> FinalHead:
    """Fit a pool for a target of which there are unlabelled images."""
    source, heads, features = training.source, training.heads, training.target
    assert features is not None
    require_classes_for(source.task, "a pool that adapts to a target")
    columns = pool_columns(source, plain.models)
    base = _fit_members(source, heads, plain.members, columns, None, plain.weights)
    together = np.concatenate([features(model) for model in plain.models], axis=1)
    plain = replace(plain, test=np.log(np.maximum(base.probabilities(together), 1e-30)))
    found = pool_for_target(source, heads, plain, features, training.limits, device=training.device)
    models = tuple(dict.fromkeys([*found.pool.models, *plain.models]))
    every = pool_columns(source, models)
    base = _fit_members(source, heads, plain.members, every, None, plain.weights)
    adaptive = _adaptive(source, found.heads, found.pool, every, base, found.weights)
    weights = found.weights.target
    if weights is None:
        raise ValueError("the images of the target have no weights")
    moments = [weighted_mean_and_std(features(model), weights) for model in models]
    mean, std = (np.concatenate(parts) for parts in zip(*moments, strict=True))
    return FinalHead(every, adaptive.for_domain(mean, std), _weights(found.pool), adaptive)


def _weights(pool: Pool) -> dict[str, float]:
    """The weight of each model, the sum over its heads in a pool."""
    shares = dict.fromkeys(pool.models, 0.0)
    for head, weight in zip(pool.members, pool.weights, strict=True):
        shares[head.model] += weight
    return shares


def _adaptive(
    source: FeatureSource,
    heads: Heads,
    pool: Pool,
    columns: Columns,
    base: LinearHead,
    weights: ImageWeights,
    given: Mapping[Head, LinearHead] | None = None,
) -> AdaptiveHead:
    """The heads of a pool as one that adapts; the plain and the standardised ones add up."""
    shares = dict(zip(pool.members, pool.weights, strict=True))
    plain = {head: share for head, share in shares.items() if head.kind != STANDARDISED}
    standardised = {head: share for head, share in shares.items() if head.kind == STANDARDISED}
    return AdaptiveHead(
        _fit_members(source, heads, list(plain), columns, None, list(plain.values()), given),
        _fit_members(
            source, heads, list(standardised), columns, weights, list(standardised.values())
        ),
        weights.confusion,
        base,
    )


def _fit_members(
    source: FeatureSource,
    heads: Heads,
    members: Sequence[Head],
    columns: Columns,
    weights: ImageWeights | None,
    shares: Sequence[float],
    given: Mapping[Head, LinearHead] | None = None,
) -> LinearHead:
    """Fit some heads of a pool on all domains, and add them up as one head, with their shares.

    Heads that are given are not fitted.
    """
    n_outputs = len(source.classes)
    starts = _starts(columns)
    total, bias = np.zeros((n_outputs, len(columns))), np.zeros(n_outputs)
    fitted: dict[tuple[str, str, int], LinearHead] = {}
    for head, share in zip(members, shares, strict=True):
        key = head.model, head.kind, heads.candidates[head].setting
        if key not in fitted:
            fitted[key] = (given or {}).get(head) or _fit_member(source, heads, head, weights)
        start, each = starts[head.model], fitted[key]
        total[:, start : start + each.weights.shape[1]] += share * each.weights
        bias += share * each.bias
    return LinearHead(total, bias, C_OF_A_POOL, source.task)


def _fit_member(
    source: FeatureSource, heads: Heads, head: Head, weights: ImageWeights | None
) -> LinearHead:
    samples = pool_columns(source, [head.model]).samples(source, source.domains)
    if weights is not None:
        samples = standardise(samples, weights.labelled)
    kind = TRAINED if head.kind == STANDARDISED else head.kind
    setting = heads.candidates[head].setting
    zero_shot = find_zero_shot(source, head.model)
    n_outputs = len(source.classes)
    return fit_kind(source.task, kind, samples, n_outputs, setting, zero_shot)


def _starts(columns: Columns) -> Mapping[str, int]:
    """The first column of each model among the concatenated ones."""
    sizes = [len(part) for part in columns.by_model.values()]
    return dict(zip(columns.by_model, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))
