"""Everything that is decided about the combination of models on some training domains.

The accuracy of each way to combine models, or another metric (:mod:`oodzoo.tasks`), is
estimated on each training domain, by heads that were trained without it, and by cross-validation
within the domains:

- single: the model with the highest likelihood in the other domains;
- pool: the pool chosen in the other domains;
- ensemble: the best models of the ranking;
- selection: as many features as are selected, ordered without the left-out domain; on left-out
  domains only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.combining.pool import (
    Heads,
    Pool,
    Pooled,
    choose_pool,
    left_out_pools,
    qualities,
)
from oodzoo.combining.predictions import HeadPredictions, Outputs
from oodzoo.combining.selection import select_features
from oodzoo.combining.verdict import Contributions, Estimate, recommend
from oodzoo.core.errors import InputError
from oodzoo.core.options import Limits, total_cost
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.source import FeatureSource, groups_of
from oodzoo.linear.heads.kinds import PATHS, best_setting, folds_within
from oodzoo.linear.heads.paths import C_GRID, Split
from oodzoo.linear.heads.ridge import SETTINGS
from oodzoo.linear.selection.contributions import contributions
from oodzoo.tasks import Task


@dataclass(frozen=True)
class Decision:
    """What was decided on some training domains.

    Attributes
    ----------
    best : str
        The first model of the ranking that is within the limits.
    pool : Pool
    ensemble, selection : Columns
        All features of the best models, and the features selected from all models.
    estimates : dict of str to Estimate
        Of each way to combine models that is within the limits.
    recommended : str
        One of them.
    """

    best: str
    pool: Pool
    ensemble: Columns
    selection: Columns
    estimates: dict[str, Estimate]
    recommended: str

    def models(self, choice: str) -> tuple[str, ...]:
        """The models that a way to combine models uses."""
        return {
            "single": (self.best,),
            "pool": self.pool.models,
            "ensemble": self.ensemble.models,
            "selection": self.selection.models,
        }[choice]


def decide(
    training: FeatureSource,
    order: Sequence[str],
    heads: Heads,
    *,
    top_k: int,
    limits: Limits | None = None,
    device: str | None = None,
) -> Decision:
    """Decide how to combine the models.

    Parameters
    ----------
    training : FeatureSource
        The training domains only.
    order : sequence of str
        The models, the best of the ranking first.
    heads : Heads
        Predictions for the training domains.
    top_k : int
        Number of models of the ensemble.
    limits : Limits, optional
    device : str, optional
        PyTorch device; NumPy if None.
    """
    limits = limits or Limits()
    pool = choose_pool(heads, limits)  # an error if no model is within the limits
    best = first_within(order, heads, limits)
    ensemble = Columns.all_of(training, order[:top_k])
    selection = select_features(training, device=device).columns
    estimates = _of_heads(training, best, pool, heads, limits)
    estimates |= _of_columns(training, ensemble, selection, heads, limits, device)
    return Decision(best, pool, ensemble, selection, estimates, recommend(estimates))


class Way(NamedTuple):
    """A way to combine models that was estimated before."""

    models: tuple[str, ...]
    contributions: Contributions
    within: Contributions | None
    """As in :class:`~oodzoo.combining.verdict.Estimate`."""


class LimitedDecision(NamedTuple):
    """What is decided within other limits."""

    best: str
    pool: Pool
    recommended: str


def decide_within(
    source: FeatureSource,
    order: Sequence[str],
    heads: Heads,
    limits: Limits,
    others: Mapping[str, Way],
) -> LimitedDecision:
    """Decide again within other limits, without training a head.

    Parameters
    ----------
    source, order, heads, limits
        As for :func:`decide`; of `source`, only the cost of the models is used.
    others : dict of str to Way
        What was estimated for "ensemble" and "selection"; they are candidates if they are within
        the limits.
    """
    pool, best = choose_pool(heads, limits), first_within(order, heads, limits)
    cost = _Cost(source)
    estimates = _of_heads(source, best, pool, heads, limits) | {
        name: Estimate(way.contributions, cost(way.models), way.within)
        for name, way in others.items()
        if limits.allow(way.models, heads.milliseconds)
    }
    return LimitedDecision(best, pool, recommend(estimates))


def first_within(order: Sequence[str], heads: Heads, limits: Limits) -> str:
    """Return the first model that is within the limits."""
    return next(model for model in order if limits.allow([model], heads.milliseconds))


def _of_heads(
    source: FeatureSource, best: str, pool: Pool, heads: Heads, limits: Limits
) -> dict[str, Estimate]:
    """Estimate the accuracy of a single model and of a pool."""
    cost, estimate = _Cost(source), partial(_estimate, heads.task, heads.labels)
    return {
        "single": estimate(_left_out_singles(heads, limits), cost([best])),
        "pool": estimate(left_out_pools(heads, limits), cost(pool.models)),
    }


def _of_columns(
    training: FeatureSource,
    ensemble: Columns,
    selection: Columns,
    heads: Heads,
    limits: Limits,
    device: str | None,
) -> dict[str, Estimate]:
    """Estimate the accuracy of concatenated features that are within the limits."""
    labels = [training.labels(domain) for domain in training.domains]  # of its own classes
    cost, estimate = _Cost(training), partial(_estimate, training.task, labels)
    estimates = {}
    if limits.allow(ensemble.models, heads.milliseconds):
        found = left_out_columns(training, ensemble, device=device)
        estimates["ensemble"] = estimate(found, cost(ensemble.models))
    if limits.allow(selection.models, heads.milliseconds):
        parts = selections_without(training, len(selection), device)
        found = left_out_columns(training, selection, parts, device=device)
        # these features were selected with the labels of all folds: within would be too high
        found = Pooled(found.out_of_fold, None)
        estimates["selection"] = estimate(found, cost(selection.models))
    return estimates


def _estimate(task: Task, labels: Sequence[NDArray[Any]], found: Pooled, cost: float) -> Estimate:
    """What each sample contributes to the metric, by predictions of both kinds."""

    def contributions(outputs: Sequence[Outputs]) -> list[NDArray[np.float64]]:
        return [task.contributions(here, y) for here, y in zip(outputs, labels, strict=True)]

    within = None if found.within is None else contributions(found.within)
    return Estimate(contributions(found.out_of_fold), cost, within)


class _Cost:
    """Cost of some models: time per image if known for all of a source, else parameters, else 1."""

    def __init__(self, source: FeatureSource) -> None:
        facts = {model: source.facts(model) for model in source.models}
        self._costs = dict.fromkeys(facts, 1.0)
        for name in ("parameters", "milliseconds"):
            values = {model: getattr(each, name) for model, each in facts.items()}
            if all(value is not None for value in values.values()):
                self._costs = values

    def __call__(self, models: Sequence[str]) -> float:
        return float(total_cost({model: self._costs[model] for model in models}) or 0)


def _left_out_singles(heads: Heads, limits: Limits) -> Pooled:
    """Predictions of each domain by the model that is best in the other domains."""
    models = [model for model in heads.alone if limits.allow([model], heads.milliseconds)]
    members = [heads.alone[model] for model in models]
    every = range(len(heads.labels))
    found = qualities(_stacks(members, "out_of_fold", every), heads.labels, heads.task)
    inside = all(each.within is not None for each in members)
    if inside:
        found = found + qualities(_stacks(members, "within", every), heads.labels, heads.task)
    out_of_fold, within = [], []
    for at in every:
        others = np.delete(found, at, axis=0) if len(found) > 1 else found
        best = members[int(others.mean(axis=0).argmax())]
        out_of_fold.append(best.out_of_fold[at])
        if best.within is not None:
            within.append(best.within[at])
    return Pooled(out_of_fold, within if inside else None)


def _stacks(members: Sequence[HeadPredictions], name: str, domains: Sequence[int]) -> list[Outputs]:
    """Outputs (M, n, C) of some heads for each domain."""
    return [np.stack([getattr(each, name)[at] for each in members]) for at in domains]


def left_out_columns(
    training: FeatureSource,
    columns: Columns,
    parts: Sequence[Columns] | None = None,
    *,
    device: str | None = None,
) -> Pooled:
    """Predictions of each domain by a head of columns trained on the others, and within.

    `parts` are the columns for each left-out domain, if they are not the same. All domains choose
    the setting of the regularisation. The predictions are kept in a store.
    """
    found = _column_predictions(training, columns, parts, device)
    chosen = found["settings"][0]
    within = found.get("within")
    return Pooled(
        np.split(found[f"outputs {chosen}"], _ends(training)),
        None if within is None else np.split(within, _ends(training)),
    )


def left_out_columns_without(
    training: FeatureSource,
    columns: Columns,
    parts: Sequence[Columns] | None = None,
    *,
    device: str | None = None,
) -> dict[str, list[Outputs]]:
    """The same for each domain by left-out domains, with the setting that the others choose."""
    found = _column_predictions(training, columns, parts, device)
    pairs = zip(training.domains, found["settings"][1:], strict=True)
    return {d: np.split(found[f"outputs {each}"], _ends(training)) for d, each in pairs}


def _ends(training: FeatureSource) -> NDArray[np.int64]:
    """Where the samples of each domain but the last end."""
    ends: NDArray[np.int64] = np.cumsum([len(training.labels(d)) for d in training.domains])[:-1]
    return ends


def _column_predictions(
    training: FeatureSource,
    columns: Columns,
    parts: Sequence[Columns] | None,
    device: str | None,
) -> dict[str, NDArray[Any]]:
    """Predictions of left-out domains and within the domains, as they are kept in a store.

    They are those of the settings that all domains choose, and all but each one, which mostly are
    the same.
    """
    task, n_outputs = training.task, len(training.classes)
    labels = [training.labels(domain) for domain in training.domains]
    groups = groups_of(training, training.domains)

    def compute() -> dict[str, NDArray[Any]]:
        head = PATHS[task.link]
        samples = columns.samples(training, training.domains)
        folds = folds_within(task, samples.labels, samples.domains, groups)
        partitions = [samples.domains] if parts is None else []
        partitions += [folds] if len(np.unique(folds)) > 1 else []
        split = Split(np.ones(len(folds), np.bool_), tuple(partitions))
        (outputs,) = head.predict(samples, n_outputs, [split], device=device)
        found = [np.split(each, _ends(training), axis=1) for each in outputs.partitions]
        within = found[-1] if len(np.unique(folds)) > 1 else None
        paths: list[Outputs] = found[0] if parts is None else []
        for at, part in enumerate(parts or ()):
            samples = part.samples(training, training.domains)
            paths += head.left_out(samples, n_outputs, [{at}], device=device)
        settings = [best_setting(paths, within, labels, task)]
        every = range(len(labels))
        for at in every if len(labels) > 1 else ():
            rest = [other for other in every if other != at]
            settings.append(
                best_setting(
                    [paths[i] for i in rest],
                    None if within is None else [within[i] for i in rest],
                    [labels[i] for i in rest],
                    task,
                )
            )
        arrays = {"settings": np.array(settings)}
        if within is not None:
            arrays["within"] = np.concatenate([part[settings[0]] for part in within])
        return arrays | {
            f"outputs {each}": np.concatenate([path[each] for path in paths])
            for each in set(settings)
        }

    digest = hashlib.sha256(json.dumps(groups).encode())
    for chosen in (columns, *(parts or ())):
        for model, numbers in chosen.by_model.items():
            digest.update(f"{model}\n{model in chosen.normalised}\n{len(numbers)}\n".encode())
            digest.update(np.asarray(numbers, np.int64).tobytes())
    models = sorted({model for chosen in (columns, *(parts or ())) for model in chosen.models})
    settings = f"{C_GRID} {SETTINGS} {digest.hexdigest()}"
    return training.cached("left_out_heads", models, compute, settings=settings)


def selections_without(training: FeatureSource, number: int, device: str | None) -> list[Columns]:
    """As many features as a selection has, chosen without each of the domains."""
    models = sorted(training.models)
    result = []
    for left_out in training.domains:
        others = sorted(domain for domain in training.domains if domain != left_out)
        total = contributions(training, models, others, device=device).total
        mask = np.zeros(len(total), np.bool_)
        mask[np.argsort(-total, kind="stable")[:number]] = True
        result.append(Columns.by_mask(training, models, mask))
    return result


def require_choice(choice: str) -> None:
    """Raise an InputError unless a choice is known."""
    if choice not in ("auto", "single", "pool", "ensemble", "selection"):
        raise InputError(
            f"the choice must be one of auto, single, pool, ensemble, selection, got {choice!r}"
        )
