"""Ridge heads against an explicit inverse, and what must not matter."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import log_softmax
from tests.heads.planted import SETS, SHAPES, planted, scrambled
from tests.oracles.ridge import left_out_ridge, split_classes, split_ridge

from oodzoo.backend import backend
from oodzoo.errors import InputError
from oodzoo.features.columns import Samples
from oodzoo.heads import ridge
from oodzoo.heads.left_out import Split
from oodzoo.heads.ridge import (
    RIDGES,
    SETTINGS,
    TEMPERATURES,
    fit_ridge_head,
    left_out_ridges,
    predict_ridge_splits,
    solve_split,
)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_what_an_explicit_inverse_predicts(
    shape: tuple[int, int], n_classes: int, device: str | None
) -> None:
    samples = planted(*shape, n_classes, 4)
    found = left_out_ridges(samples, n_classes, SETS, device=device)
    for left_out, result in zip(SETS, found, strict=True):
        expected = left_out_ridge(*samples, left_out, SETTINGS, n_classes)
        np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)
        assert result.dtype == np.float32


def test_all_pairs_are_settings() -> None:
    assert SETTINGS[:2] == ((RIDGES[0], 1.0), (RIDGES[0], 2.0))
    assert len(set(SETTINGS)) == len(RIDGES) * len(TEMPERATURES)


@pytest.mark.parametrize("shape", SHAPES)
def test_settings_in_any_order(shape: tuple[int, int]) -> None:
    samples = planted(*shape, 3, 4)
    chosen = [17, 3, 29, 3]
    found = left_out_ridges(samples, 3, [{1}], settings=[SETTINGS[at] for at in chosen])[0]
    np.testing.assert_allclose(found, left_out_ridges(samples, 3, [{1}])[0][chosen], rtol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("left_out", [{0}, {1, 2}])
def test_left_out_samples_have_no_influence(
    shape: tuple[int, int], left_out: Set[int], device: str | None
) -> None:
    """Scramble all left-out samples but one: its prediction stays the same."""
    samples = planted(*shape, 3, 4)
    other = scrambled(samples, left_out)
    found = left_out_ridges(other, 3, [left_out], device=device)[0]
    expected = left_out_ridges(samples, 3, [left_out], device=device)[0]
    np.testing.assert_allclose(found[:, 0], expected[:, 0], atol=1e-6)
    assert np.abs(found[:, 1:] - expected[:, 1:]).max() > 1


@settings(max_examples=15, deadline=None)
@given(shape=st.sampled_from(SHAPES), seed=st.integers(0, 99))
def test_order_origin_and_a_common_unit_do_not_matter(shape: tuple[int, int], seed: int) -> None:
    samples = planted(*shape, 3, 3, seed)
    # Integers, so that they can be shifted and scaled without rounding.
    mean, std = samples.features.mean(axis=0), samples.features.std(axis=0)
    features = np.round(64 * (samples.features - mean) / std)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(samples.labels))
    unit, shifts = 2.0 ** rng.integers(-4, 5), rng.integers(-50, 50, shape[1])
    renamed = np.array([7, 1, 4])
    other = Samples(
        ((features + shifts) * unit).astype(np.float32)[order],
        samples.labels[order],
        renamed[samples.domains][order],
    )
    expected = left_out_ridges(samples._replace(features=features), 3, [{0}, {1, 2}])
    found = left_out_ridges(other, 3, [{7}, {1, 4}])
    for one, two, left_out in zip(expected, found, [[0], [1, 2]], strict=True):
        position = np.cumsum(np.isin(samples.domains, left_out)) - 1
        rows = position[order[np.isin(samples.domains[order], left_out)]]
        np.testing.assert_allclose(two, one[:, rows], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_pair_is_fitted_to_the_remaining_domains_alone(shape: tuple[int, int]) -> None:
    samples = planted(*shape, 3, 4)
    with_both = left_out_ridges(samples, 3, [{0, 2}])[0]
    rest = samples.domains != 2
    without = Samples(samples.features[rest], samples.labels[rest], samples.domains[rest])
    expected = left_out_ridges(without, 3, [{0}])[0]
    np.testing.assert_allclose(with_both[:, : shape[0] // 4], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("left_out", [{0}, {1, 2}])
def test_a_head_predicts_what_is_predicted_left_out(
    shape: tuple[int, int], left_out: Set[int]
) -> None:
    samples = planted(*shape, 3, 4)
    rows = np.isin(samples.domains, list(left_out))
    training = Samples(samples.features[~rows], samples.labels[~rows], samples.domains[~rows])
    found = left_out_ridges(samples, 3, [left_out])[0]
    for setting, expected in zip(SETTINGS, found, strict=True):
        head = fit_ridge_head(training, 3, *setting)
        logits = head.logits(samples.features[rows])
        np.testing.assert_allclose(log_softmax(logits, axis=1), expected, rtol=1e-5, atol=1e-5)


def test_the_penalty_of_a_head() -> None:
    """A scaled feature has the mean square v / (v + m), where m is the mean of all v."""
    samples = planted(40, 6, 3, 4)
    samples.features[:, 2] = 0.1
    head = fit_ridge_head(samples, 3, 0.5, 4.0)
    variances = samples.features.astype(np.float64).var(axis=0)
    unit = sum(v / (v + variances.mean()) for v in variances)
    np.testing.assert_allclose(head.C, 1 / (0.5 * unit), rtol=1e-6)
    assert (head.weights[:, 2] == 0).all()
    assert (np.delete(head.weights, 2, axis=1) != 0).all()


def test_a_class_without_training_samples(device: str | None) -> None:
    """Class 2 is in domain 0 only, class 3 nowhere."""
    samples = planted(60, 5, 3, 3)
    samples.labels[(samples.labels == 2) & (samples.domains > 0)] = 0
    results = left_out_ridges(samples, 4, [{0}, {1}], device=device)
    assert np.isneginf(results[0][:, :, 2:]).all()
    assert np.isneginf(results[1][:, :, 3]).all()
    assert np.isfinite(results[1][:, :, :3]).all()
    for left_out, result in enumerate(results):
        expected = left_out_ridge(*samples, {left_out}, SETTINGS, 4)
        np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)
    head = fit_ridge_head(samples, 4, 0.1, 8.0)
    assert np.isneginf(head.logits(samples.features)[:, 3]).all()
    assert np.isfinite(head.logits(samples.features)[:, :3]).all()


def test_one_class_to_train_on(device: str | None) -> None:
    labels = np.array([0, 1, 2, 2])
    samples = Samples(np.eye(4, dtype=np.float32), labels, np.array([0, 0, 1, 1]))
    found = left_out_ridges(samples, 3, [{0}], device=device)[0]
    np.testing.assert_array_equal(found, np.tile([-np.inf, -np.inf, 0], (len(SETTINGS), 2, 1)))


@pytest.mark.parametrize("d", [2, 20])
def test_constant_features_predict_the_frequencies(d: int, device: str | None) -> None:
    labels, domains = np.array([0, 1, 0, 0, 0, 1]), np.array([0, 0, 1, 1, 1, 1])
    samples = Samples(np.full((6, d), 0.1, np.float32), labels, domains)
    found = left_out_ridges(samples, 2, [{0}], settings=[(0.1, 2.0)], device=device)[0]
    expected: NDArray[Any] = log_softmax(2 * np.array([0.75, 0.25]))
    np.testing.assert_allclose(found, np.tile(expected, (1, 2, 1)), rtol=1e-6)


# --- splits -------------------------------------------------------------------------------------


def some_split(n: int, seed: int = 0) -> Split:
    """Two thirds of the samples, as four domains of different size and as five folds."""
    rng = np.random.default_rng(seed)
    domains = rng.choice(4, n, p=[0.1, 0.2, 0.3, 0.4])
    return Split(rng.random(n) < 2 / 3, (domains, rng.permutation(n) % 5))


@pytest.mark.parametrize("form", ["_predict_dual", "_predict_primal"])
@pytest.mark.parametrize("shape", [(50, 4), (36, 24), (30, 60)])
@pytest.mark.parametrize("constant", [False, True])
def test_splits_equal_fits_to_the_other_folds(
    shape: tuple[int, int],
    form: str,
    constant: bool,
    device: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In both forms, with the scale and the penalty of all training samples."""
    for name in ("_predict_dual", "_predict_primal"):
        monkeypatch.setattr(ridge, name, getattr(ridge, form))
    X, split, on = planted(*shape, 3, 4).features, some_split(shape[0]), backend(device)
    if constant:
        X[:] = 0.1
    Y = np.random.default_rng(1).normal(size=(shape[0], 2)) * [1, 50] + 7
    found = solve_split(on.asarray(X), Y[split.training], split, RIDGES, on)
    assert len(found.partitions) == 2
    for at, each in enumerate(RIDGES):
        for partition, outputs in zip(split.partitions, found.partitions, strict=True):
            folds = np.where(split.training, partition, -1)
            inside, outside = split_ridge(X, Y, folds, each)
            np.testing.assert_allclose(outputs[at], inside, rtol=1e-8, atol=1e-8)
            np.testing.assert_allclose(found.rest[at], outside, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    ("n", "d", "form"), [(300, 5, "_predict_primal"), (24, 60, "_predict_dual")]
)
def test_the_form_with_less_work_is_used(
    n: int, d: int, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "_predict_dual" if form == "_predict_primal" else "_predict_primal"
    monkeypatch.delattr(ridge, other)
    samples, on = planted(n, d, 3, 4), backend()
    solve_split(samples.features, np.ones((n, 1)), Split.of(samples.domains), RIDGES, on)


@pytest.mark.parametrize("shape", SHAPES)
def test_classes_of_splits(shape: tuple[int, int], device: str | None) -> None:
    """Class 2 is in one domain only, class 3 in no training sample, class 4 nowhere."""
    samples, split = planted(*shape, 4, 4), some_split(shape[0])
    labels = samples.labels
    labels[(labels == 2) & (split.partitions[0] != 1)] = 0
    labels[(labels == 3) & split.training] = 1
    splits = [split, Split.of(split.partitions[1])]
    found = predict_ridge_splits(samples, 5, splits, device=device)
    for (training, partitions), (inside, rest) in zip(splits, found, strict=True):
        for partition, outputs in zip(partitions, inside, strict=True):
            folds = np.where(training, partition, -1)
            expected = split_classes(samples.features, labels, folds, SETTINGS, 5)
            np.testing.assert_allclose(outputs, expected[0], rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(rest, expected[1], rtol=1e-5, atol=1e-5)
            assert outputs.dtype == rest.dtype == np.float32
    without = split.partitions[0][split.training] == 1
    assert np.isneginf(found[0].partitions[0][:, without, 2]).all()
    assert np.isfinite(found[0].partitions[0][:, ~without, 2]).all()


# --- what cannot be fitted -----------------------------------------------------------------------


@pytest.mark.parametrize("bad", [[], [(0.1, 2.0), (0.0, 2.0)], [(0.1, -1.0)], [(np.nan, 2.0)]])
def test_bad_settings(bad: list[tuple[float, float]]) -> None:
    samples = planted(20, 3, 2, 2)
    with pytest.raises(InputError, match=r"pairs of numbers above 0, got \["):
        left_out_ridges(samples, 2, [{0}], settings=bad)
    for setting in bad[-1:]:
        with pytest.raises(InputError, match="pairs of numbers above 0, got"):
            fit_ridge_head(samples, 2, *setting)


def test_a_head_needs_two_classes() -> None:
    samples = planted(20, 3, 1, 2)
    with pytest.raises(InputError, match="two classes"):
        fit_ridge_head(samples, 2, 0.1, 2.0)
