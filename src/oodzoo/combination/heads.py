"""All heads of all models on the same samples, and pools of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.combination.pool import Limits, PoolChooser, Shares
from oodzoo.combination.predictions import ALONE, HeadPredictions, model_predictions
from oodzoo.events import Progress
from oodzoo.features.source import FeatureSource
from oodzoo.heads.outputs import outputs_of
from oodzoo.task import Kind


class Head(NamedTuple):
    """A head of a model."""

    model: str
    kind: str


@dataclass(frozen=True)
class Heads:
    """Predictions of heads for the training domains, out of fold, and for a test domain.

    Attributes
    ----------
    domains : tuple of str
        The training domains.
    labels : list of arrays
        The classes (n,) or the labels (n, C) of the samples of each training domain.
    alone : dict
        Predictions of a single head of each model, by name.
    candidates : dict
        Predictions of the heads that may be pooled.
    milliseconds : dict
        Time per image of each model; None if unknown.
    kind : {"classification", "regression", "multilabel"}
        What is predicted.
    shares : dict
        Shares of the heads in pools that were computed before.
    """

    domains: tuple[str, ...]
    labels: list[NDArray[Any]]
    alone: dict[str, HeadPredictions]
    candidates: dict[Head, HeadPredictions]
    milliseconds: dict[str, float | None]
    kind: Kind = "classification"
    shares: Shares = field(default_factory=dict, init=False, compare=False, repr=False)


@dataclass(frozen=True)
class Pool:
    """A pool of heads, and its predictions.

    Attributes
    ----------
    members : tuple of Head
        The head with the largest share first.
    out_of_fold : list of arrays (n, C)
        Outputs for the samples of each training domain (:mod:`oodzoo.heads.outputs`).
    test : array (n, C), optional
        Those of the test domain.
    weights : tuple of float
        Weight of each member; they add up to 1. All are equal, but for numbers.
    """

    members: tuple[Head, ...]
    out_of_fold: list[NDArray[np.float64]]
    test: NDArray[np.float64] | None
    weights: tuple[float, ...]

    @property
    def models(self) -> tuple[str, ...]:
        """The models of the members, each once."""
        return tuple(dict.fromkeys(head.model for head in self.members))


def predict_with_heads(
    source: FeatureSource, *, device: str | None = None, progress: Progress | None = None
) -> dict[str | None, Heads]:
    """Predictions of all heads of all models, by test domain; None is for no test domain."""
    found: dict[str, dict[str, dict[str | None, HeadPredictions]]] = {}
    for number, model in enumerate(source.models):
        found[model] = model_predictions(source, model, device=device)
        if progress is not None:
            progress(number + 1, len(source.models))
    milliseconds = {model: source.facts(model).milliseconds for model in source.models}
    result: dict[str | None, Heads] = {}
    for test in found[source.models[0]][ALONE]:
        domains = tuple(domain for domain in source.domains if domain != test)
        result[test] = Heads(
            domains,
            [source.labels(domain) for domain in domains],
            {model: kinds[ALONE][test] for model, kinds in found.items()},
            {
                Head(model, kind): predictions[test]
                for model, kinds in found.items()
                for kind, predictions in kinds.items()
                if kind != ALONE
            },
            milliseconds,
            source.task.kind,
        )
    return result


def choose_pool(heads: Heads, limits: Limits | None = None) -> Pool:
    """Choose a pool on all training domains."""
    names = list(heads.candidates)
    found = _chooser(heads, limits).choose()
    chosen, weights = tuple(names[at] for at in found), tuple(found.values())
    members = [heads.candidates[head] for head in chosen]
    tests = [each.test for each in members if each.test is not None]
    pooled = outputs_of(heads.kind).pooled
    return Pool(
        chosen,
        [pooled(_stack(members, at), weights) for at in range(len(heads.domains))],
        pooled(np.stack(tests), weights) if len(tests) == len(members) else None,
        weights,
    )


def left_out_pools(heads: Heads, limits: Limits | None = None) -> list[NDArray[np.float64]]:
    """Outputs for each training domain by a pool that was chosen without it."""
    chooser, predictions = _chooser(heads, limits), list(heads.candidates.values())
    pooled = outputs_of(heads.kind).pooled
    every = range(len(heads.domains))
    result = []
    for left_out in every:
        chosen = chooser.choose([at for at in every if at != left_out])
        members = [predictions[at] for at in chosen]
        result.append(pooled(_stack(members, left_out), tuple(chosen.values())))
    return result


def _chooser(heads: Heads, limits: Limits | None) -> PoolChooser:
    return PoolChooser(
        [_stack(heads.candidates.values(), at) for at in range(len(heads.domains))],
        heads.labels,
        [head.model for head in heads.candidates],
        heads.milliseconds,
        limits,
        heads.kind,
        heads.shares,
    )


def _stack(heads: Iterable[HeadPredictions], at: int) -> NDArray[Any]:
    """Out-of-fold predictions (M, n, C) of one training domain."""
    return np.stack([head.out_of_fold[at] for head in heads])
