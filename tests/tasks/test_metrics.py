"""Metrics against scikit-learn, and contributions against leaving samples out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from oodzoo.tasks.metrics import contributions, metric

SEEDS = st.integers(0, 2**32 - 1)


def _case(seed: int, kind: str, n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    if kind == "classification":
        return rng.integers(0, 4, n), rng.integers(0, 4, n)
    if kind == "regression":
        labels = rng.normal(size=(n, 3)) * [1, 10, 100] + [0, 5, -50]
        return labels + rng.normal(size=(n, 3)) * [0.3, 20, 10], labels
    labels = (rng.random((n, 3)) < [0.2, 0.5, 0.9]).astype(float)
    labels[0], labels[1] = 1, 0
    return (0.5 * labels + rng.random((n, 3))).round(1), labels


def test_a_label_that_no_sample_has_does_not_count() -> None:
    labels = np.array([[1.0, 0], [0, 0], [1, 0]])
    scores = np.array([[0.9, 0.9], [0.1, 0.2], [0.8, 0.1]])
    assert metric("multilabel", scores, labels) == 1
    assert metric("multilabel", scores[:, 1:], labels[:, 1:]) == 0


def test_constant_labels_are_explained_only_if_they_are_predicted_exactly() -> None:
    labels = np.full((5, 1), 3.0)
    assert metric("regression", labels, labels) == 1
    assert metric("regression", labels + 1, labels) == 0


@pytest.mark.parametrize("kind", ["regression", "multilabel"])
def test_contributions_vary_as_the_metric_does(kind: str) -> None:
    """The variance of the mean of the contributions is close to that of a bootstrap."""
    predicted, labels = _case(3, kind, n=400)
    rng = np.random.default_rng(0)
    draws = [rng.integers(0, 400, 400) for _ in range(400)]
    spread = np.std([metric(kind, predicted[d], labels[d]) for d in draws])  # type: ignore[arg-type]
    values = contributions(kind, predicted, labels)  # type: ignore[arg-type]
    assert values.std() / 20 == pytest.approx(spread, rel=0.15)


@settings(max_examples=10, deadline=None)
@given(seed=SEEDS)
def test_contributions_to_the_average_precision_are_its_derivatives(seed: int) -> None:
    """A little more weight on a sample changes the metric by its contribution."""
    predicted, labels = _case(seed, "multilabel", n=12)
    found = contributions("multilabel", predicted[:, :1], labels[:, :1])
    has = labels[:, 0] > 0.5
    for sample in range(12):
        weights = np.full(12, 1.0)
        weights[sample] += 1e-6
        weighted = average_precision_score(has, predicted[:, 0], sample_weight=weights)
        change = (weighted - found.mean()) / 1e-6 * 12
        assert found[sample] - found.mean() == pytest.approx(change, abs=1e-3)
