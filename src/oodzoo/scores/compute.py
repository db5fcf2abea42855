"""Registered scores of the models of a source: what each needs is gathered and handed over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo import scores
from oodzoo.backend import to_numpy
from oodzoo.errors import InputError
from oodzoo.features.source import FeatureSource
from oodzoo.scores import Score


class MissingHeadError(InputError):
    """A score needs the head that a model was pre-trained with, and there is none."""


def peer_score(
    source: FeatureSource, score: Score, model: str, domains: Sequence[str] | None = None
) -> float:
    """A score of one model, on all domains or some.

    Raises
    ------
    MissingHeadError
        If the score needs what the model does not have.
    InputError
        If a score from outside oodzoo fails, or a score is no finite number.
    """
    domains = source.domains if domains is None else domains
    labels = [source.labels(domain) for domain in domains]
    arguments: list[NDArray[Any]] = [_needed(source, score, model, domains), np.concatenate(labels)]
    if score.uses_domains:
        arguments.append(np.repeat(list(domains), [len(part) for part in labels]))
    where = f"the score {score.name!r} of model {model!r}"
    try:
        value = float(score.function(*arguments))
    except InputError:
        raise
    except Exception as error:
        if is_own(score):
            raise
        raise InputError(f"{where} failed: {type(error).__name__}: {error}") from error
    if not np.isfinite(value):
        raise InputError(f"{where} is {value}; a score must be a finite number")
    return value


def peer_scores(
    source: FeatureSource, name: str, domains: Sequence[str]
) -> tuple[dict[str, float], dict[str, str]]:
    """A score of each model on some domains, and why it cannot be had of others."""
    score = scores.get(name)
    totals: dict[str, float] = {}
    left_out: dict[str, str] = {}
    for model in source.models:
        try:
            totals[model] = peer_score(source, score, model, domains)
        except MissingHeadError as error:
            left_out[model] = str(error)
    return totals, left_out


def is_own(score: Score) -> bool:
    """Whether a score comes with oodzoo."""
    module = getattr(score.function, "__module__", None)  # None where code was typed in
    return isinstance(module, str) and module.startswith("oodzoo.")


def _needed(
    source: FeatureSource, score: Score, model: str, domains: Sequence[str]
) -> NDArray[Any]:
    if score.needs == "features":
        parts = [to_numpy(part) for d in domains for part, _ in source.shards(model, d)]
        return np.concatenate(parts)
    found = [source.logits(model, domain) for domain in domains]
    known = [part for part in found if part is not None]
    if len(known) < len(found):
        raise MissingHeadError(f"{score.name} needs the outputs of a classifier head, it has none")
    logits = np.concatenate(known)
    return _softmax(logits) if score.needs == "probabilities" else logits.argmax(axis=1)


def _softmax(logits: NDArray[Any]) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    exponentials = np.exp(shifted)
    probabilities: NDArray[np.float64] = exponentials / exponentials.sum(axis=1, keepdims=True)
    return probabilities
