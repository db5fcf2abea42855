"""A batch of logistic regressions against the written objective, one at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.oracles.logistic import minimum

from oodzoo.heads.batched import Batch, minimise_batch

torch: Any = pytest.importorskip("torch", reason="PyTorch is an extra")

N, D, N_CLASSES = 40, 6, 3
CS = (1e-3, 0.1, 3.0)


@pytest.fixture
def batch() -> Batch:
    """Two sets: the second lacks class 1, and ignores a quarter of its samples."""
    rng = np.random.default_rng(0)
    labels = np.arange(N) % N_CLASSES
    features = np.ones((2, N, D + 1))
    features[:, :, :-1] = rng.normal(size=(2, N, D)) + np.eye(N_CLASSES, D)[labels]
    targets = np.repeat(np.eye(N_CLASSES)[labels].T[None, None], 2, axis=0)
    targets[1, :, 1] = 0
    targets[1, :, :, 30:] = 0
    penalty = np.repeat(1 / np.reshape(CS, (3, 1, 1)), D + 1, axis=2)
    penalty[:, :, -1] = 0
    absent = np.where(targets.any(axis=3, keepdims=True), 0, -np.inf)
    counts = targets.sum(axis=2, keepdims=True)
    return Batch(torch, *map(torch.asarray, (features, targets, counts, absent, penalty)))


def gradients(batch: Batch, solution: Any) -> Any:
    """Norms of the gradients (sets, Cs)."""
    residuals = batch.residuals(batch.absent + batch.outputs(solution))
    return torch.linalg.norm(batch.gradient(residuals, solution), dim=(2, 3))


def test_all_minima(batch: Batch) -> None:
    found = minimise_batch(batch, 1e-9).numpy()
    assert not found[1, :, 1].any()
    for place in range(2):
        targets = batch.targets[place, 0].numpy()
        used, classes = targets.any(axis=0), np.flatnonzero(targets.any(axis=1))
        labels = np.searchsorted(classes, targets.argmax(axis=0)[used])
        for C, solution in zip(CS, found[place], strict=True):
            X = batch.features[place].numpy()[used, :-1]
            best = minimum(X, labels, C, len(classes))
            np.testing.assert_allclose(solution[classes, :-1], best[:, :-1], atol=1e-5)
            bias = solution[classes, -1]
            np.testing.assert_allclose(
                bias - bias.mean(), best[:, -1] - best[:, -1].mean(), atol=1e-5
            )


def test_each_fit_ends_at_the_tolerance(batch: Batch) -> None:
    start = torch.zeros((2, 3, N_CLASSES, D + 1), dtype=torch.float64)
    at_zero = gradients(batch, start)
    reached = gradients(batch, minimise_batch(batch, 0.01)) / at_zero
    assert (reached <= 0.01).all()
    assert (reached > 1e-4).any()
    assert not minimise_batch(batch, 0.01, max_iter=0).any()


def test_a_fit_is_the_same_in_any_batch(batch: Batch) -> None:
    """A fit that ended takes no part in the steps of the others."""
    together = minimise_batch(batch, 1e-3)
    for place in range(2):
        for at in range(3):
            alone = Batch(
                torch,
                batch.features[place : place + 1],
                batch.targets[place : place + 1],
                batch.counts[place : place + 1],
                batch.absent[place : place + 1],
                batch.penalty[at : at + 1],
            )
            np.testing.assert_allclose(
                minimise_batch(alone, 1e-3)[0, 0], together[place, at], atol=1e-9
            )
