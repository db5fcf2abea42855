"""Everything that is decided about the combination of models on some training domains.

The accuracy of each way to combine models, or another metric (:mod:`oodzoo.metrics`), is estimated
on the training domains by leaving each of them out:

- single: the model with the highest likelihood in the other domains;
- pool: the pool chosen in the other domains;
- ensemble: the best models of the ranking, heads trained without the domain;
- selection: as many features as are selected, ordered and trained without the domain.

Two training domains are too few for that: a head that leaves one out is trained on a single domain,
and what is best then is often not best for heads of two. A pool is recommended, which loses least
when it is not the best.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.combination.heads import Heads, Pool, choose_pool, left_out_pools
from oodzoo.combination.pool import Limits, qualities
from oodzoo.combination.predictions import RULES, Outputs
from oodzoo.combination.verdict import Estimate, recommend
from oodzoo.errors import InputError
from oodzoo.features.columns import Columns
from oodzoo.features.source import FeatureSource, total_cost
from oodzoo.heads.kinds import PATHS
from oodzoo.heads.outputs import outputs_of
from oodzoo.heads.paths import C_GRID
from oodzoo.heads.ridge import SETTINGS
from oodzoo.selection.contributions import contributions
from oodzoo.selection.select import select_features

FEWEST_DOMAINS = 3
"""Number of training domains from which the ways to combine models are compared."""


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
        Of each way to combine models that is within the limits; empty with two domains.
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
    compare: bool | None = None,
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
    compare : bool, optional
        Whether to compare the ways on left-out domains; otherwise a pool is recommended. By default
        if there are at least `FEWEST_DOMAINS` training domains.
    device : str, optional
        PyTorch device; NumPy if None.
    """
    limits = limits or Limits()
    compare = len(training.domains) >= FEWEST_DOMAINS if compare is None else compare
    pool = choose_pool(heads, limits)  # an error if no model is within the limits
    best = first_within(order, heads, limits)
    ensemble = Columns.all_of(training, order[:top_k])
    selection = select_features(training, device=device).columns
    estimates: dict[str, Estimate] = {}
    if compare:
        estimates = _of_heads(training, best, pool, heads, limits)
        estimates |= _of_columns(training, ensemble, selection, heads, limits, device)
    recommended = recommend(estimates) if estimates else "pool"
    return Decision(best, pool, ensemble, selection, estimates, recommended)


class Way(NamedTuple):
    """A way to combine models that was estimated on left-out domains before."""

    models: tuple[str, ...]
    contributions: Sequence[NDArray[Any]]
    """As in :class:`~oodzoo.combination.verdict.Estimate`."""


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
    *,
    compare: bool,
) -> LimitedDecision:
    """Decide again within other limits, without training a head.

    Parameters
    ----------
    source, order, heads, limits, compare
        As for :func:`decide`; of `source`, only the cost of the models is used.
    others : dict of str to Way
        What was estimated for "ensemble" and "selection"; they are candidates if they are within
        the limits.
    """
    pool, best = choose_pool(heads, limits), first_within(order, heads, limits)
    estimates: dict[str, Estimate] = {}
    if compare:
        cost = _Cost(source)
        estimates = _of_heads(source, best, pool, heads, limits) | {
            name: Estimate(way.contributions, cost(way.models))
            for name, way in others.items()
            if limits.allow(way.models, heads.milliseconds)
        }
    return LimitedDecision(best, pool, recommend(estimates) if estimates else "pool")


def first_within(order: Sequence[str], heads: Heads, limits: Limits) -> str:
    """Return the first model that is within the limits."""
    return next(model for model in order if limits.allow([model], heads.milliseconds))


def _of_heads(
    source: FeatureSource, best: str, pool: Pool, heads: Heads, limits: Limits
) -> dict[str, Estimate]:
    """Estimate the accuracy of a single model and of a pool on left-out domains."""
    cost = _Cost(source)
    return {
        "single": Estimate(
            _contributions(heads, _left_out_singles(heads, limits), heads.labels), cost([best])
        ),
        "pool": Estimate(
            _contributions(heads, left_out_pools(heads, limits), heads.labels), cost(pool.models)
        ),
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
    cost = _Cost(training)
    labels = [training.labels(domain) for domain in training.domains]
    estimates = {}
    if limits.allow(ensemble.models, heads.milliseconds):
        found = left_out_columns(training, [ensemble] * len(labels), device)
        contributed = _contributions(heads, found, labels)
        estimates["ensemble"] = Estimate(contributed, cost(ensemble.models))
    if limits.allow(selection.models, heads.milliseconds):
        parts = selections_without(training, len(selection), device)
        contributed = _contributions(heads, left_out_columns(training, parts, device), labels)
        estimates["selection"] = Estimate(contributed, cost(selection.models))
    return estimates


def _contributions(
    heads: Heads, outputs: Sequence[Outputs], labels: Sequence[NDArray[Any]]
) -> list[NDArray[np.float64]]:
    """What each sample of the left-out domains contributes to the metric."""
    of = outputs_of(heads.kind).contributions
    return [of(here, y) for here, y in zip(outputs, labels, strict=True)]


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


def _left_out_singles(heads: Heads, limits: Limits) -> list[Outputs]:
    """Predictions of each domain by the model that is best in the other domains."""
    models = [model for model in heads.alone if limits.allow([model], heads.milliseconds)]
    every = range(len(heads.labels))
    stacks = [np.stack([heads.alone[model].out_of_fold[at] for model in models]) for at in every]
    found = qualities(stacks, heads.labels, heads.kind)
    result = []
    for at in every:
        best = models[int(np.delete(found, at, axis=0).mean(axis=0).argmax())]
        result.append(heads.alone[best].out_of_fold[at])
    return result


def left_out_columns(
    training: FeatureSource,
    columns: Sequence[Columns],
    device: str | None,
    setting: int | None = None,
) -> list[Outputs]:
    """Predictions of each domain by a head of its columns trained on the other domains.

    `columns` are those of each domain. All domains choose the setting of the regularisation, if
    none is given. The predictions are kept in a store.
    """
    found = _left_out_settings(training, columns, device)
    chosen = found["settings"][0] if setting is None else setting
    if f"outputs {chosen}" not in found:
        found = _left_out_settings(training, columns, device, setting)
    return np.split(found[f"outputs {chosen}"], _ends(training))


def left_out_columns_without(
    training: FeatureSource, columns: Sequence[Columns], device: str | None
) -> dict[str, list[Outputs]]:
    """The same for each domain, with the setting that the other domains choose."""
    found = _left_out_settings(training, columns, device)
    pairs = zip(training.domains, found["settings"][1:], strict=True)
    return {d: np.split(found[f"outputs {each}"], _ends(training)) for d, each in pairs}


def _ends(training: FeatureSource) -> NDArray[np.int64]:
    """Where the samples of each domain but the last end."""
    ends: NDArray[np.int64] = np.cumsum([len(training.labels(d)) for d in training.domains])[:-1]
    return ends


def _left_out_settings(
    training: FeatureSource,
    columns: Sequence[Columns],
    device: str | None,
    setting: int | None = None,
) -> dict[str, NDArray[Any]]:
    """Predictions of left-out domains, as they are kept in a store.

    They are those of the settings that all domains choose, and all but each one, which mostly are
    the same; or those of a given setting.
    """
    kind = training.task.kind
    labels = [training.labels(domain) for domain in training.domains]

    def compute() -> dict[str, NDArray[Any]]:
        paths: list[Outputs] = []
        samples = None
        for at, chosen in enumerate(columns):
            if samples is None or chosen is not columns[at - 1]:
                samples = chosen.samples(training, training.domains)
            paths += PATHS[kind].left_out(samples, len(training.classes), [{at}], device=device)
        settings = [setting] if setting is not None else [RULES[kind](paths, labels)]
        for at in range(len(labels)) if setting is None else ():
            rest = paths[:at] + paths[at + 1 :], labels[:at] + labels[at + 1 :]
            settings.append(RULES[kind](*rest))
        return {"settings": np.array(settings)} | {
            f"outputs {each}": np.concatenate([path[each] for path in paths])
            for each in set(settings)
        }

    digest = hashlib.sha256()
    for chosen in columns:
        for model, numbers in chosen.by_model.items():
            digest.update(f"{model}\n{model in chosen.normalised}\n{len(numbers)}\n".encode())
            digest.update(np.asarray(numbers, np.int64).tobytes())
    models = sorted({model for chosen in columns for model in chosen.models})
    settings = f"{C_GRID} {SETTINGS} {setting} {digest.hexdigest()}"
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
