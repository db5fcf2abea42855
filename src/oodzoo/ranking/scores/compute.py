"""Compute scores for the models of a feature source.

Of the two ways to compute a score, the cheaper one is taken. With more samples than features it is
computed from moments, where it can be, and the features are read block by block. With fewer, the
Gram matrix of the moments would be larger than the features, which are held in memory. Scores of
all pairs of samples, or of the samples of each class, always need the features; they are held once,
in the number type of the store.
"""

from __future__ import annotations

import numbers
import reprlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from oodzoo.core.backend import Array, backend
from oodzoo.core.errors import InputError
from oodzoo.core.text import one_line
from oodzoo.core.threads import LARGE_PRODUCT, blas_threads
from oodzoo.extraction.source import FeatureSource
from oodzoo.linear.moments import domain_moments
from oodzoo.ranking.scores import registry
from oodzoo.ranking.scores.registry import Score


class MissingHeadError(InputError):
    """A score needs the pre-training head or the text tower of a model that has none."""


def compute_score(
    source: FeatureSource,
    score: Score,
    model: str,
    domains: Sequence[str] | None = None,
    device: str | None = None,
) -> float:
    """Compute a score of one model, on some domains or all.

    Scores of oodzoo and those from moments are computed with NumPy, or with PyTorch on a device;
    other functions get NumPy arrays.

    Raises
    ------
    MissingHeadError
        If the score needs a head that the model does not have.
    InputError
        If a score of another package fails, or its value is not a finite number.
    """
    source = source.only(source.domains if domains is None else domains)
    if source.task.kind not in score.tasks:
        raise InputError(
            f"the score {score.name!r} is not for labels of the kind {source.task.kind}"
        )
    compute = _from_moments(source, score, model, device) or _from_arrays(
        source, score, model, device
    )
    context = f"score {score.name!r} of model {model!r}"
    n = sum(len(source.labels(domain)) for domain in source.domains)
    try:
        with blas_threads(n * source.facts(model).feature_dim, LARGE_PRODUCT):
            value = compute()
    except Exception as error:
        if is_own(score):
            raise
        reason = type(error).__name__
        if (text := one_line(error)) != reason:
            reason = f"{reason}: {text}"
        raise InputError(f"{context} failed: {reason}") from error
    return _finite_number(value, context)


def compute_scores(
    source: FeatureSource,
    score: str | Score,
    domains: Sequence[str],
    device: str | None = None,
    *,
    models: Sequence[str] | None = None,
) -> tuple[dict[str, float], dict[str, str]]:
    """Compute a score of all or some models on some domains, and why models were skipped."""
    if isinstance(score, str):
        score = registry.get(score)
    totals: dict[str, float] = {}
    left_out: dict[str, str] = {}
    for model in source.models if models is None else models:
        try:
            totals[model] = compute_score(source, score, model, domains, device)
        except MissingHeadError as error:
            left_out[model] = str(error)
    return totals, left_out


def is_own(score: Score) -> bool:
    """Whether a score is part of oodzoo."""
    module = getattr(score.function, "__module__", None)  # None for code entered interactively
    return isinstance(module, str) and module.startswith("oodzoo.")


def _from_moments(
    source: FeatureSource, score: Score, model: str, device: str | None
) -> Callable[[], Any] | None:
    """The score as a function of moments, if it has one and it is the cheaper way."""
    n = sum(len(source.labels(domain)) for domain in source.domains)
    if score.from_moments is None or n <= source.facts(model).feature_dim:
        return None
    if source.task.is_classification and len(source.classes) < 2:
        return None  # an error, with its message, in every function
    moments = {
        domain: found.to(device) for domain, found in domain_moments(source, model, device).items()
    }
    return partial(score.from_moments, moments, partial(source.shards, model))


def _from_arrays(
    source: FeatureSource, score: Score, model: str, device: str | None
) -> Callable[[], Any]:
    labels = [source.labels(domain) for domain in source.domains]
    if score.needs in ("features", "class_embeddings"):
        texts = _class_embeddings(source, score, model)
        arguments = [_features(source, model, device if is_own(score) else None), *texts]
    else:
        arguments = [_outputs(source, score, model)]
    arguments.append(np.concatenate(labels))
    if score.uses_domains:
        arguments.append(np.repeat(list(source.domains), [len(part) for part in labels]))
    return partial(score.function, *arguments)


def _features(source: FeatureSource, model: str, device: str | None) -> Array:
    """Features of all domains, in their number type; filled block by block, to hold them once."""
    be = backend(device)
    n = sum(len(source.labels(domain)) for domain in source.domains)
    values, start = None, 0
    for features, _ in (shard for d in source.domains for shard in source.shards(model, d)):
        block = be.asarray(features)
        if values is None:
            values = be.xp.empty((n, block.shape[1]), dtype=block.dtype, device=be.device)
        values[start : start + block.shape[0], :] = block
        start += block.shape[0]
    return values


def _class_embeddings(source: FeatureSource, score: Score, model: str) -> list[NDArray[np.float32]]:
    """The embeddings of the classes, if a score needs them."""
    if score.needs != "class_embeddings":
        return []
    found = source.class_embeddings(model)
    if found is None:
        raise MissingHeadError(
            f"{score.name} needs embeddings of the classes by a text tower, and the store has none "
            "of this model; rerun oodzoo extract if it is a CLIP-like model"
        )
    return [found.embeddings]


def _outputs(source: FeatureSource, score: Score, model: str) -> NDArray[Any]:
    found = [source.logits(model, domain) for domain in source.domains]
    known = [part for part in found if part is not None]
    if len(known) < len(found):
        raise MissingHeadError(f"{score.name} needs a classifier head, and the model has none")
    logits = np.concatenate(known)
    outputs: NDArray[Any] = logits.argmax(axis=1)
    if score.needs == "probabilities":
        outputs = softmax(logits.astype(np.float64), axis=1)
    return outputs


def _finite_number(value: Any, context: str) -> float:
    """Convert the value of a score, which may be an array without dimensions, to a float."""
    shape = getattr(value, "shape", ())
    number = value.item() if shape == () and hasattr(value, "item") else value
    if isinstance(number, numbers.Real) and np.isfinite(float(number)):
        return float(number)
    got = f"an array of shape {tuple(shape)}" if shape != () else reprlib.repr(number)
    raise InputError(f"{context} must be a finite number, got {' '.join(got.split())}")
