"""Heads for each kind of task: their outputs, folds and groups, and how they are chosen."""

from __future__ import annotations

from threading import Barrier, get_ident
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import log_softmax
from sklearn.metrics import average_precision_score, r2_score
from tests.heads.numbers import numbers, several_labels
from tests.heads.partition import require_whole
from tests.heads.planted import planted
from tests.oracles import outputs as oracle
from tests.oracles.ridge import split_classes, split_ridge
from threadpoolctl import threadpool_info, threadpool_limits

from oodzoo._threads import LARGE
from oodzoo.errors import InputError
from oodzoo.features.columns import Samples
from oodzoo.features.source import ArraySource
from oodzoo.heads import left_out
from oodzoo.heads import samples as module
from oodzoo.heads.classes import require_classes_to_tell_apart, require_two_classes
from oodzoo.heads.groups import group_numbers, grouped_folds
from oodzoo.heads.kinds import (
    PATHS,
    ByDomain,
    best_setting,
    fit_head_of,
    folds_within,
    left_out_metrics,
    split_without,
)
from oodzoo.heads.left_out import Split, call_for_sets, predict_splits_by
from oodzoo.heads.outputs import outputs_of, relative_errors
from oodzoo.heads.paths import C_GRID
from oodzoo.heads.ridge import RIDGES, SETTINGS, left_out_ridges
from oodzoo.heads.samples import mean_and_std, standardised
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


def some(kind: Kind, seed: int = 0) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
    """Outputs (3, n, 4) of heads for two domains, and labels."""
    rng = np.random.default_rng(seed)
    raw = [rng.normal(size=(3, n, 4)) for n in (20, 11)]
    if kind == "classification":
        labels = [rng.integers(0, 4, (each.shape[1],)) for each in raw]
        return [log_softmax(each, axis=2) for each in raw], labels
    if kind == "regression":
        return raw, [rng.normal(size=each.shape[1:]) for each in raw]
    return raw, [(rng.random(each.shape[1:]) < 0.4).astype(np.float64) for each in raw]


def test_values_and_contributions() -> None:
    (outputs, *_), (labels, *_) = some("classification")
    probabilities = outputs_of("classification").values(outputs[0])
    np.testing.assert_allclose(probabilities, np.exp(outputs[0]))
    found = outputs_of("classification").contributions(outputs[0], labels)
    np.testing.assert_array_equal(found, outputs[0].argmax(axis=1) == labels)
    (outputs, *_), (labels, *_) = some("regression")
    np.testing.assert_array_equal(outputs_of("regression").values(outputs[0]), outputs[0])
    found = outputs_of("regression").contributions(outputs[0], labels)
    assert found.mean() == pytest.approx(r2_score(labels, outputs[0]))
    (outputs, *_), (labels, *_) = some("multilabel")
    probabilities = outputs_of("multilabel").values(outputs[0])
    np.testing.assert_allclose(probabilities, 1 / (1 + np.exp(-outputs[0])))
    found = outputs_of("multilabel").contributions(outputs[0], labels)
    expected = average_precision_score(labels, outputs[0], average="macro")
    assert found.mean() == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["regression", "multilabel"])
def test_quality(kind: Kind) -> None:
    tables, labels = some(kind)
    found = outputs_of(kind).quality(tables, labels)
    every = np.concatenate(labels)
    for domain, (table, y) in enumerate(zip(tables, labels, strict=True)):
        for head in range(3):
            expected = (
                oracle.squared_error(table[head], y, every)
                if kind == "regression"
                else oracle.likelihood(table[head], y)
            )
            assert found[domain, head] == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["regression", "multilabel"])
def test_a_pool_is_a_weighted_mean(kind: Kind) -> None:
    (table, *_), _ = some(kind)
    expected = 0.5 * table[0] + 0.2 * table[1] + 0.3 * table[2]
    np.testing.assert_allclose(outputs_of(kind).pooled(table, [0.5, 0.2, 0.3]), expected)


def test_errors_of_an_output_that_is_constant_count_as_they_are() -> None:
    labels = [np.array([[1.0, 0.0], [1.0, 4.0]])]
    (found,) = relative_errors([labels[0][None] + 3.0], labels)
    np.testing.assert_allclose(found[0], [[3.0, 1.5], [3.0, 1.5]])


def test_a_sample_without_a_group_is_one_of_its_own() -> None:
    found = group_numbers(["b", None, "a", "b", None], 5)
    assert found is not None
    assert found.tolist() == [0, 1, 2, 0, 3]


@pytest.mark.parametrize("groups", [None, [None, None, None]])
def test_no_groups(groups: list[None] | None) -> None:
    assert group_numbers(groups, 3) is None


def test_as_many_groups_as_samples() -> None:
    with pytest.raises(InputError, match="3 samples, but groups of 2; give one per sample"):
        group_numbers(["a", "b"], 3)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 40), st.integers(2, 4))
def test_folds_keep_groups_whole(seed: int, n_groups: int, n_classes: int) -> None:
    rng = np.random.default_rng(seed)
    numbers = np.unique(rng.integers(0, n_groups, 120), return_inverse=True)[1]
    labels = rng.integers(0, n_classes, 120)
    folds = grouped_folds(labels, numbers, 5)
    for fold in range(5):
        require_whole(numbers, np.flatnonzero(folds == fold), np.flatnonzero(folds != fold))
    assert len(np.unique(folds)) == min(5, numbers.max() + 1)


def test_folds_are_stratified_and_of_about_equal_size() -> None:
    rng = np.random.default_rng(0)
    numbers = np.unique(rng.integers(0, 60, 600), return_inverse=True)[1]
    labels = rng.integers(0, 3, len(numbers))
    folds = grouped_folds(labels, numbers, 5)
    table = np.array([[np.sum((folds == f) & (labels == c)) for c in range(3)] for f in range(5)])
    assert np.abs(table / table.sum(axis=0) - 0.2).max() < 0.04


SOURCE = ArraySource({"a": np.eye(4)}, ["cat", "cat", "cat", "dog"], ["x", "x", "y", "y"])


def test_one_class_is_named() -> None:
    with pytest.raises(InputError, match=r"all labels are of one class, 'dog' \(2 samples\)"):
        require_two_classes(np.array([1, 1]), ["cat", "dog"])
    with pytest.raises(InputError, match="one class, 1 "):
        require_two_classes(np.array([1, 1]))


def test_the_domains_that_are_used_count() -> None:
    require_classes_to_tell_apart(SOURCE)
    require_classes_to_tell_apart(SOURCE, ["y"])
    with pytest.raises(InputError, match="one class, 'cat'"):
        require_classes_to_tell_apart(SOURCE, ["x"])


def test_no_labels_are_not_one_class() -> None:
    require_two_classes(np.empty(0, np.int64))
    require_classes_to_tell_apart(SOURCE, [])


@pytest.fixture
def features(monkeypatch: pytest.MonkeyPatch) -> NDArray[Any]:
    """Seven rows in blocks of three; the last feature is constant."""
    monkeypatch.setattr(module, "_ROWS", 3)
    rows = np.random.default_rng(0).normal(3, 2, size=(7, 4))
    rows[:, 3] = 0.1
    return rows


def test_mean_and_standard_deviation(features: NDArray[Any]) -> None:
    mean, std = mean_and_std(features)
    np.testing.assert_allclose(mean, features.mean(axis=0))
    np.testing.assert_allclose(std[:3], features[:, :3].std(axis=0))
    mean, std = mean_and_std(features[:3])
    assert mean[3] != 0.1  # rounded
    assert std[3] == 0


def test_standardised_features(features: NDArray[Any]) -> None:
    found = standardised(features, *mean_and_std(features), "float64")
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(found.std(axis=0), [1, 1, 1, 0])
    assert standardised(features, *mean_and_std(features)).dtype == np.float32


def test_splits_by_left_out_domains() -> None:
    """Each prediction is that of a direct fit without the fold, and no fit is made twice."""
    samples = planted(60, 5, 3, 4)
    folds = np.random.default_rng(0).permutation(60) % 5
    folds[samples.domains == 3] = 7  # only samples that are not used are in this fold
    training = samples.domains != 3
    splits = [
        Split(training, (samples.domains, folds)),
        Split(samples.domains != 2, (samples.domains,)),  # shares fits with the first
        Split.of(samples.domains, samples.domains // 2),
    ]
    sets: list[int] = []

    def counted(given: Samples, *arguments: Any, **options: Any) -> Any:
        sets.append(len(arguments[1]))
        return left_out_ridges(given, *arguments, **options)

    found = predict_splits_by(counted, samples, 3, splits)
    masks = set()
    for (training, partitions), (inside, rest) in zip(splits, found, strict=True):
        for partition, outputs in zip(partitions, inside, strict=True):
            for fold in np.unique(partition[training]):
                rows = training & (partition == fold)
                expected = _without(samples, ~training | rows, rows)
                np.testing.assert_allclose(outputs[:, rows[training]], expected, atol=1e-6)
                masks.add((~training | rows).tobytes())
        assert rest.shape[1:] == ((~training).sum(), 3)
        if not training.all():
            np.testing.assert_allclose(
                rest, _without(samples, ~training, ~training), rtol=1e-6, atol=1e-6
            )
            masks.add((~training).tobytes())
    assert sets == [len(masks)]
    assert len(masks) < sum(len(np.unique(p[t])) + 1 for t, parts in splits for p in parts)


def _without(samples: Samples, left_out: Any, rows: Any) -> Any:
    """Predictions of some samples by heads that are fitted without those that are left out."""
    domains = np.where(rows, 1, 0)[rows | ~left_out]
    kept = Samples(*(each[rows | ~left_out] for each in samples))._replace(domains=domains)
    return left_out_ridges(kept, 3, [{1}])[0]


def _blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_small_problems_use_one_blas_thread() -> None:
    with threadpool_limits(2, user_api="blas"):
        if _blas_threads() != {2}:
            pytest.skip("this BLAS cannot use two threads")
        assert call_for_sets(_blas_threads, [()], 1, on_cpu=True) == [{1}]


def test_small_sets_are_computed_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_out, "cpu_count", lambda: 2)
    both = Barrier(2)

    def wait(number: int) -> int:
        both.wait(timeout=20)
        return number

    assert call_for_sets(wait, [(1,), (2,)], LARGE - 1, on_cpu=True) == [1, 2]


@pytest.mark.parametrize(("size", "on_cpu"), [(LARGE, True), (1, False)])
def test_other_sets_are_computed_one_by_one(
    size: int, on_cpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many calls in one thread: two would share them."""
    monkeypatch.setattr(left_out, "cpu_count", lambda: 2)
    threads = call_for_sets(get_ident, [()] * 500, size, on_cpu=on_cpu)
    assert len(set(threads)) == 1
