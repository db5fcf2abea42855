"""Heads for each kind of task: ridge regressions, or logistic regressions of several labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.extraction.columns import Samples
from oodzoo.linear.heads.groups import Groups, group_numbers
from oodzoo.linear.heads.left_out import Split, SplitOutputs, predict_splits_by
from oodzoo.linear.heads.linear import LinearHead, stratified_folds
from oodzoo.linear.heads.multilabel import fit_label_head, left_out_labels
from oodzoo.linear.heads.outputs import outputs_of
from oodzoo.linear.heads.paths import C_GRID
from oodzoo.linear.heads.regression import (
    fit_regression_head,
    left_out_regressions,
    predict_regression_splits,
)
from oodzoo.linear.heads.ridge import (
    RIDGES,
    SETTINGS,
    fit_ridge_head,
    left_out_ridges,
    predict_ridge_splits,
)
from oodzoo.tasks import Kind
from oodzoo.tasks.strata import strata

Outputs = NDArray[Any]
"""Outputs (settings, n, C) of a head with each setting, see :mod:`oodzoo.linear.heads.outputs`."""


@dataclass(frozen=True)
class HeadPath:
    """A kind of head, with all settings of its regularisation.

    Attributes
    ----------
    predict : callable
        Predicts splits, as :func:`~oodzoo.linear.heads.ridge.predict_ridge_splits`.
    left_out : callable
        Predicts left-out domains, as :func:`~oodzoo.linear.heads.ridge.left_out_ridges`.
    fit : callable
        Fits a head with one setting.
    """

    predict: Callable[..., list[SplitOutputs]]
    left_out: Callable[..., list[Outputs]]
    fit: Callable[[Samples, int, int], LinearHead]


RIDGE = HeadPath(
    predict_ridge_splits,
    left_out_ridges,
    lambda samples, n, at: fit_ridge_head(samples, n, *SETTINGS[at]),
)
REGRESSION = HeadPath(
    predict_regression_splits,
    left_out_regressions,
    lambda samples, n, at: fit_regression_head(samples, n, RIDGES[at]),
)
LABELS = HeadPath(
    partial(predict_splits_by, left_out_labels),
    left_out_labels,
    lambda samples, n, at: fit_label_head(samples, n, C_GRID[at]),
)

PATHS: dict[Kind, HeadPath] = {
    "classification": RIDGE,
    "regression": REGRESSION,
    "multilabel": LABELS,
}
"""The heads of each kind of task."""


def best_setting(
    left_out: Sequence[Outputs],
    within: Sequence[Outputs] | None,
    labels: Sequence[NDArray[Any]],
    kind: Kind = "classification",
    share: float = 0.5,
) -> int:
    """Position of the setting with the highest quality; all domains weigh alike.

    Parameters
    ----------
    left_out, within : sequence of array (settings, n, C)
        Outputs for the samples of each domain: by heads of the other domains, and by heads of the
        other folds of all domains. None if there are no folds.
    labels : sequence of array
    kind : {"classification", "regression", "multilabel"}
    share : float
        Weight of the left-out domains; the rest is that of the folds.
    """
    return best_settings(left_out, within, labels, kind, [share])[0]


def best_settings(
    left_out: Sequence[Outputs],
    within: Sequence[Outputs] | None,
    labels: Sequence[NDArray[Any]],
    kind: Kind,
    shares: Sequence[float],
) -> list[int]:
    """Position of the best setting for each share, as :func:`best_setting`."""
    quality = outputs_of(kind).quality
    outside = inside = quality(left_out, labels).mean(axis=0)
    if within is not None:
        inside = quality(within, labels).mean(axis=0)
    return [int((share * outside + (1 - share) * inside).argmax()) for share in shares]


def folds_within(
    kind: Kind,
    labels: NDArray[Any],
    domains: NDArray[np.int64],
    groups: Groups | None = None,
) -> NDArray[np.int64]:
    """Assign samples to five folds with about equal shares of each domain and class.

    Groups are kept whole. Numbers and labels have strata in place of classes. With few groups some
    folds have no samples.

    Examples
    --------
    >>> labels, domains = np.array([0, 0, 1, 1, 1, 1]), np.array([0, 0, 0, 1, 1, 1])
    >>> folds_within("classification", labels, domains).tolist()
    [0, 1, 2, 3, 4, 0]
    """
    of_labels = strata(kind, labels)
    cells = domains * (int(of_labels.max()) + 1) + of_labels
    return stratified_folds(cells, group_numbers(groups, len(labels)))


def split_without(
    kind: Kind,
    samples: Samples,
    groups: Groups | None = None,
    test: int | None = None,
    kept: NDArray[np.bool_] | None = None,
) -> Split:
    """Train on all domains but a test domain: leave each out, and cross-validate within them.

    `kept` are the samples that may be used. The folds depend on the training samples only.
    """
    training = np.ones(len(samples.domains), np.bool_) if kept is None else kept
    if test is not None:
        training = training & (samples.domains != test)
    rows = np.flatnonzero(training)
    some = None if groups is None else [groups[row] for row in rows.tolist()]
    folds = np.full(len(samples.domains), -1)
    folds[rows] = folds_within(kind, samples.labels[rows], samples.domains[rows], some)
    several = [each for each in (samples.domains, folds) if len(np.unique(each[rows])) > 1]
    return Split(training, tuple(several))


class ByDomain(NamedTuple):
    """Outputs (settings, n, C) for the training samples of each domain, and their labels.

    `left_out` and `within` are as in :func:`best_setting`; with one domain, `left_out` are those of
    the folds, and with one sample, there are none.
    """

    left_out: list[Outputs]
    within: list[Outputs] | None
    labels: list[NDArray[Any]]

    @classmethod
    def of(cls, samples: Samples, split: Split, outputs: SplitOutputs) -> ByDomain:
        domains, labels = samples.domains[split.training], samples.labels[split.training]
        rows = [domains == number for number in np.unique(domains)]
        found = [[each[:, of_domain] for of_domain in rows] for each in outputs.partitions]
        known = [labels[of_domain] for of_domain in rows]
        return cls(found[0] if found else [], found[1] if len(found) > 1 else None, known)

    def best_settings(self, kind: Kind, shares: Sequence[float]) -> list[int]:
        """Position of the best setting for each share; 0 if there are no predictions."""
        if not self.left_out:
            return [0] * len(shares)
        return best_settings(self.left_out, self.within, self.labels, kind, shares)

    def best_setting(self, kind: Kind) -> int:
        """Position of the best setting for the share ½."""
        return self.best_settings(kind, [0.5])[0]


def fit_head_of(
    kind: Kind, samples: Samples, n_outputs: int, *, groups: Groups | None = None
) -> LinearHead:
    """Fit a head for a kind of task to samples of one or more domains.

    The regularisation is chosen by left-out domains and cross-validation within the domains.

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
    path, split = PATHS[kind], split_without(kind, samples, groups)
    (outputs,) = path.predict(samples, n_outputs, [split])
    setting = ByDomain.of(samples, split, outputs).best_setting(kind)
    return path.fit(samples, n_outputs, setting)


def left_out_metrics(
    kind: Kind, samples: Samples, n_outputs: int, groups: Groups | None = None
) -> list[float]:
    """Compute the main metric on each domain, in order, of a head fitted to the other domains.

    All domains together choose the regularisation.
    """
    split = split_without(kind, samples, groups)
    (outputs,) = PATHS[kind].predict(samples, n_outputs, [split])
    found = ByDomain.of(samples, split, outputs)
    setting, meaning = found.best_setting(kind), outputs_of(kind)
    return [
        float(meaning.contributions(each[setting], y).mean())
        for each, y in zip(found.left_out, found.labels, strict=True)
    ]
