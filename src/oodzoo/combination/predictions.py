"""Predictions of the heads of a model for domains that they have not seen.

For each test domain, and for none, the heads of a model are trained on the other domains. Their
*out-of-fold* predictions of a training domain are those of heads trained without it. These choose
the regularisation of each head, and later the heads of a pool; all domains weigh alike. They are
computed once and kept in the store.

The regularisation of a classifier that is used alone is chosen by accuracy, with the rule of
:func:`~oodzoo.heads.linear.fit_head`. In a pool, probabilities matter, and it is chosen by the
likelihood of the labels. Heads of other kinds of tasks are chosen by the quality of their outputs
(:mod:`oodzoo.heads.outputs`), alone and in a pool.

A model with class embeddings has two more kinds of heads in a pool: the zero-shot head, which is
not trained, and heads that start from it (:mod:`oodzoo.heads.zero_shot`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.combination.zero_shot import find_zero_shot, pool_columns
from oodzoo.features.columns import Columns, Samples
from oodzoo.features.source import FeatureSource
from oodzoo.heads.kinds import PATHS, HeadPath, best_setting
from oodzoo.heads.linear import LinearHead
from oodzoo.heads.outputs import outputs_of
from oodzoo.heads.paths import C_GRID, singles_and_pairs
from oodzoo.heads.ridge import SETTINGS, fit_ridge_head, left_out_ridges
from oodzoo.heads.zero_shot import (
    fit_from_zero_shot,
    left_out_from_zero_shot,
    left_out_zero_shot,
)
from oodzoo.task import Kind

POOLED = ("logistic", "ridge")
"""Kinds of heads of every model in a pool."""

ZERO_SHOT, FROM_ZERO_SHOT = "zero_shot", "from_zero_shot"
"""Kinds of heads of a model with class embeddings."""

ALONE = "alone"
"""The kind of a head that is used alone: a logistic regression, or a ridge regression."""

Outputs = NDArray[Any]
"""Log-probabilities, numbers or log-odds, see :mod:`oodzoo.heads.outputs`."""

Rule = Callable[[Sequence[Outputs], Sequence[NDArray[Any]]], int]
"""Chooses a setting by the outputs (settings, n, C) and the labels of each domain."""


@dataclass(frozen=True)
class HeadPredictions:
    """Predictions of one head.

    Attributes
    ----------
    setting : int
        Position of its regularisation among those tried.
    out_of_fold : list of arrays (n, C)
        Outputs for the samples of each training domain, by heads trained without it.
    test : array (n, C), optional
        Those of the test domain, by the head trained on all training domains.
    """

    setting: int
    out_of_fold: list[Outputs]
    test: Outputs | None = None


_PATHS = {
    "logistic": PATHS["classification"],
    "ridge": HeadPath(
        left_out_ridges, lambda samples, n, at: fit_ridge_head(samples, n, *SETTINGS[at])
    ),
    "regression": PATHS["regression"],
    "labels": PATHS["multilabel"],
}
"""The kinds of heads in a pool."""

_PATHS_OF: dict[Kind, tuple[str, ...]] = {
    "classification": POOLED,
    "regression": ("regression",),
    "multilabel": ("labels",),
}
"""The kinds of heads of each kind of task; the first one is also used alone."""


def _path(name: str, zero_shot: LinearHead | None) -> HeadPath:
    """Return a kind of head; the zero-shot head is that of the model."""
    if zero_shot is None or name not in (ZERO_SHOT, FROM_ZERO_SHOT):
        return _PATHS["logistic" if name == ALONE else name]
    if name == ZERO_SHOT:
        return HeadPath(partial(left_out_zero_shot, zero_shot=zero_shot), lambda *_: zero_shot)
    return HeadPath(
        partial(left_out_from_zero_shot, zero_shot=zero_shot),
        lambda samples, n, at: fit_from_zero_shot(samples, n, C_GRID[at], zero_shot),
    )


def fit_kind(
    kind: str,
    samples: Samples,
    n_classes: int,
    setting: int,
    zero_shot: LinearHead | None = None,
) -> LinearHead:
    """Fit a head of a kind with one of its settings; `zero_shot` is that of the model, if any."""
    return _path(kind, zero_shot).fit(samples, n_classes, setting)


def model_predictions(
    source: FeatureSource, model: str, *, device: str | None = None
) -> dict[str, dict[str | None, HeadPredictions]]:
    """Predictions of each kind of head of a model for each test domain; None is for no test domain.

    With two domains there is no test domain: one domain cannot be split into training domains.
    Domains are in the order of the source, without the test domain.
    """
    domains = source.domains
    tests: list[str | None] = [None, *(domains if len(domains) > 2 else ())]
    result: dict[str, dict[str | None, HeadPredictions]] = {}

    def add(arrays: dict[str, NDArray[Any]], kind: str) -> None:
        result[kind] = {}
        for number, test in enumerate(tests):
            sizes = [len(source.labels(domain)) for domain in domains if domain != test]
            result[kind][test] = HeadPredictions(
                int(arrays[f"{kind} {number} setting"]),
                np.split(arrays[f"{kind} {number} out-of-fold"], np.cumsum(sizes)[:-1]),
                arrays.get(f"{kind} {number} test"),
            )

    for path in _PATHS_OF[source.task.kind]:
        arrays = _path_arrays(source, model, path, device)
        for kind in _rules(path):
            add(arrays, kind)
    if (zero_shot := find_zero_shot(source, model)) is not None:
        for path in (*POOLED, ZERO_SHOT, FROM_ZERO_SHOT):  # of features of unit length
            add(_path_arrays(source, model, path, device, zero_shot), path)
    return result


def _path_arrays(
    source: FeatureSource,
    model: str,
    path: str,
    device: str | None,
    zero_shot: LinearHead | None = None,
) -> dict[str, NDArray[Any]]:
    """The predictions of all kinds of heads of one path, as they are cached.

    With a zero-shot head, they are those of features of unit length.
    """

    def compute() -> dict[str, NDArray[Any]]:
        choose = Columns.all_of if zero_shot is None else pool_columns
        samples = choose(source, [model]).samples(source, source.domains)
        found = predict_left_out(
            samples, len(source.classes), path, zero_shot=zero_shot, device=device
        )
        arrays: dict[str, NDArray[Any]] = {}
        for name, predictions in found.items():
            for number, each in enumerate(predictions):
                arrays[f"{name} {number} setting"] = np.array(each.setting)
                arrays[f"{name} {number} out-of-fold"] = np.concatenate(each.out_of_fold)
                if each.test is not None:
                    arrays[f"{name} {number} test"] = each.test
        return arrays

    settings = f"{path} {C_GRID} {SETTINGS}"
    if zero_shot is not None:
        settings += f" unit length, {zero_shot.digest}"
    return source.cached("heads", [model], compute, settings=settings)


def predict_left_out(
    samples: Samples,
    n_classes: int,
    path: str,
    *,
    zero_shot: LinearHead | None = None,
    device: str | None = None,
) -> dict[str, list[HeadPredictions]]:
    """Predictions without a test domain, then for each domain as the test domain.

    `samples` are of domains numbered from 0; `path` is "logistic" or "ridge", or with the zero-shot
    head of the model also "zero_shot" or "from_zero_shot"; "regression" for numbers, and "labels"
    for several labels. A head that is also used alone is returned as two kinds, in a pool and
    alone. A head trained without two domains serves both.
    """
    numbers = np.unique(samples.domains).tolist()
    sets = singles_and_pairs(numbers) if len(numbers) > 2 else [frozenset({n}) for n in numbers]
    found = _path(path, zero_shot).left_out(samples, n_classes, sets, device=device)
    paths = dict(zip(sets, found, strict=True))

    def left_out(domain: int, test: int | None) -> Outputs:
        """Outputs (settings, n, C) for a domain by heads trained without both."""
        some = frozenset({domain} if test is None else {domain, test})
        among = samples.domains[np.isin(samples.domains, list(some))]
        return paths[some][:, among == domain]

    rules = _rules(path)
    result: dict[str, list[HeadPredictions]] = {name: [] for name in rules}
    for test in [None, *(numbers if len(numbers) > 2 else ())]:
        training = [number for number in numbers if number != test]
        each = [left_out(domain, test) for domain in training]
        labels = [samples.labels[samples.domains == domain] for domain in training]
        for name, rule in rules.items():
            at = rule(each, labels)
            unseen = None if test is None else paths[frozenset({test})][at]
            result[name].append(HeadPredictions(at, [some[at] for some in each], unseen))
    return result


def _rules(path: str) -> dict[str, Rule]:
    """How to choose the setting of each kind of head of a path."""
    for kind, (first, *others) in _PATHS_OF.items():
        if path == first:
            return {path: partial(best_setting, kind=kind), ALONE: RULES[kind]}
        if path in others:
            return {path: partial(best_setting, kind=kind)}
    return {path: best_setting}


def accurate_setting(predictions: Sequence[Outputs], labels: Sequence[NDArray[np.int64]]) -> int:
    """Of the settings within a standard error of the most accurate one, that of best likelihood."""
    accuracies = np.mean(
        [(p.argmax(axis=2) == y).mean(axis=1) for p, y in zip(predictions, labels, strict=True)],
        axis=0,
    )
    best = accuracies.max()
    error = np.sqrt(best * (1 - best) / sum(map(len, labels)))
    close = accuracies >= best - error - 1e-9
    likelihoods = outputs_of("classification").quality(predictions, labels).mean(axis=0)
    return int(np.where(close, likelihoods, -np.inf).argmax())


RULES: dict[Kind, Rule] = {
    "classification": accurate_setting,
    "regression": partial(best_setting, kind="regression"),
    "multilabel": partial(best_setting, kind="multilabel"),
}
"""How to choose the setting of a head that is used alone."""
