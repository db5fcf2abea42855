"""L-BFGS in both forms against the written objective."""

from __future__ import annotations

import numpy as np
import pytest
from tests.oracles.logistic import direction, minimum, objective

from oodzoo.heads import logistic
from oodzoo.heads.logistic import Dual, Matrix, Memory, Primal, gradient_at_zero, minimise

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


def test_the_gradient_vanishes_at_the_minimum(data: tuple[Matrix, Matrix]) -> None:
    Z, targets = data
    solution = solve(Primal(Z), targets, tol=1e-9)
    logits = solution[:, :-1] @ Z.T + solution[:, -1:]
    residuals = np.exp(logits) / np.exp(logits).sum(axis=0) - targets
    gradient = Primal(Z).gradient(residuals, solution, 1 / C)
    assert np.linalg.norm(gradient) <= 1e-8 * gradient_at_zero(Primal(Z), targets)


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
