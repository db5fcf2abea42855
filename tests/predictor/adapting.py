"""A predictor that can adapt, made from a fitted one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import oodzoo
from oodzoo.extraction.columns import Samples
from oodzoo.extraction.features import StoreSource
from oodzoo.linear.heads.adaptive import AdaptiveHead, Confusion
from oodzoo.linear.heads.linear import LinearHead, fit_head
from oodzoo.linear.heads.samples import mean_and_std, standardised


def with_adaptive(predictor: oodzoo.Predictor, store: oodzoo.FeatureStore) -> oodzoo.Predictor:
    """The predictor with an adaptive head: half of it plain, half on standardised features."""
    source = StoreSource(store, predictor.columns.models)
    samples = predictor.columns.samples(source, store.domains)
    n_classes, C = len(store.classes), predictor.head.C
    probabilities, labels, scaled = [], [], np.empty_like(samples.features)
    for domain in range(len(store.domains)):
        rows = samples.domains == domain
        others = Samples(*(array[~rows] for array in samples))
        head = fit_head(others, n_classes, C=C)
        probabilities.append(head.probabilities(samples.features[rows]))
        labels.append(samples.labels[rows])
        scaled[rows] = standardised(samples.features[rows], *mean_and_std(samples.features[rows]))
    centred = fit_head(samples._replace(features=scaled), n_classes, C=C)
    adaptive = AdaptiveHead(
        _half(predictor.head), _half(centred), Confusion.of(probabilities, labels), predictor.head
    )
    return replace(predictor, adaptive=adaptive, device="cpu")


def _half(head: LinearHead) -> LinearHead:
    return replace(head, weights=head.weights / 2, bias=head.bias / 2)
