"""Logistic regressions, one at a time and in batches, against the written objective."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.oracles.logistic import direction, minimum, objective

from oodzoo.linear.heads import logistic
from oodzoo.linear.heads.batched import Batch, minimise_batch
from oodzoo.linear.heads.logistic import Dual, Matrix, Memory, Primal, gradient_at_zero, minimise

N, D, C = 40, 12, 0.1


@pytest.fixture
def data() -> tuple[Matrix, Matrix]:
    rng = np.random.default_rng(0)
    labels = np.arange(N) % 3
    return rng.normal(size=(N, D)) + np.eye(3, D)[labels], np.eye(3)[labels].T


def solve(form: Primal | Dual, targets: Matrix, tol: float = 1e-8, max_iter: int = 1000) -> Matrix:
    start = np.zeros((len(targets), form.size + 1))
    return minimise(form, targets, C, start, tol * gradient_at_zero(form, targets), max_iter)


def test_both_forms_find_the_minimum(data: tuple[Matrix, Matrix]) -> None:
    Z, targets = data
    labels = targets.argmax(axis=0)
    best = minimum(Z, labels, C, 3)
    primal, dual = solve(Primal(Z), targets), solve(Dual(Z @ Z.T), targets)
    for weights, bias in ((primal[:, :-1], primal[:, -1]), (dual[:, :-1] @ Z, dual[:, -1])):
        np.testing.assert_allclose(weights, best[:, :-1], atol=1e-5)
        assert objective(weights, bias, Z, labels, C) == pytest.approx(
            objective(best[:, :-1], best[:, -1], Z, labels, C)
        )


def test_samples_without_a_class_are_ignored(data: tuple[Matrix, Matrix]) -> None:
    Z, targets = data
    some = targets * (np.arange(N) < 30)
    np.testing.assert_allclose(
        solve(Primal(Z), some), solve(Primal(Z[:30]), targets[:, :30]), atol=1e-6
    )


def test_tolerance_and_iterations_are_limits(data: tuple[Matrix, Matrix]) -> None:
    Z, targets = data
    assert not solve(Primal(Z), targets, max_iter=0).any()
    assert not solve(Primal(Z), targets, tol=1.0).any()
    exact, loose = solve(Primal(Z), targets), solve(Primal(Z), targets, tol=0.1)
    assert 0 < np.abs(exact - loose).max() < 0.5


@pytest.mark.parametrize("n_pairs", [1, 3, logistic.MEMORY, logistic.MEMORY + 7])
@pytest.mark.parametrize("same", [True, False])
def test_directions_are_those_of_bfgs(n_pairs: int, same: bool) -> None:
    rng = np.random.default_rng(0)
    half = rng.normal(size=(6, 6))
    K = np.eye(6) if same else half @ half.T
    curvature = np.diag(rng.uniform(0.1, 10, 6))
    steps = [rng.normal(size=6) for _ in range(n_pairs)]
    pairs = [(s, np.linalg.solve(K, curvature @ s)) for s in steps]

    def both(vector: Matrix) -> tuple[Matrix, Matrix]:
        matrix = vector.reshape(2, 3)
        return matrix, matrix if same else (K @ vector).reshape(2, 3)

    memory = Memory(np.zeros((2, 3)), same)
    for s, y in pairs:
        memory.add(*both(s), *both(y))
    memory.add(*both(steps[0]), *both(-steps[0]))  # the gradient falls: not remembered
    gradient = rng.normal(size=6)
    step, step_metric = memory.direction(*both(gradient))
    expected = direction(gradient, pairs[-logistic.MEMORY :], K)
    np.testing.assert_allclose(step.ravel(), expected, rtol=1e-7)
    np.testing.assert_allclose(step_metric.ravel(), K @ expected, rtol=1e-7)


@pytest.mark.parametrize("size", [0, 2**22])
def test_a_transposed_copy_gives_the_same_outputs(
    size: int, data: tuple[Matrix, Matrix], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logistic, "_TRANSPOSED", size)
    Z, _ = data
    W = np.random.default_rng(1).normal(size=(3, D + 1))
    outputs = Primal(Z).outputs(W, W)
    np.testing.assert_allclose(outputs, W[:, :-1] @ Z.T + W[:, -1:], atol=1e-12)
    assert outputs.flags.c_contiguous


def test_directions_in_float32_stay_float32() -> None:
    """Otherwise all further steps are in float64, which takes twice as long."""
    rng = np.random.default_rng(0)
    memory = Memory(np.zeros((2, 3), np.float32), same=True)
    for _ in range(2):
        gradient = rng.normal(size=(2, 3)).astype(np.float32)
        step, _ = memory.direction(gradient, gradient)
        assert step.dtype == np.float32
        memory.add(gradient, gradient, gradient, gradient)


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
