"""Predictions of heads for samples that they were not trained on.

For a held-out domain, two kinds of predictions of the training domains say how good a head is:

- those of held-out *training* domains, by heads of the other ones: they see the shift to another
  domain, but the heads are trained on fewer domains, and a few domains say little;
- those *within* the domains, by cross-validation: the heads are trained on all domains, like the
  final one, and the estimate varies little, but it does not see any shift.

How far the held-out domain is from the others is unknown. A model therefore has several heads in a
pool, which differ in their regularisation: it has the highest quality
(:class:`oodzoo.tasks.Task`) for samples of which a *share* comes from a domain as far away
as the training domains are from each other, and the rest from these domains. A head that is used
alone has the share ½.

A head of the training domains predicts the held-out domain, which has no influence on anything
else.

Where a model has class embeddings (:mod:`oodzoo.zoo.model`), it has two more kinds of heads in a
pool: the zero-shot head, which is not trained, and heads that start from it
(:class:`oodzoo.tasks.Task`). A zero-shot head is linear in features of unit length. All
heads of a pool are added up as one linear head, so all heads of such a model act on features of
unit length.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.events import tracked
from oodzoo.extraction.columns import Columns, Samples
from oodzoo.extraction.features import FeatureSource, groups_of, head_costs
from oodzoo.linear.heads.kinds import PATHS, ByDomain, HeadPath, split_without
from oodzoo.linear.heads.linear import (
    LinearHead,
    fit_from_zero_shot,
    left_out_from_zero_shot,
    left_out_zero_shot,
    zero_shot_head,
)
from oodzoo.linear.heads.paths import C_GRID, predict_splits_by
from oodzoo.linear.heads.ridge import SETTINGS
from oodzoo.linear.heads.samples import Groups
from oodzoo.tasks import CLASSIFICATION, Task


def find_zero_shot(source: FeatureSource, model: str) -> LinearHead | None:
    """Return the zero-shot head of a model, of features of unit length; None without one."""
    found = source.class_embeddings(model)
    return None if found is None else zero_shot_head(found.embeddings, found.scale, found.bias)


def pool_columns(source: FeatureSource, models: Sequence[str]) -> Columns:
    """All features of models, as the heads of a pool take them."""
    normalised = [model for model in models if source.class_embeddings(model) is not None]
    return replace(Columns.all_of(source, models), normalised=frozenset(normalised))


SHARES = (0.0, 0.5, 1.0)
"""Weights of held-out domains in the choice of heads and pools; the rest is within the domains."""

ALONE = 0.5
"""The share of a head that is used alone."""

TRAINED, ZERO_SHOT, FROM_ZERO_SHOT = "trained", "zero_shot", "from_zero_shot"
"""Kinds of heads; the last two are those of a model with class embeddings."""

Outputs = NDArray[Any]
"""Log-probabilities, numbers or log-odds, see :class:`oodzoo.tasks.Task`."""


class Head(NamedTuple):
    """A head of a model.

    Attributes
    ----------
    model, kind : str
    share : float
        Weight of held-out domains in the choice of its regularisation.
    """

    model: str
    kind: str = TRAINED
    share: float = ALONE


@dataclass(frozen=True)
class HeadPredictions:
    """Predictions of one head.

    Attributes
    ----------
    setting : int
        Position of its regularisation among those tried.
    out_of_fold : list of arrays (n, C)
        Outputs for the samples of each training domain, by heads trained without it.
    within : list of arrays (n, C), optional
        Outputs for the same samples, by cross-validation within the training domains; None if it
        was not done.
    test : array (n, C), optional
        Outputs for the held-out domain, by the head trained on all training domains.
    """

    setting: int
    out_of_fold: list[Outputs]
    within: list[Outputs] | None = None
    test: Outputs | None = None


def _path(task: Task, name: str, zero_shot: LinearHead | None) -> HeadPath:
    """Return a kind of head; the zero-shot head is that of the model."""
    if name == TRAINED or zero_shot is None:
        return PATHS[task.link]
    if name == ZERO_SHOT:
        left_out = partial(left_out_zero_shot, zero_shot=zero_shot)
        return HeadPath(partial(predict_splits_by, left_out), left_out, lambda *_: zero_shot)
    left_out = partial(left_out_from_zero_shot, zero_shot=zero_shot)
    return HeadPath(
        partial(predict_splits_by, left_out),
        left_out,
        lambda samples, n, at: fit_from_zero_shot(samples, n, C_GRID[at], zero_shot),
    )


def fit_kind(
    task: Task,
    kind: str,
    samples: Samples,
    n_outputs: int,
    setting: int,
    zero_shot: LinearHead | None = None,
) -> LinearHead:
    """Fit a head of a kind with one of its settings; `zero_shot` is that of the model, if any."""
    return _path(task, kind, zero_shot).fit(samples, n_outputs, setting)


ByTest = dict[str | None, HeadPredictions]
"""Predictions of a head by held-out domain; None is for no held-out domain."""


def model_predictions(
    source: FeatureSource, model: str, *, device: str | None = None
) -> tuple[ByTest, dict[Head, ByTest]]:
    """Predictions of the head of a model that is used alone, and of its heads in a pool.

    With two domains there is no held-out domain: one domain cannot be split into training domains.
    Domains are in the order of the source, without the held-out domain.
    """
    domains = source.domains
    tests: list[str | None] = [None, *(domains if len(domains) > 2 else ())]

    def read(kind: str, zero_shot: LinearHead | None) -> dict[Head, ByTest]:
        arrays = _predictions(source, model, kind, device, zero_shot)
        result: dict[Head, ByTest] = {}
        for share in SHARES:
            found = result[Head(model, kind, share)] = {}
            for number, test in enumerate(tests):
                sizes = [len(source.labels(domain)) for domain in domains if domain != test]
                ends, name = np.cumsum(sizes)[:-1], f"{share} {number}"
                within = arrays.get(f"{name} within")
                found[test] = HeadPredictions(
                    int(arrays[f"{name} setting"]),
                    np.split(arrays[f"{name} out-of-fold"], ends),
                    None if within is None else np.split(within, ends),
                    arrays.get(f"{name} test"),
                )
        return result

    heads = read(TRAINED, None)
    alone = heads[Head(model)]
    if (zero_shot := find_zero_shot(source, model)) is not None:
        heads = {}
        for kind in (TRAINED, ZERO_SHOT, FROM_ZERO_SHOT):  # of features of unit length
            heads |= read(kind, zero_shot)
    return alone, heads


def _predictions(
    source: FeatureSource,
    model: str,
    kind: str,
    device: str | None,
    zero_shot: LinearHead | None,
) -> dict[str, NDArray[Any]]:
    """The predictions of the heads of one kind with each share, as they are cached.

    With a zero-shot head, they are those of features of unit length.
    """
    groups = groups_of(source, source.domains)

    def compute() -> dict[str, NDArray[Any]]:
        choose = Columns.all_of if zero_shot is None else pool_columns
        found = predict_left_out(
            choose(source, [model]).samples(source, source.domains),
            len(source.classes),
            source.task,
            kind,
            groups=groups,
            zero_shot=zero_shot,
            device=device,
        )
        arrays: dict[str, NDArray[Any]] = {}
        for share, predictions in found.items():
            for number, each in enumerate(predictions):
                name = f"{share} {number}"
                arrays[f"{name} setting"] = np.array(each.setting)
                arrays[f"{name} out-of-fold"] = np.concatenate(each.out_of_fold)
                if each.within is not None:
                    arrays[f"{name} within"] = np.concatenate(each.within)
                if each.test is not None:
                    arrays[f"{name} test"] = each.test
        return arrays

    settings = f"{kind} {C_GRID} {SETTINGS} {SHARES}"
    if any(group is not None for group in groups):
        settings += f" {json.dumps(groups)}"
    if zero_shot is not None:
        settings += f" unit length, {zero_shot.digest}"
    return source.cached("heads", [model], compute, settings=settings)


def predict_left_out(
    samples: Samples,
    n_outputs: int,
    task: Task,
    kind: str = TRAINED,
    *,
    groups: Groups | None = None,
    zero_shot: LinearHead | None = None,
    device: str | None = None,
) -> dict[float, list[HeadPredictions]]:
    """Predictions without a held-out domain, then for each domain as the held-out domain, by share.

    `samples` are of domains numbered from 0; groups are kept whole by the cross-validation within
    the domains. A head trained without two domains serves both.
    """
    numbers = np.unique(samples.domains).tolist()
    tests = [None, *(numbers if len(numbers) > 2 else ())]
    splits = [split_without(task, samples, groups, test) for test in tests]
    found = _path(task, kind, zero_shot).predict(samples, n_outputs, splits, device=device)
    result: dict[float, list[HeadPredictions]] = {share: [] for share in SHARES}
    for test, split, outputs in zip(tests, splits, found, strict=True):
        each = ByDomain.of(samples, split, outputs)
        for share, at in zip(SHARES, each.best_settings(task, SHARES), strict=True):
            result[share].append(
                HeadPredictions(
                    at,
                    [part[at] for part in each.left_out],
                    None if each.within is None else [part[at] for part in each.within],
                    None if test is None else outputs.rest[at],
                )
            )
    return result


Weights = dict[tuple[tuple[Head, ...], tuple[int, ...]], NDArray[np.float64]]
"""Weights of heads, by the heads and the numbers of the domains that they were computed from."""


@dataclass(frozen=True)
class Heads:
    """Predictions of heads for the training domains, out of fold, and for a held-out domain.

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
    task : Task
        What is predicted.
    weights : dict
        Weights of the heads in pools that were computed before.
    """

    domains: tuple[str, ...]
    labels: list[NDArray[Any]]
    alone: dict[str, HeadPredictions]
    candidates: dict[Head, HeadPredictions]
    milliseconds: dict[str, float | None]
    task: Task = CLASSIFICATION
    weights: Weights = field(default_factory=dict, init=False, compare=False, repr=False)


class Pooled(NamedTuple):
    """Outputs (n, C) for the samples of each training domain, see
    :class:`oodzoo.tasks.Task`.

    By heads trained without the domain, and by cross-validation within the domains, if that was
    done.
    """

    out_of_fold: list[NDArray[np.float64]]
    within: list[NDArray[np.float64]] | None


def predict_with_heads(
    source: FeatureSource, *, device: str | None = None
) -> dict[str | None, Heads]:
    """Predictions of all heads of all models, by held-out domain; None: no domain is held out."""
    alone: dict[str, ByTest] = {}
    candidates: dict[Head, ByTest] = {}
    for model in tracked(source.models, weights=head_costs(source, source.models)):
        alone[model], found = model_predictions(source, model, device=device)
        candidates |= found
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
            source.task,
        )
    return result
