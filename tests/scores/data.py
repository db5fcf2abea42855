"""Random problems of many shapes, and the scores of features as functions of a problem."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from oodzoo import scores


class Problem(NamedTuple):
    X: Any
    y: Any
    domains: Any


def problem(
    n: int, d: int, n_classes: int, seed: int = 0, separation: float = 1.0, rank: int | None = None
) -> Problem:
    """Features with a mean, unequal scales and correlations; classes and domains unequal."""
    rng = np.random.default_rng([n, d, n_classes, seed])
    weights = np.arange(n_classes, 0, -1.0)
    y = rng.choice(n_classes, size=n, p=weights / weights.sum())
    y[:n_classes] = np.arange(n_classes)
    y[n_classes : 2 * n_classes] = np.arange(n_classes)
    latent = separation * rng.normal(size=(n_classes, rank or d))[y]
    latent = latent + rng.normal(size=(n, rank or d))
    X = 0.3 + latent @ rng.normal(size=(rank or d, d)) / np.sqrt(rank or d)
    X = X * rng.uniform(0.3, 2.0, size=d)
    return Problem(X, y, rng.permutation(np.arange(n) % 3))


SHAPES = [(30, 1, 2), (40, 3, 3), (60, 10, 5), (25, 25, 2), (26, 25, 3), (20, 50, 2), (30, 80, 4)]
"""(n, d, classes): more samples than features, as many, fewer."""

every_shape = pytest.mark.parametrize(("n", "d", "n_classes"), SHAPES)

By = Callable[[Problem], float]

FEATURES: dict[str, By] = {
    "gbc": lambda p: scores.gbc(p.X, p.y),
    "gbc diagonal": lambda p: scores.gbc(p.X, p.y, covariance="diagonal", n_components=None),
    "h_score": lambda p: scores.h_score(p.X, p.y),
    "knn": lambda p: scores.knn(p.X, p.y, p.domains, k=3),
    "lda": lambda p: scores.lda(p.X, p.y, p.domains),
    "logme": lambda p: scores.logme(p.X, p.y),
    "logme published": lambda p: scores.logme(p.X, p.y, variant="published"),
    "nleep": lambda p: scores.nleep(p.X, p.y),
    "parc": lambda p: scores.parc(p.X, p.y),
    "regularized_h_score": lambda p: scores.regularized_h_score(p.X, p.y),
    "sfda": lambda p: scores.sfda(p.X, p.y),
    "transrate": lambda p: scores.transrate(p.X, p.y),
}

problems = st.builds(
    problem,
    n=st.integers(24, 60),
    d=st.integers(2, 70),
    n_classes=st.integers(2, 4),
    seed=st.integers(0, 10**6),
    separation=st.sampled_from([0.0, 0.5, 2.0]),
)
few = settings(max_examples=25, deadline=None)


def close(value: float) -> Any:
    return pytest.approx(value, rel=1e-6, abs=1e-8)
