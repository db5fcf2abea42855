"""Peer scores of the networks of a source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zood import scores
from zood.access import FeatureSource
from zood.backend import to_numpy


def peer_scores(
    source: FeatureSource, name: str, domains: Sequence[str]
) -> tuple[dict[str, float], dict[str, str]]:
    """A peer score of each network on some domains, and why it cannot be had of others."""
    known = scores.get(name)
    y = np.concatenate([source.labels(d) for d in domains])
    which = np.concatenate([np.full(len(source.labels(d)), d) for d in domains])
    totals: dict[str, float] = {}
    left_out: dict[str, str] = {}
    for model in source.models:
        if known.needs == "features":
            parts = [f for d in domains for f, _ in source.shards(model, d)]
            given = np.concatenate([to_numpy(part) for part in parts])
        else:
            logits = [source.logits(model, d) for d in domains]
            if any(part is None for part in logits):
                left_out[model] = f"{name} needs the outputs of a classifier head, it has none"
                continue
            given = np.concatenate([part for part in logits if part is not None])
            given = _softmax(given) if known.needs == "probabilities" else given.argmax(axis=1)
        arguments = (given, y, which) if known.uses_domains else (given, y)
        totals[model] = float(known.function(*arguments))
    return totals, left_out


def _softmax(logits: NDArray[Any]) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    exponentials = np.exp(shifted)
    probabilities: NDArray[np.float64] = exponentials / exponentials.sum(axis=1, keepdims=True)
    return probabilities
