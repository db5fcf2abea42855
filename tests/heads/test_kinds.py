"""Heads for each kind of task: how their regularisation is chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, r2_score
from tests.heads.numbers import numbers, several_labels
from tests.heads.partition import require_whole
from tests.heads.planted import planted
from tests.oracles import outputs as oracle
from tests.oracles.ridge import split_classes, split_ridge

from oodzoo.features.columns import Samples
from oodzoo.heads.kinds import (
    PATHS,
    ByDomain,
    best_setting,
    fit_head_of,
    folds_within,
    left_out_metrics,
    split_without,
)
from oodzoo.heads.outputs import outputs_of
from oodzoo.heads.paths import C_GRID
from oodzoo.heads.ridge import RIDGES, SETTINGS
from oodzoo.task import KINDS, Kind
from oodzoo.task.strata import strata


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
    """Left-out domains and cross-validation within the domains choose, each with a half."""
    samples = made(kind, n, d)
    left_out = by_domain(samples, literal(kind, samples, samples.domains))
    folds = folds_within(kind, samples.labels, samples.domains)
    within = by_domain(samples, literal(kind, samples, folds))
    labels = [samples.labels[samples.domains == domain] for domain in range(3)]
    at = oracle.best_setting(kind, left_out, within, labels, 0.5)
    head = fit_head_of(kind, samples, 2)
    np.testing.assert_array_equal(head.weights, PATHS[kind].fit(samples, 2, at).weights)
    metrics = []
    for path, y in zip(left_out, labels, strict=True):
        if kind == "classification":
            metrics.append(np.mean(path[at].argmax(axis=1) == y))
        elif kind == "regression":
            metrics.append(r2_score(y, path[at]))
        else:
            known = y.any(axis=0)
            metrics.append(average_precision_score(y[:, known], path[at][:, known]))
    assert left_out_metrics(kind, samples, 2) == pytest.approx(metrics, abs=0.02)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(KINDS), st.sampled_from([0, 0.5, 1]), st.booleans())
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
        found = best_setting(tables[0], within, labels, kind, share)
        assert found == oracle.best_setting(kind, tables[0], within, labels, share)


# --- folds within the domains -------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(KINDS))
def test_folds_have_their_share_of_each_stratum_of_each_domain(seed: int, kind: Kind) -> None:
    samples = made(kind, 97, 3, 4)
    order = np.random.default_rng(seed).permutation(97)
    labels, domains = samples.labels[order], samples.domains[order]
    folds = folds_within(kind, labels, domains)
    sizes = np.bincount(folds, minlength=5)
    assert sizes.max() - sizes.min() <= 1
    for domain in range(4):
        for stratum in range(6):
            cell = folds[(domains == domain) & (strata(kind, labels) == stratum)]
            counts = np.bincount(cell, minlength=5)
            assert counts.max() - counts.min() <= 1


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(KINDS), st.integers(1, 30))
def test_folds_keep_groups_whole(seed: int, kind: Kind, n_groups: int) -> None:
    samples = made(kind)
    groups = [f"g{n}" for n in np.random.default_rng(seed).integers(0, n_groups, 48)]
    folds = folds_within(kind, samples.labels, samples.domains, groups)
    for fold in range(5):
        require_whole(groups, np.flatnonzero(folds == fold), np.flatnonzero(folds != fold))
    assert len(set(folds.tolist())) == min(5, len(set(groups)))


@pytest.mark.parametrize("kind", KINDS)
def test_splits_without_a_test_domain(kind: Kind) -> None:
    """Its samples, and others that are not kept, have no influence on the folds."""
    samples = made(kind, 60)
    groups = [f"g{row // 2}" if row % 3 else None for row in range(60)]
    kept = np.arange(60) % 4 > 0
    split = split_without(kind, samples, groups, 1, kept)
    training = kept & (samples.domains != 1)
    np.testing.assert_array_equal(split.training, training)
    domains, folds = split.partitions
    np.testing.assert_array_equal(domains[training], samples.domains[training])
    rows = np.flatnonzero(training)
    expected = folds_within(
        kind, samples.labels[rows], samples.domains[rows], [groups[row] for row in rows]
    )
    np.testing.assert_array_equal(folds[training], expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("grouped", [False, True])
def test_a_single_domain_is_split_into_folds(kind: Kind, grouped: bool) -> None:
    samples = made(kind, n_domains=1)
    groups = [f"g{row // 4}" for row in range(48)] if grouped else None
    folds = folds_within(kind, samples.labels, samples.domains, groups)
    outputs = literal(kind, samples, folds)
    at = oracle.best_setting(kind, [outputs], None, [samples.labels], 0.5)
    head = fit_head_of(kind, samples, 2, groups=groups)
    np.testing.assert_array_equal(head.weights, PATHS[kind].fit(samples, 2, at).weights)


@pytest.mark.parametrize("kind", KINDS)
def test_a_single_group_cannot_choose(kind: Kind) -> None:
    """Nothing can be left out, so the first setting is taken."""
    samples = made(kind, n_domains=1)
    head = fit_head_of(kind, samples, 2, groups=["patient"] * 48)
    np.testing.assert_array_equal(head.weights, PATHS[kind].fit(samples, 2, 0).weights)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_outputs_by_domain_choose_a_setting(kind: Kind, share: float) -> None:
    samples = made(kind, 60)
    split = split_without(kind, samples, test=1)
    (outputs,) = PATHS[kind].predict(samples, 2, [split])
    found = ByDomain.of(samples, split, outputs)
    assert found.within is not None
    for at, domain in enumerate((0, 2)):
        rows = samples.domains[split.training] == domain
        np.testing.assert_array_equal(found.left_out[at], outputs.partitions[0][:, rows])
        np.testing.assert_array_equal(found.within[at], outputs.partitions[1][:, rows])
        np.testing.assert_array_equal(found.labels[at], samples.labels[samples.domains == domain])
    quality = [
        outputs_of(kind).quality(each, found.labels).mean(axis=0)
        for each in (found.left_out, found.within)
    ]
    expected = (share * quality[0] + (1 - share) * quality[1]).argmax()
    assert found.best_settings(kind, [share]) == [expected]
