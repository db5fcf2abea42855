"""All heads of all models on the same samples, and pools of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.combining.pool import Limits, PoolChooser, Weights
from oodzoo.combining.predictions import ByTest, Head, HeadPredictions, model_predictions
from oodzoo.core.events import Progress
from oodzoo.extraction.source import FeatureSource
from oodzoo.linear.heads.outputs import outputs_of
from oodzoo.tasks import Kind


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
    weights : dict
        Weights of the heads in pools that were computed before.
    """

    domains: tuple[str, ...]
    labels: list[NDArray[Any]]
    alone: dict[str, HeadPredictions]
    candidates: dict[Head, HeadPredictions]
    milliseconds: dict[str, float | None]
    kind: Kind = "classification"
    weights: Weights = field(default_factory=dict, init=False, compare=False, repr=False)


class Pooled(NamedTuple):
    """Outputs (n, C) for the samples of each training domain, see
    :mod:`oodzoo.linear.heads.outputs`.

    By heads trained without the domain, and by cross-validation within the domains, if that was
    done.
    """

    out_of_fold: list[NDArray[np.float64]]
    within: list[NDArray[np.float64]] | None


@dataclass(frozen=True)
class Pool:
    """A pool of heads, and its predictions.

    Attributes
    ----------
    members : tuple of Head
        The head with the largest weight first.
    out_of_fold : list of arrays (n, C)
        Outputs for the samples of each training domain (:mod:`oodzoo.linear.heads.outputs`).
    test : array (n, C), optional
        Those of the test domain.
    weights : tuple of float
        Weight of each member; they add up to 1.
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
    alone: dict[str, ByTest] = {}
    candidates: dict[Head, ByTest] = {}
    for number, model in enumerate(source.models):
        alone[model], found = model_predictions(source, model, device=device)
        candidates |= found
        if progress is not None:
            progress(number + 1, len(source.models))
    milliseconds = {model: source.facts(model).milliseconds for model in source.models}
    result: dict[str | None, Heads] = {}
    for test in alone[source.models[0]]:
        domains = tuple(domain for domain in source.domains if domain != test)
        result[test] = Heads(
            domains,
            [source.labels(domain) for domain in domains],
            {model: predictions[test] for model, predictions in alone.items()},
            {head: predictions[test] for head, predictions in candidates.items()},
            milliseconds,
            source.task.kind,
        )
    return result


def choose_pool(heads: Heads, limits: Limits | None = None) -> Pool:
    """Choose a pool on all training domains."""
    found = _chooser(heads, limits).choose()
    weights = tuple(found.values())
    members = [heads.candidates[head] for head in found]
    tests = [each.test for each in members if each.test is not None]
    return Pool(
        tuple(found),
        [
            _pooled(heads, [each.out_of_fold[at] for each in members], weights)
            for at in range(len(heads.domains))
        ],
        _pooled(heads, tests, weights) if len(tests) == len(members) else None,
        weights,
    )


def left_out_pools(heads: Heads, limits: Limits | None = None) -> Pooled:
    """Outputs for each training domain by a pool that was chosen without it.

    The heads of its predictions within the domains are trained on a part of the domain.
    """
    chooser = _chooser(heads, limits)
    every = range(len(heads.domains))
    out_of_fold, within = [], []
    for left_out in every:
        chosen = chooser.choose([at for at in every if at != left_out])
        members, weights = [heads.candidates[head] for head in chosen], tuple(chosen.values())
        out_of_fold.append(_pooled(heads, [m.out_of_fold[left_out] for m in members], weights))
        inside = [each.within[left_out] for each in members if each.within is not None]
        if len(inside) == len(members):
            within.append(_pooled(heads, inside, weights))
    return Pooled(out_of_fold, within if len(within) == len(out_of_fold) else None)


def _chooser(heads: Heads, limits: Limits | None) -> PoolChooser:
    return PoolChooser(
        heads.candidates, heads.labels, heads.milliseconds, limits, heads.kind, heads.weights
    )


def _pooled(
    heads: Heads, outputs: Iterable[NDArray[Any]], weights: Sequence[float]
) -> NDArray[np.float64]:
    """Outputs (n, C) of a pool, from those of its members."""
    return outputs_of(heads.kind).pooled(np.stack(list(outputs)), weights)
