"""PyTorch tensors give what NumPy arrays give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.scores.data import FEATURES, SHAPES, problem

from oodzoo import scores
from oodzoo.errors import InputError


@pytest.mark.parametrize("name", sorted(FEATURES))
@pytest.mark.parametrize(("n", "d", "n_classes"), SHAPES)
def test_features(torch: Any, name: str, n: int, d: int, n_classes: int) -> None:
    p = problem(n, d, n_classes, separation=0.5)
    if name == "sfda":  # where it hardly shrinks, rounding is all that an inverse has for n <= d
        p = p._replace(X=0.3 * p.X)
    tensors = p._replace(X=torch.asarray(p.X), y=torch.asarray(p.y))
    assert FEATURES[name](tensors) == pytest.approx(FEATURES[name](p), rel=1e-9, abs=1e-12)


def test_heads(torch: Any) -> None:
    y = problem(40, 3, 3).y
    theta = np.random.default_rng(0).dirichlet(np.ones(6), size=40)
    expected = scores.leep(theta, y)
    assert scores.leep(torch.asarray(theta), torch.asarray(y)) == pytest.approx(expected, rel=1e-9)
    source = theta.argmax(axis=1)
    assert scores.nce(torch.asarray(source), torch.asarray(y)) == scores.nce(source, y)


def test_a_tensor_with_a_gradient_is_read_and_left_alone(torch: Any) -> None:
    p = problem(40, 5, 3)
    X = torch.asarray(p.X).clone().requires_grad_()
    before = X.detach().clone()
    for name, score in FEATURES.items():
        assert isinstance(score(p._replace(X=X)), float), name
    assert X.grad is None
    assert torch.equal(X.detach(), before)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "int32"])
def test_kinds_of_numbers(torch: Any, kind: str) -> None:
    p = problem(40, 5, 3)
    X = torch.asarray(p.X).to(getattr(torch, kind))
    expected = scores.h_score(X.double().numpy(), p.y)
    assert scores.h_score(X, p.y) == pytest.approx(expected, rel=1e-9)


def test_a_value_that_is_not_finite(torch: Any) -> None:
    X = torch.zeros((4, 3))
    X[2, 1] = float("inf")
    with pytest.raises(InputError, match="inf in row 2, column 1"):
        scores.h_score(X, [0, 1, 0, 1])
