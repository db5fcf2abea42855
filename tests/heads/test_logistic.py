"""L-BFGS in both forms against the written objective."""

from __future__ import annotations

import numpy as np
import pytest
from tests.oracles.logistic import minimum, objective

from oodzoo.heads.logistic import Dual, Matrix, Primal, gradient_at_zero, minimise

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
