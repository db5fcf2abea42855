"""Compute registered scores for the models of a feature source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from oodzoo.backend import to_numpy
from oodzoo.errors import InputError
from oodzoo.features.source import FeatureSource
from oodzoo.scores import registry
from oodzoo.scores.registry import Score


class MissingHeadError(InputError):
    """A score needs the pre-training head of a model that has none."""


def compute_score(
    source: FeatureSource, score: Score, model: str, domains: Sequence[str] | None = None
) -> float:
    """Compute a score of one model, on some domains or all.

    Raises
    ------
    MissingHeadError
        If the score needs a head that the model does not have.
    InputError
        If a score of another package fails, or its value is not finite.
    """
    domains = source.domains if domains is None else domains
    labels = [source.labels(domain) for domain in domains]
    arguments = [_first_argument(source, score, model, domains), np.concatenate(labels)]
    if score.uses_domains:
        arguments.append(np.repeat(list(domains), [len(part) for part in labels]))
    context = f"score {score.name!r} of model {model!r}"
    try:
        value = float(score.function(*arguments))
    except InputError:
        raise
    except Exception as error:
        if is_own(score):
            raise
        raise InputError(f"{context} failed: {type(error).__name__}: {error}") from error
    if not np.isfinite(value):
        raise InputError(f"{context} must be a finite number, got {value}")
    return value


def compute_scores(
    source: FeatureSource, name: str, domains: Sequence[str]
) -> tuple[dict[str, float], dict[str, str]]:
    """Compute a score of each model on some domains; also return why models were skipped."""
    score = registry.get(name)
    totals: dict[str, float] = {}
    left_out: dict[str, str] = {}
    for model in source.models:
        try:
            totals[model] = compute_score(source, score, model, domains)
        except MissingHeadError as error:
            left_out[model] = str(error)
    return totals, left_out


def is_own(score: Score) -> bool:
    """Whether a score is part of oodzoo."""
    module = getattr(score.function, "__module__", None)  # None for code entered interactively
    return isinstance(module, str) and module.startswith("oodzoo.")


def _first_argument(
    source: FeatureSource, score: Score, model: str, domains: Sequence[str]
) -> NDArray[Any]:
    if score.needs == "features":
        parts = [to_numpy(part) for d in domains for part, _ in source.shards(model, d)]
        return np.concatenate(parts)
    found = [source.logits(model, domain) for domain in domains]
    known = [part for part in found if part is not None]
    if len(known) < len(found):
        raise MissingHeadError(f"{score.name} needs a classifier head, and the model has none")
    logits = np.concatenate(known)
    outputs: NDArray[Any] = logits.argmax(axis=1)
    if score.needs == "probabilities":
        outputs = softmax(logits.astype(np.float64), axis=1)
    return outputs
