"""Heads with random predictions, and a source whose models have a cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax
from tests.evaluation.data import zoo

from oodzoo.extraction.features import ArraySource, ModelFacts

Predictions = list[NDArray[np.float64]]
Labels = list[NDArray[np.int64]]


def predicted(
    seed: int, *, n_heads: int = 4, sizes: tuple[int, ...] = (5, 9, 7), n_classes: int = 3
) -> tuple[Predictions, Labels]:
    """Log-probabilities (heads, n, C) of each domain; some heads are right more often."""
    rng = np.random.default_rng(seed)
    labels = [rng.integers(0, n_classes, n) for n in sizes]
    skills = rng.uniform(0, 2, n_heads)[:, None, None]
    tables = [
        log_softmax(
            skills * np.eye(n_classes)[y] + rng.normal(size=(n_heads, len(y), n_classes)), axis=2
        )
        for y in labels
    ]
    return tables, labels


class Costly(ArraySource):
    """Arrays of models whose times per image and numbers of parameters are known."""

    def __init__(
        self,
        features: Mapping[str, Any],
        y: Any,
        domains: Any,
        milliseconds: Mapping[str, float | None],
        parameters: Mapping[str, int | None] | None = None,
    ) -> None:
        super().__init__(features, y, domains)
        self._milliseconds, self._parameters = milliseconds, parameters or {}

    def facts(self, model: str) -> ModelFacts:
        return ModelFacts(
            super().facts(model).feature_dim,
            self._parameters.get(model),
            self._milliseconds.get(model),
        )


def small(*, n_domains: int = 3, n: int = 18, seed: int = 0) -> ArraySource:
    """Four models, three classes, domains of equal size."""
    return ArraySource(*zoo(n=n, n_domains=n_domains, seed=seed))


def present(values: NDArray[Any] | None) -> NDArray[Any]:
    """Require predictions of a target."""
    assert values is not None
    return values
