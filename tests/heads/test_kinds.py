"""Heads for each kind of task: how their regularisation is chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, r2_score
from tests.heads.numbers import numbers, several_labels
from tests.heads.planted import planted
from tests.oracles import outputs as oracle

from oodzoo.features.columns import Samples
from oodzoo.heads import kinds
from oodzoo.heads.kinds import PATHS, fit_head_of, left_out_metrics
from oodzoo.heads.linear import fit_head, left_out_accuracies
from oodzoo.heads.paths import C_GRID
from oodzoo.heads.ridge import RIDGES
from oodzoo.task import Kind


def made(kind: Kind, n: int = 48, d: int = 6, n_domains: int = 3) -> Samples:
    make = numbers if kind == "regression" else several_labels
    return make(n, d, 2, n_domains)


def literal(kind: Kind, samples: Samples, folds: Any) -> tuple[int, dict[int, Any]]:
    """The best setting, and its predictions for each fold, by scikit-learn."""
    fit = oracle.regression if kind == "regression" else oracle.log_odds
    grid = RIDGES if kind == "regression" else C_GRID
    predictions, values = [], []
    for setting in grid:
        found, quality = {}, []
        for fold in sorted(set(folds.tolist())):
            out = folds == fold
            X, y, there = samples.features[~out], samples.labels[~out], samples.features[out]
            found[fold] = fit(X, y, there, setting)
            quality.append(
                oracle.squared_error(found[fold], samples.labels[out], samples.labels)
                if kind == "regression"
                else oracle.likelihood(found[fold], samples.labels[out])
            )
        predictions.append(found)
        values.append(sum(quality) / len(quality))
    best = values.index(max(values))
    return best, predictions[best]


@pytest.mark.parametrize("kind", ["regression", "multilabel"])
@pytest.mark.parametrize(("n", "d"), [(60, 5), (30, 40)])
def test_regularisation_and_metric_of_left_out_domains(kind: Kind, n: int, d: int) -> None:
    samples = made(kind, n, d)
    at, predictions = literal(kind, samples, samples.domains)
    head = fit_head_of(kind, samples, 2)
    expected = PATHS[kind].fit(samples, 2, at)
    np.testing.assert_array_equal(head.weights, expected.weights)
    metrics = []
    for domain, predicted in predictions.items():
        labels = samples.labels[samples.domains == domain]
        if kind == "regression":
            metrics.append(r2_score(labels, predicted))
        else:
            known = labels.any(axis=0)
            metrics.append(average_precision_score(labels[:, known], predicted[:, known]))
    assert left_out_metrics(kind, samples, 2) == pytest.approx(metrics, abs=0.02)


def test_classes() -> None:
    samples = planted(60, 5, 3, 3)
    head = fit_head(samples, 3)
    assert fit_head_of("classification", samples, 3).C == head.C
    assert left_out_metrics("classification", samples, 3) == left_out_accuracies(samples, 3, head.C)


@pytest.mark.parametrize("kind", ["regression", "multilabel"])
def test_a_single_domain_is_split_into_folds_that_keep_groups_whole(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = made(kind, n_domains=1)
    groups = [f"g{row // 4}" for row in range(48)]
    seen: list[Any] = []
    path = PATHS[kind]

    def left_out(samples: Samples, *arguments: Any) -> Any:
        seen.append(samples.domains)
        return path.left_out(samples, *arguments)

    monkeypatch.setitem(kinds.PATHS, kind, kinds.HeadPath(left_out, path.fit))
    for given in (None, groups):
        head = fit_head_of(kind, samples, 2, groups=given)
        folds = seen.pop()
        assert sorted(set(folds.tolist())) == list(range(5))
        at, _ = literal(kind, samples, folds)
        np.testing.assert_array_equal(head.weights, path.fit(samples, 2, at).weights)
    assert all(len(set(folds[row : row + 4].tolist())) == 1 for row in range(0, 48, 4))
