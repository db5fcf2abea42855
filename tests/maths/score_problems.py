"""Random problems of many shapes, scores as functions of a problem, and their literal oracles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from tests.oracles import scores as oracle

from oodzoo import scores


class Problem(NamedTuple):
    X: Any
    y: Any
    domains: Any


def problem(n: int, d: int, n_classes: int, seed: int = 0, separation: float = 1.0) -> Problem:
    """Features with a mean, unequal scales and correlations; classes and domains unequal."""
    rng = np.random.default_rng([n, d, n_classes, seed])
    weights = np.arange(n_classes, 0, -1.0)
    y = rng.choice(n_classes, size=n, p=weights / weights.sum())
    y[:n_classes] = np.arange(n_classes)
    y[n_classes : 2 * n_classes] = np.arange(n_classes)
    latent = separation * rng.normal(size=(n_classes, d))[y] + rng.normal(size=(n, d))
    X = 0.3 + latent @ rng.normal(size=(d, d)) / np.sqrt(d)
    X = X * rng.uniform(0.3, 2.0, size=d)
    return Problem(X, y, rng.permutation(np.arange(n) % 3))


def probabilities(p: Problem) -> Any:
    """Outputs of a head with more source classes than classes, from the features."""
    outputs = p.X @ np.random.default_rng(p.X.shape[1]).normal(size=(p.X.shape[1], 6))
    weights = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


SHAPES = [(30, 1, 2), (40, 3, 3), (60, 10, 5), (25, 25, 2), (26, 25, 3), (20, 50, 2), (30, 80, 4)]
"""(n, d, classes): more samples than features, as many, fewer."""

By = Callable[[Problem], float]

FEATURES: dict[str, By] = {
    "gbc": lambda p: scores.gbc(p.X, p.y, floor=0.1),
    "gbc diagonal": lambda p: scores.gbc(p.X, p.y, "diagonal", n_components=None, floor=0.1),
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
"""Scores of features."""

ORACLES: dict[str, By] = {
    "gbc": lambda p: oracle.gbc(p.X, p.y, "spherical", 64, floor=0.1),
    "gbc diagonal": lambda p: oracle.gbc(p.X, p.y, "diagonal", None, floor=0.1),
    "h_score": lambda p: oracle.h_score(p.X, p.y),
    "knn": lambda p: oracle.knn(p.X, p.y, p.domains, k=3, with_ties=True),
    "lda": lambda p: oracle.lda(p.X, p.y, p.domains),
    "logme": lambda p: oracle.logme(p.X, p.y),
    "logme published": lambda p: oracle.published_logme(p.X, p.y),
    "nleep": FEATURES["nleep"],  # its own on NumPy in float64; see test_nleep
    "parc": lambda p: oracle.parc(p.X, p.y),
    "regularized_h_score": lambda p: oracle.regularized_h_score(p.X, p.y),
    "sfda": lambda p: oracle.sfda(p.X, p.y),
    "transrate": lambda p: oracle.transrate(p.X, p.y),
}

problems = st.builds(
    problem,
    n=st.integers(24, 60),
    d=st.integers(2, 70),
    n_classes=st.integers(2, 4),
    seed=st.integers(0, 10**6),
    separation=st.sampled_from([0.0, 0.5, 2.0]),
)
few = settings(max_examples=20, deadline=None)


def direct(name: str, p: Problem) -> float:
    """A registered score of features, computed from arrays in the order of a source."""
    order = np.argsort(p.domains, kind="stable")
    arguments = [p.X[order], p.y[order], p.domains[order]]
    score = scores.get(name)
    return score.function(*arguments[: 3 if score.uses_domains else 2])
