"""Heads for each kind of task: logistic regressions of classes or labels, ridge regressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.features.columns import Samples
from oodzoo.heads.groups import Groups, group_numbers
from oodzoo.heads.linear import LinearHead, fit_head, left_out_accuracies, stratified_folds
from oodzoo.heads.multilabel import fit_label_head, left_out_labels
from oodzoo.heads.outputs import outputs_of
from oodzoo.heads.paths import C_GRID, left_out_paths
from oodzoo.heads.regression import fit_regression_head, left_out_regressions
from oodzoo.heads.ridge import RIDGES
from oodzoo.task import Kind
from oodzoo.task.strata import strata


@dataclass(frozen=True)
class HeadPath:
    """How to predict left-out domains with all settings of a head, and how to fit it with one."""

    left_out: Callable[..., list[NDArray[Any]]]
    fit: Callable[[Samples, int, int], LinearHead]


LOGISTIC = HeadPath(left_out_paths, lambda samples, n, at: fit_head(samples, n, C=C_GRID[at]))
REGRESSION = HeadPath(
    left_out_regressions, lambda samples, n, at: fit_regression_head(samples, n, RIDGES[at])
)
LABELS = HeadPath(left_out_labels, lambda samples, n, at: fit_label_head(samples, n, C_GRID[at]))

PATHS: dict[Kind, HeadPath] = {
    "classification": LOGISTIC,
    "regression": REGRESSION,
    "multilabel": LABELS,
}
"""The heads that are used alone."""


def best_setting(
    predictions: Sequence[NDArray[Any]],
    labels: Sequence[NDArray[Any]],
    kind: Kind = "classification",
) -> int:
    """Position of the setting with the highest quality; all domains weigh alike.

    `predictions` are the outputs of each domain, (settings, n, C), see :mod:`oodzoo.heads.outputs`.
    """
    return int(outputs_of(kind).quality(predictions, labels).mean(axis=0).argmax())


def fit_head_of(
    kind: Kind, samples: Samples, n_outputs: int, *, groups: Groups | None = None
) -> LinearHead:
    """Fit a head for a kind of task to samples of one or more domains.

    The regularisation is chosen on left-out domains: of a classifier as in
    :func:`~oodzoo.heads.linear.fit_head`, else by :func:`best_setting`. A single domain is split
    into five folds instead, which keep groups whole.

    Parameters
    ----------
    kind : {"classification", "regression", "multilabel"}
    samples : Samples
        With classes (n,), or labels (n, n_outputs).
    n_outputs : int
        Number of classes, numbers or labels.
    groups : sequence, optional
        Group of each sample (a patient, a video), None for a sample without one.

    Examples
    --------
    >>> x = np.float32([[0], [1], [2], [3], [0], [1], [2], [4]])
    >>> head = fit_head_of("regression", Samples(x, 2.0 * x, np.repeat([0, 1], 4)), 1)
    >>> head.values(np.float32([[5]])).round(1).tolist()
    [[10.0]]
    """
    if kind == "classification":
        return fit_head(samples, n_outputs, groups=groups)
    folds = samples.domains
    if len(np.unique(folds)) == 1:
        numbers = group_numbers(groups, len(samples.labels))
        folds = stratified_folds(strata(kind, samples.labels), numbers)
    path, parts = PATHS[kind], np.unique(folds)
    setting = 0
    if len(parts) > 1:
        found = path.left_out(samples._replace(domains=folds), n_outputs, [{f} for f in parts])
        setting = best_setting(found, [samples.labels[folds == fold] for fold in parts], kind)
    return path.fit(samples, n_outputs, setting)


def left_out_metrics(kind: Kind, samples: Samples, n_outputs: int) -> list[float]:
    """Compute the main metric on each domain, in order, of a head fitted to the other domains.

    All domains together choose the regularisation.
    """
    if kind == "classification":
        return left_out_accuracies(samples, n_outputs, fit_head(samples, n_outputs).C)
    numbers = np.unique(samples.domains).tolist()
    found = PATHS[kind].left_out(samples, n_outputs, [{number} for number in numbers])
    labels = [samples.labels[samples.domains == number] for number in numbers]
    setting = best_setting(found, labels, kind)
    outputs = outputs_of(kind)
    return [
        float(outputs.contributions(path[setting], y).mean())
        for path, y in zip(found, labels, strict=True)
    ]
