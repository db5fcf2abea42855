"""One head on features of some models: a single model, an ensemble of the best models."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.combining.combination import Chosen, Combination, FinalHead, ForSets, Training
from oodzoo.combining.pool_weights import qualities
from oodzoo.combining.predictions import HeadPredictions, Heads, Outputs, Pooled
from oodzoo.core.events import tracked
from oodzoo.core.limits import Limits
from oodzoo.extraction.columns import Columns
from oodzoo.extraction.features import FeatureSource, groups_of, with_models
from oodzoo.linear.heads.kinds import (
    PATHS,
    best_setting,
    chosen_setting,
    fit_with,
    split_without,
)
from oodzoo.linear.heads.linear import LinearHead
from oodzoo.linear.heads.paths import C_GRID
from oodzoo.linear.heads.ridge import SETTINGS
from oodzoo.linear.selection.contributions import contributions


class OneHead(Combination):
    """One head that is trained on columns of some models.

    A combination of this kind only says which columns.
    """

    @abstractmethod
    def choose(self, training: Training) -> Chosen: ...

    def left_out(self, training: Training, chosen: Chosen) -> Pooled:
        source, columns = _source(training, chosen), chosen.columns
        found = left_out_columns(source, columns, _parts(training, chosen), device=training.device)
        # selected features have seen the labels of all folds: within would be too high
        return Pooled(found.out_of_fold, None) if chosen.selected_from else found

    def fit(self, training: Training, chosen: Chosen) -> FinalHead:
        return FinalHead(chosen.columns, fit_columns(training.source, chosen.columns))

    def for_sets(self, training: Training, chosen: Chosen) -> ForSets:
        source, columns, device = _source(training, chosen), chosen.columns, training.device
        parts = _parts(training, chosen)
        values = left_out_columns(source, columns, parts, device=device).out_of_fold
        return ForSets(
            list(values), left_out_columns_without(source, columns, parts, device=device)
        )


class Single(OneHead):
    """The best model of the ranking that is within the limits."""

    name = "single"
    title = "Single"
    words = ""
    made = "the top-ranked model"
    known_to_all = "the model"
    from_heads = True

    def choose(self, training: Training) -> Chosen:
        best = next(model for model in training.order if training.allows([model]))
        columns = Columns.all_of(training.source, [best])
        test = None if training.test is None else training.heads.alone[best].test
        return Chosen(columns, len(columns), test=test)

    def left_out(self, training: Training, chosen: Chosen) -> Pooled:
        """By the model that is best in the other domains."""
        return left_out_singles(training.heads, training.limits)

    def described(self, models: Sequence[str]) -> str:
        return models[0]


class Ensemble(OneHead):
    """All features of the best models."""

    name = "ensemble"
    title = "Ensemble"
    words = "all features of {models}"
    made = "one head on all features of the best models"
    known_to_all = "the models"

    def choose(self, training: Training) -> Chosen:
        columns = Columns.all_of(training.source, training.best())
        return Chosen(columns, len(columns))


SINGLE, ENSEMBLE = Single(), Ensemble()

NAMED = "named"
"""What a predictor calls an ensemble of models that were named, not chosen."""


def left_out_singles(heads: Heads, limits: Limits) -> Pooled:
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


def fit_columns(source: FeatureSource, columns: Columns) -> LinearHead:
    """Fit a head of columns on all domains (:func:`~oodzoo.linear.heads.kinds.fit_head_of`).

    The setting is kept in a store, by :func:`left_out_columns`, too, which makes the predictions
    that choose it.
    """
    samples, n_outputs = columns.samples(source, source.domains), len(source.classes)
    groups = groups_of(source, source.domains)

    def compute() -> int:
        return chosen_setting(source.task, samples, n_outputs, groups)

    return fit_with(source.task, samples, n_outputs, _kept_setting(source, columns, compute))


def _kept_setting(source: FeatureSource, columns: Columns, compute: Callable[[], int]) -> int:
    """The setting of the head of some columns, computed or from the cache."""
    found = source.cached(
        "setting",
        sorted(columns.models),
        lambda: {"setting": np.array(compute())},
        settings=_digest(source, [columns]),
    )
    return int(found["setting"])


def _digest(source: FeatureSource, some: Sequence[Columns]) -> str:
    """Identify columns, the groups of the samples, and the settings of heads."""
    groups = groups_of(source, source.domains)
    digest = hashlib.sha256(json.dumps(groups).encode())
    for columns in some:
        for model, numbers in columns.by_model.items():
            digest.update(f"{model}\n{model in columns.normalised}\n{len(numbers)}\n".encode())
            digest.update(np.asarray(numbers, np.int64).tobytes())
    return f"{C_GRID} {SETTINGS} {digest.hexdigest()}"


def left_out_columns(
    training: FeatureSource,
    columns: Columns,
    parts: Sequence[Columns] | None = None,
    *,
    device: str | None = None,
) -> Pooled:
    """Predictions of each domain by a head of columns trained on the others, and within.

    `parts` are the columns for each held-out domain, if they are not the same. All domains choose
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
    """The same for each domain by held-out domains, with the setting that the others choose."""
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
    """Predictions of held-out domains and within the domains, as they are kept in a store.

    They are those of the settings that all domains choose, and all but each one, which mostly are
    the same.
    """
    task, n_outputs = training.task, len(training.classes)
    labels = [training.labels(domain) for domain in training.domains]
    groups = groups_of(training, training.domains)

    def compute() -> dict[str, NDArray[Any]]:
        head = PATHS[task.link]
        samples = columns.samples(training, training.domains)
        split, several = split_without(task, samples, groups), len(labels) > 1
        has_folds = len(split.partitions) > several
        if not several and parts is None:
            split = split._replace(partitions=(samples.domains, *split.partitions))
        (outputs,) = head.predict(samples, n_outputs, [split], device=device)
        of_domains = [samples.domains == number for number in range(len(labels))]
        found = [[each[:, rows] for rows in of_domains] for each in outputs.partitions]
        within = found[-1] if has_folds else None
        if several:  # of the head of all domains, which fit_columns needs
            _kept_setting(training, columns, lambda: best_setting(found[0], within, labels, task))
        paths: list[Outputs] = found[0] if parts is None else []
        for at, part in enumerate(tracked(parts or ())):
            samples = part.samples(training, training.domains)
            paths += head.left_out(samples, n_outputs, [{at}], device=device)
        settings = [best_setting(paths, within, labels, task)]
        every = range(len(labels))
        for at in every if several else ():
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

    some = [columns, *(parts or ())]
    models = sorted({model for chosen in some for model in chosen.models})
    settings = _digest(training, some)
    return training.cached("left_out_heads", models, compute, settings=settings)


def _source(training: Training, chosen: Chosen) -> FeatureSource:
    """The models that the columns can be selected from again, or all."""
    return with_models(training.source, chosen.selected_from or training.source.models)


def _parts(training: Training, chosen: Chosen) -> list[Columns] | None:
    """The columns without each domain, if they are not the same."""
    if not chosen.selected_from:
        return None
    return selections_without(_source(training, chosen), len(chosen.columns), training.device)


def selections_without(training: FeatureSource, number: int, device: str | None) -> list[Columns]:
    """As many features as a selection has, chosen without each of the domains."""
    models = sorted(training.models)
    result = []
    for left_out in tracked(training.domains):
        others = sorted(domain for domain in training.domains if domain != left_out)
        total = contributions(training, models, others, device=device).total
        mask = np.zeros(len(total), np.bool_)
        mask[np.argsort(-total, kind="stable")[:number]] = True
        result.append(Columns.by_mask(training, models, mask))
    return result
