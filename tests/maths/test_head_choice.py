"""Heads for each kind of task: their outputs, folds and groups, and how they are chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax
from sklearn.metrics import average_precision_score, r2_score
from tests.heads.planted import numbers, planted, several_labels
from tests.oracles import outputs as oracle
from tests.oracles.ridge import split_classes, split_ridge

from oodzoo.extraction.columns import Samples
from oodzoo.linear.heads.kinds import (
    PATHS,
    best_setting,
    fit_head_of,
    folds_within,
    left_out_metrics,
)
from oodzoo.linear.heads.linear import LinearHead
from oodzoo.linear.heads.paths import C_GRID
from oodzoo.linear.heads.ridge import RIDGES, SETTINGS
from oodzoo.tasks import KINDS, Kind, task_of


def made(kind: Kind, n: int = 48, d: int = 6, n_domains: int = 3) -> Samples:
    if kind == "classification":
        return planted(n, d, 2, n_domains)
    return (numbers if kind == "regression" else several_labels)(n, d, 2, n_domains)


def literal(kind: Kind, samples: Samples, folds: Any) -> Any:
    """Outputs (settings, n, 2) of each fold by heads of the others, fitted one at a time."""
    X, y = samples.features, samples.labels
    if kind == "classification":
        return split_classes(X, y, folds, SETTINGS, 2)[0]
    if kind == "regression":
        return np.stack([split_ridge(X, y, folds, ridge)[0] for ridge in RIDGES])
    outputs = np.empty((len(C_GRID), len(y), 2))
    for at, C in enumerate(C_GRID):
        for fold in sorted(set(folds.tolist())):
            out = folds == fold
            outputs[at, out] = oracle.log_odds(X[~out], y[~out], X[out], C)
    return outputs


def by_domain(samples: Samples, outputs: Any) -> list[Any]:
    return [outputs[..., samples.domains == d, :] for d in sorted(set(samples.domains.tolist()))]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "d"), [(60, 5), (30, 40)])
def test_regularisation_and_metric_of_left_out_domains(kind: Kind, n: int, d: int) -> None:
    """Held-out domains and cross-validation within the domains choose, each with a half."""
    samples = made(kind, n, d)
    left_out = by_domain(samples, literal(kind, samples, samples.domains))
    folds = folds_within(task_of(kind), samples.labels, samples.domains)
    within = by_domain(samples, literal(kind, samples, folds))
    labels = [samples.labels[samples.domains == domain] for domain in range(3)]
    at = oracle.best_setting(kind, left_out, within, labels, 0.5)
    head = fit_head_of(task_of(kind), samples, 2)
    np.testing.assert_array_equal(
        head.weights, PATHS[task_of(kind).link].fit(samples, 2, at).weights
    )
    metrics = []
    for path, y in zip(left_out, labels, strict=True):
        if kind == "classification":
            metrics.append(np.mean(path[at].argmax(axis=1) == y))
        elif kind == "regression":
            metrics.append(r2_score(y, path[at]))
        else:
            known = y.any(axis=0)
            metrics.append(average_precision_score(y[:, known], path[at][:, known]))
    assert left_out_metrics(task_of(kind), samples, 2) == pytest.approx(metrics, abs=0.02)


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from(list(KINDS)),
    st.sampled_from([0, 0.5, 1]),
    st.booleans(),
)
def test_the_best_setting(seed: int, kind: Kind, share: float, unknown: bool) -> None:
    rng = np.random.default_rng(seed)
    sizes = (7, 4, 9)
    tables = [[rng.normal(size=(5, n, 2)) for n in sizes] for _ in range(2)]
    if kind == "classification":
        labels: Any = [rng.integers(0, 2, n) for n in sizes]
        tables = [[each - np.logaddexp(*np.moveaxis(each, 2, 0))[..., None] for each in table]
                  for table in tables]  # fmt: skip
        if unknown:  # a class that no other domain has
            tables[0][1][:, :, 0] = -np.inf
    else:
        labels = [rng.integers(0, 2, (n, 2)).astype(float) for n in sizes]
    for within in (tables[1], None):
        found = best_setting(tables[0], within, labels, task_of(kind), share)
        assert found == oracle.best_setting(kind, tables[0], within, labels, share)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(list(KINDS)))
def test_folds_have_their_share_of_each_stratum_of_each_domain(seed: int, kind: Kind) -> None:
    samples = made(kind, 97, 3, 4)
    order = np.random.default_rng(seed).permutation(97)
    labels, domains = samples.labels[order], samples.domains[order]
    folds = folds_within(task_of(kind), labels, domains)
    sizes = np.bincount(folds, minlength=5)
    assert sizes.max() - sizes.min() <= 1
    for domain in range(4):
        for stratum in range(6):
            cell = folds[(domains == domain) & (task_of(kind).strata(labels) == stratum)]
            counts = np.bincount(cell, minlength=5)
            assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_outputs(kind: Kind) -> None:
    """Values, contributions to the metric, quality and pools of the outputs of three heads."""
    rng, meaning = np.random.default_rng(0), task_of(kind)
    tables: list[Any] = [rng.normal(size=(3, n, 4)) for n in (20, 11)]
    labels: list[Any] = [rng.normal(size=each.shape[1:]) for each in tables]
    if kind == "classification":
        tables = [log_softmax(each, axis=2) for each in tables]
        labels = [rng.integers(0, 4, each.shape[1]) for each in tables]
    if kind == "multilabel":
        labels = [(rng.random(each.shape[1:]) < 0.4).astype(np.float64) for each in tables]
    outputs, y, every = tables[0][0], labels[0], np.concatenate(labels)
    values, metric = outputs, 0.0
    if kind == "classification":
        values, metric = np.exp(outputs), np.mean(outputs.argmax(axis=1) == y)
    elif kind == "regression":
        metric = r2_score(y, outputs)
    else:
        values, metric = 1 / (1 + np.exp(-outputs)), average_precision_score(y, outputs)
    np.testing.assert_allclose(meaning.values(outputs), values)
    assert meaning.contributions(outputs, y).mean() == pytest.approx(metric)
    quality = meaning.quality(tables, labels)
    for domain, (table, truth) in enumerate(zip(tables, labels, strict=True)):
        for at in range(3):
            expected = oracle.quality(kind, table[at], truth, every)
            assert quality[domain, at] == pytest.approx(expected)
    expected = 0.5 * tables[0][0] + 0.2 * tables[0][1] + 0.3 * tables[0][2]
    if kind == "classification":
        expected = log_softmax(expected, axis=1)
    np.testing.assert_allclose(meaning.pooled(tables[0], [0.5, 0.2, 0.3]), expected)
    head = LinearHead(rng.normal(size=(3, 5)), rng.normal(size=3), 1.0, task_of(kind))
    features = rng.normal(size=(7, 5))
    logits = head.logits(features)
    logits = log_softmax(logits, axis=1) if kind == "classification" else logits
    np.testing.assert_allclose(head.values(features), meaning.values(logits))
