"""Heads and their predictions of held-out domains, against scikit-learn or formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax
from tests.heads.planted import SETS, SHAPES, numbers, planted, scrambled, several_labels
from tests.oracles import outputs as oracle
from tests.oracles import zero_shot as zero_shot_oracle
from tests.oracles.logistic import minimum
from tests.oracles.paths import left_out_path
from tests.oracles.ridge import left_out_ridge, split_classes, split_ridge

from oodzoo.core.backend import backend
from oodzoo.core.errors import InputError
from oodzoo.extraction.columns import Samples, normalise
from oodzoo.linear.heads import ridge
from oodzoo.linear.heads.kinds import (
    fit_label_head,
    fit_regression_head,
    left_out_labels,
    left_out_regressions,
    predict_regression_splits,
)
from oodzoo.linear.heads.linear import (
    LinearHead,
    fit_from_zero_shot,
    left_out_from_zero_shot,
    left_out_zero_shot,
    zero_shot_head,
)
from oodzoo.linear.heads.paths import C_GRID, Split, SplitOutputs, left_out_paths
from oodzoo.linear.heads.ridge import (
    RIDGES,
    SETTINGS,
    TEMPERATURES,
    fit_ridge_head,
    left_out_ridges,
    predict_ridge_splits,
    solve_split,
)

CS = (1e-3, 0.1, 1.0)


def of_paths(
    samples: Samples, n: int, sets: Any, device: str | None = None, Cs: Any = CS
) -> list[Any]:
    return left_out_paths(samples, n, sets, Cs=Cs, tol=1e-8, device=device)


def of_ridges(samples: Samples, n: int, sets: Any, device: str | None = None) -> list[Any]:
    return [np.asarray(each) for each in left_out_ridges(samples, n, sets, device=device)]


CLASSIFIERS = pytest.mark.parametrize(
    ("predict", "expect", "settings_"),
    [(of_paths, left_out_path, CS), (of_ridges, left_out_ridge, SETTINGS)],
    ids=["paths", "ridges"],
)


@CLASSIFIERS
def test_predictions_of_left_out_domains(
    predict: Any, expect: Any, settings_: Any, device: str | None
) -> None:
    """For all shapes, sets and settings; held-out samples have no influence."""
    for shape in SHAPES:
        for n_classes in (2, 3):
            samples = planted(*shape, n_classes, 4)
            found = predict(samples, n_classes, SETS, device)
            for left_out, path in zip(SETS, found, strict=True):
                expected = expect(*samples, left_out, settings_, n_classes)
                np.testing.assert_allclose(path, expected, rtol=1e-6, atol=1e-5)
                assert path.dtype == np.float32
        for some in ({0}, {1, 2}):
            # all held-out samples but one are scrambled: its prediction stays the same
            one, two = (
                predict(each, 3, [some], device)[0] for each in (samples, scrambled(samples, some))
            )
            np.testing.assert_allclose(two[:, 0], one[:, 0], atol=1e-6)
            assert np.abs(two[:, 1:] - one[:, 1:]).max() > 1


@CLASSIFIERS
def test_classes_without_training_samples(
    predict: Any, expect: Any, settings_: Any, device: str | None
) -> None:
    """Class 2 is in domain 0 only, class 3 nowhere."""
    samples = planted(60, 5, 3, 3)
    samples.labels[(samples.labels == 2) & (samples.domains > 0)] = 0
    first, second = predict(samples, 4, [{0}, {1}], device)
    assert np.isneginf(first[:, :, 2:]).all()
    assert np.isneginf(second[:, :, 3]).all()
    assert np.isfinite(second[:, :, :3]).all()
    for path in (first, second):
        np.testing.assert_allclose(np.exp(path).sum(axis=2), 1, atol=1e-6)
    alone = Samples(np.eye(4, dtype=np.float32), np.array([0, 1, 2, 2]), np.array([0, 0, 1, 1]))
    (path,) = predict(alone, 3, [{0}], device)
    expected = np.tile([-np.inf, -np.inf, 0], (len(settings_), 2, 1))
    np.testing.assert_array_equal(path, expected)


# --- several labels -------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d"), [(90, 5), (30, 45)])
def test_log_odds_of_several_labels(n: int, d: int) -> None:
    samples = several_labels(n, d, 3, 3)
    for left_out in ({0}, {1, 2}):
        (found,) = left_out_labels(samples, 3, [left_out], tol=1e-6)
        (rough,) = left_out_labels(samples, 3, [left_out])
        out = np.isin(samples.domains, list(left_out))
        assert found.shape == (len(C_GRID), out.sum(), 3)
        for at, C in enumerate(C_GRID):
            training, others = samples.features[~out], samples.features[out]
            expected = oracle.log_odds(training, samples.labels[~out], others, C)
            np.testing.assert_allclose(found[at], expected, rtol=2e-3, atol=2e-3)
            np.testing.assert_allclose(rough[at], expected, rtol=0.1, atol=0.3)
    # neither the labels of held-out samples nor the order of labels and settings matter
    (one,) = left_out_labels(samples, 3, [{0}], Cs=[0.01, 1], tol=1e-6)
    labels = np.where(samples.domains[:, None] == 0, 1 - samples.labels, samples.labels)
    changed = samples._replace(labels=labels[:, ::-1])
    (two,) = left_out_labels(changed, 3, [{0}], Cs=[1, 0.01], tol=1e-6)
    np.testing.assert_allclose(two[::-1, :, ::-1], one, rtol=2e-3, atol=2e-3)
    head = fit_label_head(samples, 3, 0.1)
    expected = oracle.log_odds(samples.features, samples.labels, samples.features, 0.1)
    np.testing.assert_allclose(head.logits(samples.features), expected, rtol=1e-3, atol=1e-3)
    probabilities = 1 / (1 + np.exp(-expected))
    np.testing.assert_allclose(head.probabilities(samples.features), probabilities, atol=1e-3)
    assert (head.task.kind, head.C) == ("multilabel", 0.1)


@pytest.mark.parametrize(("value", "n_labels"), [(0.0, 1), (1.0, 3)])
def test_a_label_of_no_or_all_samples_has_the_log_odds_of_its_rate(
    value: float, n_labels: int
) -> None:
    samples = several_labels(40, 4, n_labels, 2)
    labels = samples.labels.copy()
    labels[samples.domains == 0, 0] = value
    samples = samples._replace(labels=labels)
    (found,) = left_out_labels(samples, n_labels, [{1}])
    np.testing.assert_allclose(found[:, :, 0], (2 * value - 1) * np.log(20.5 / 0.5), rtol=1e-6)
    assert n_labels == 1 or found[-1, :, 1].std() > 0
    training = Samples(*(each[samples.domains == 0] for each in samples))
    head = fit_label_head(training, n_labels, 1.0)
    assert not head.weights[0].any()
    assert head.bias[0] == pytest.approx((2 * value - 1) * np.log(20.5 / 0.5))


@pytest.mark.parametrize(("n", "d"), [(60, 5), (24, 40)])
def test_regressions(n: int, d: int) -> None:
    samples = numbers(n, d, 2, 3)
    samples.features[:, 1] = 3.0
    for left_out in ({0}, {1, 2}):
        out = np.isin(samples.domains, list(left_out))
        # the labels of held-out samples do not matter
        changed = samples._replace(labels=np.where(out[:, None], 1e6, samples.labels))
        (found,) = left_out_regressions(changed, 2, [left_out])
        kept: list[Any] = [each[~out] for each in samples]
        training = Samples(*kept)
        for path, value in zip(found, RIDGES, strict=True):
            _, expected = split_ridge(*samples[:2], np.where(out, -1, np.arange(n) % 2), value)
            np.testing.assert_allclose(path, expected, rtol=1e-6, atol=1e-6)
            head = fit_regression_head(training, 2, value)
            np.testing.assert_allclose(head.values(samples.features[out]), path, rtol=1e-6)
    assert head.task.kind == "regression"
    assert not head.weights[:, 1].any()
    with pytest.raises(ValueError, match="no probabilities"):
        head.probabilities(samples.features)
    splits = [Split(samples.domains != 1, (samples.domains,)), Split.of(np.arange(n) % 5)]
    predicted = predict_regression_splits(samples, 2, splits)
    for (used, partitions), ((inside,), rest) in zip(splits, predicted, strict=True):
        folds = np.where(used, partitions[0], -1)
        for at, value in enumerate(RIDGES):
            literal = split_ridge(samples.features, samples.labels, folds, value)
            np.testing.assert_allclose(inside[at], literal[0], rtol=1e-8, atol=1e-8)
            np.testing.assert_allclose(rest[at], literal[1], rtol=1e-8, atol=1e-8)


def test_ridge_heads(device: str | None) -> None:
    assert SETTINGS[:2] == ((RIDGES[0], 1.0), (RIDGES[0], 2.0))
    assert len(set(SETTINGS)) == len(RIDGES) * len(TEMPERATURES)
    for shape in SHAPES:
        samples = planted(*shape, 3, 4)
        rows = samples.domains == 1
        training = Samples(*(each[~rows] for each in samples))
        found = of_ridges(samples, 3, [{1}], device)[0]
        for setting, expected in zip(SETTINGS, found, strict=True):
            logits = fit_ridge_head(training, 3, *setting).logits(samples.features[rows])
            np.testing.assert_allclose(log_softmax(logits, axis=1), expected, rtol=1e-5, atol=1e-5)
    # constant features predict the frequencies
    labels, domains = np.array([0, 1, 0, 0, 0, 1]), np.array([0, 0, 1, 1, 1, 1])
    for d in (2, 20):
        constant = Samples(np.full((6, d), 0.1, np.float32), labels, domains)
        found = of_ridges(constant, 2, [{0}], device)[0]
        for (_, temperature), path in zip(SETTINGS, found, strict=True):
            expected = np.log(softmax(temperature * np.array([0.75, 0.25])))
            np.testing.assert_allclose(path, np.tile(expected, (2, 1)), rtol=1e-6)


def some_split(n: int) -> Split:
    """Two thirds of the samples, as four domains of different size and as five folds."""
    rng = np.random.default_rng(0)
    domains = rng.choice(4, n, p=[0.1, 0.2, 0.3, 0.4])
    return Split(rng.random(n) < 2 / 3, (domains, rng.permutation(n) % 5))


@pytest.mark.parametrize("form", ["_predict_dual", "_predict_primal"])
def test_splits_equal_fits_to_the_other_folds(
    form: str, device: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In both forms, with the scale and the penalty of all training samples."""
    for name in ("_predict_dual", "_predict_primal"):
        monkeypatch.setattr(ridge, name, getattr(ridge, form))
    on = backend(device)
    for shape in [(50, 4), (36, 24), (30, 60)]:
        for constant in (False, True):
            X, split = planted(*shape, 3, 4).features, some_split(shape[0])
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


def test_classes_of_splits(device: str | None) -> None:
    """Class 2 is in one domain only, class 3 in no training sample, class 4 nowhere."""
    for shape in SHAPES:
        samples, split = planted(*shape, 4, 4), some_split(shape[0])
        labels = samples.labels
        labels[(labels == 2) & (split.partitions[0] != 1)] = 0
        labels[(labels == 3) & split.training] = 1
        splits = [split, Split.of(split.partitions[1])]
        found = list(predict_ridge_splits(samples, 5, splits, device=device))
        found = [SplitOutputs([*map(np.asarray, a)], np.asarray(b)) for a, b in found]
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


def texts(n_classes: int, d: int, seed: int = 0) -> LinearHead:
    rng = np.random.default_rng(seed)
    embeddings = rng.normal(size=(n_classes, d))
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    return zero_shot_head(embeddings, 8.0, -1.5)


def unit_samples(shape: tuple[int, int], n_classes: int) -> Samples:
    samples = planted(*shape, n_classes, 4)
    return samples._replace(features=normalise(samples.features))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.1, 100), st.floats(-20, 20))
def test_the_zero_shot_head(seed: int, scale: float, bias: float) -> None:
    rng = np.random.default_rng(seed)
    X, T = rng.normal(size=(6, 5)) * 10 ** rng.uniform(-3, 3, (6, 1)), rng.normal(size=(3, 5))
    found = zero_shot_head(T, scale, bias).logits(normalise(X))
    expected = [zero_shot_oracle.logits(x, T, scale, bias) for x in X]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    unit = normalise(np.array([[0.0, 0.0], [3.0, 4.0]]))
    np.testing.assert_allclose(unit, [[0.0, 0.0], [0.6, 0.8]], rtol=1e-6)
    large = normalise(np.array([[1e30, 1e30]], np.float32))
    np.testing.assert_allclose(large, math.sqrt(0.5), rtol=1e-6)
    assert texts(3, 4).digest == texts(3, 4).digest != texts(3, 4, seed=1).digest


@pytest.mark.parametrize("n_classes", [2, 3])
def test_heads_that_start_from_given_logits(n_classes: int, device: str | None) -> None:
    for shape in SHAPES:
        samples, head = unit_samples(shape, n_classes), texts(n_classes, shape[1])
        X, offset = samples.features.astype(np.float64), head.logits(samples.features)
        options: dict[str, Any] = {"Cs": CS, "tol": 1e-8, "device": device, "offset": offset}
        found = left_out_paths(samples, n_classes, SETS, **options)
        untrained = left_out_zero_shot(samples, n_classes, SETS, zero_shot=head, device=device)
        if shape == (80, 6) and n_classes == 3:
            loose = left_out_from_zero_shot(samples, n_classes, SETS, zero_shot=head, device=device)
            exact = left_out_paths(samples, n_classes, SETS, tol=1e-8, offset=offset)
            pairs = zip(loose, exact, strict=True)
            assert max(np.abs(np.exp(a) - np.exp(b)).max() for a, b in pairs) < 0.02
        for left_out, path, plain in zip(SETS, found, untrained, strict=True):
            rows = np.isin(samples.domains, list(left_out))
            expected = log_softmax(offset, axis=1)
            np.testing.assert_allclose(plain, expected[None, rows], rtol=1e-5)
            Z = (X - X[~rows].mean(axis=0)) / X[~rows].std(axis=0)
            for at, C in enumerate(CS):
                y = samples.labels[~rows]
                both = minimum(Z[~rows], y, C, n_classes, offset[~rows])
                logits = offset[rows] + Z[rows] @ both[:, :-1].T + both[:, -1]
                np.testing.assert_allclose(path[at], log_softmax(logits, axis=1), atol=2e-4)
        Z = (X - X.mean(axis=0)) / X.std(axis=0)
        fitted = fit_from_zero_shot(samples, n_classes, 0.1, head)
        both = minimum(Z, samples.labels, 0.1, n_classes, offset)
        expected = softmax(offset + Z @ both[:, :-1].T + both[:, -1], axis=1)
        np.testing.assert_allclose(fitted.probabilities(X), expected, atol=1e-3)
        assert fitted.C == 0.1


SOME = planted(20, 3, 2, 2)
NUMBERS = numbers(30, 4, 1, 3)


def changed(labels: Any) -> Samples:
    return NUMBERS._replace(labels=labels)


@pytest.mark.parametrize(
    ("says", "call"),
    [
        (r"one or more numbers above 0, got \[0\]", lambda: of_paths(SOME, 2, [{0}], Cs=[0])),
        ("C must be one or more numbers above 0", lambda: fit_label_head(NUMBERS, 1, 0.0)),
        ("ridge must be a number above 0, got 0.0", lambda: fit_regression_head(NUMBERS, 1, 0.0)),
        ("must be numbers above 0, got 0.1 and -1.0", lambda: fit_ridge_head(SOME, 2, 0.1, -1.0)),
        ("two classes", lambda: fit_ridge_head(planted(20, 3, 1, 2), 2, 0.1, 2.0)),
        ("with 1 column, got", lambda: fit_regression_head(changed(np.zeros(30)), 1, 1.0)),
        ("finite", lambda: left_out_regressions(changed(np.full((30, 1), np.nan)), 1, [{0}])),
        (r"not all, of the domains \[0, 1\], got", lambda: of_ridges(SOME, 2, [{0}, {0, 1}])),
    ],
)
def test_what_cannot_be_fitted(says: str, call: Callable[[], Any]) -> None:
    with pytest.raises(InputError, match=says):
        call()
