"""Left-out paths against scikit-learn, and what must not matter."""

from __future__ import annotations

from collections.abc import Set

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.heads.planted import SETS, SHAPES, planted, scrambled
from tests.oracles.paths import left_out_path

from oodzoo.errors import InputError
from oodzoo.features.columns import Samples
from oodzoo.heads import paths
from oodzoo.heads.paths import label_likelihood, left_out_paths

CS = (1e-3, 0.1, 1.0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_what_scikit_learn_predicts(
    shape: tuple[int, int], n_classes: int, device: str | None
) -> None:
    samples = planted(*shape, n_classes, 4)
    found = left_out_paths(samples, n_classes, SETS, Cs=CS, tol=1e-8, device=device)
    for left_out, path in zip(SETS, found, strict=True):
        expected = left_out_path(*samples, left_out, CS, n_classes)
        np.testing.assert_allclose(path, expected, atol=1e-5)
        assert path.dtype == np.float32


@pytest.mark.parametrize("shape", SHAPES)
def test_the_default_tolerance(shape: tuple[int, int], device: str | None) -> None:
    samples = planted(*shape, 3, 4)
    loose = left_out_paths(samples, 3, SETS, Cs=CS, device=device)
    exact = left_out_paths(samples, 3, SETS, Cs=CS, tol=1e-8)
    difference = max(np.abs(np.exp(a) - np.exp(b)).max() for a, b in zip(loose, exact, strict=True))
    assert 1e-6 < difference < 0.02


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("left_out", [{0}, {1, 2}])
def test_left_out_samples_have_no_influence(
    shape: tuple[int, int], left_out: Set[int], device: str | None
) -> None:
    """Scramble all left-out samples but one: its prediction stays the same."""
    samples = planted(*shape, 3, 4)
    other = scrambled(samples, left_out)
    found = left_out_paths(other, 3, [left_out], Cs=CS, device=device)[0]
    expected = left_out_paths(samples, 3, [left_out], Cs=CS, device=device)[0]
    np.testing.assert_allclose(found[:, 0], expected[:, 0], atol=1e-6)
    assert np.abs(found[:, 1:] - expected[:, 1:]).max() > 1


@pytest.mark.parametrize("bytes_of_a_batch", [0, 40_000])
def test_batches_of_any_size(bytes_of_a_batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="PyTorch is an extra")
    samples = planted(48, 6, 3, 4)
    together = left_out_paths(samples, 3, SETS, Cs=CS, device="cpu")
    monkeypatch.setattr(paths, "_DEVICE_BYTES", bytes_of_a_batch)
    found = left_out_paths(samples, 3, SETS, Cs=CS, device="cpu")
    for one, two in zip(together, found, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-5)


@settings(max_examples=15, deadline=None)
@given(shape=st.sampled_from(SHAPES), seed=st.integers(0, 99))
def test_order_and_units_do_not_matter(shape: tuple[int, int], seed: int) -> None:
    samples = planted(*shape, 3, 3, seed)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(samples.labels))
    units = 2.0 ** rng.integers(-4, 5, shape[1])
    renamed = np.array([7, 1, 4])
    other = Samples(
        (samples.features * units).astype(np.float32)[order],
        samples.labels[order],
        renamed[samples.domains][order],
    )
    expected = left_out_paths(samples, 3, [{0}, {1, 2}], Cs=CS, tol=1e-8)
    found = left_out_paths(other, 3, [{7}, {1, 4}], Cs=CS[::-1], tol=1e-8)
    for one, two, left_out in zip(expected, found, [[0], [1, 2]], strict=True):
        position = np.cumsum(np.isin(samples.domains, left_out)) - 1
        rows = position[order[np.isin(samples.domains[order], left_out)]]
        np.testing.assert_allclose(two[::-1], one[:, rows], atol=1e-5)


def test_a_pair_is_fitted_to_the_remaining_domains_alone() -> None:
    samples = planted(80, 6, 3, 4)
    with_both = left_out_paths(samples, 3, [{0, 2}], Cs=CS)[0]
    rest = samples.domains != 2
    without = Samples(samples.features[rest], samples.labels[rest], samples.domains[rest])
    np.testing.assert_allclose(
        with_both[:, :20], left_out_paths(without, 3, [{0}], Cs=CS)[0], atol=1e-6
    )


def test_a_class_without_training_samples(device: str | None) -> None:
    """Class 2 is in domain 0 only, class 3 nowhere."""
    samples = planted(60, 5, 3, 3)
    samples.labels[(samples.labels == 2) & (samples.domains > 0)] = 0
    first, second = left_out_paths(samples, 4, [{0}, {1}], Cs=CS, device=device)
    assert np.isneginf(first[:, :, 2:]).all()
    assert np.isneginf(second[:, :, 3]).all()
    assert np.isfinite(second[:, :, :3]).all()
    for path in (first, second):
        np.testing.assert_allclose(np.exp(path).sum(axis=2), 1, atol=1e-6)


def test_one_class_to_train_on(device: str | None) -> None:
    labels = np.array([0, 1, 2, 2])
    samples = Samples(np.eye(4, dtype=np.float32), labels, np.array([0, 0, 1, 1]))
    path = left_out_paths(samples, 3, [{0}], Cs=CS, device=device)[0]
    np.testing.assert_array_equal(path, np.tile([-np.inf, -np.inf, 0], (3, 2, 1)))


def test_likelihood_of_labels() -> None:
    """Class 2 was not in training."""
    path = np.full((2, 3, 3), -np.inf)
    path[:, :, :2] = np.log([[[0.5, 0.5], [0.2, 0.8], [0.9, 0.1]], [[0.25, 0.75]] * 3])
    np.testing.assert_allclose(
        label_likelihood(path, np.array([0, 1, 2])),
        [np.log(0.5 * 0.8) / 2, np.log(0.25 * 0.75) / 2],
    )
    assert label_likelihood(path, np.array([2, 2, 2])).tolist() == [0, 0]


def test_bad_Cs() -> None:
    with pytest.raises(InputError, match=r"C must be one or more numbers above 0, got \[0\]"):
        left_out_paths(planted(20, 3, 2, 2), 2, [{0}], Cs=[0])
