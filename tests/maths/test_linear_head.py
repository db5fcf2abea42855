"""Logistic heads against the written objective, and what they do with odd samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.heads.planted import planted
from tests.oracles.logistic import minimum, objective

from oodzoo.core.errors import InputError
from oodzoo.extraction.columns import Samples
from oodzoo.linear.heads.linear import TOLERANCE, LinearHead, fit_head
from oodzoo.linear.heads.paths import C_GRID


def standardised(samples: Samples) -> NDArray[np.float64]:
    features = samples.features.astype(np.float64)
    std = features.std(axis=0)
    result: NDArray[np.float64] = (features - features.mean(axis=0)) / np.where(std > 0, std, 1)
    return result


def in_standard_units(head: LinearHead, samples: Samples) -> NDArray[Any]:
    features = samples.features.astype(np.float64)
    weights = head.weights * features.std(axis=0)
    bias = head.bias + head.weights @ features.mean(axis=0)
    return np.column_stack([weights, bias - bias.mean()])  # a shift of all biases changes nothing


@settings(max_examples=25, deadline=None)
@given(
    shape=st.sampled_from([(60, 5), (30, 80), (40, 1), (24, 24)]),
    n_classes=st.integers(2, 4),
    C=st.sampled_from([1e-4, 1e-2, 0.3]),
    seed=st.integers(0, 99),
)
def test_minimises_the_written_objective(
    shape: tuple[int, int], n_classes: int, C: float, seed: int
) -> None:
    samples = planted(*shape, n_classes, 2, seed)
    head = fit_head(samples, n_classes, C=C)
    X, y = standardised(samples), samples.labels
    best = minimum(X, y, C, n_classes)
    found = in_standard_units(head, samples)
    # J bends by 1/C at least: where its gradient is small, so is what can be gained, and the way.
    at_zero = (1 / n_classes - np.eye(n_classes)[y]).T @ np.column_stack([X, np.ones(len(X))])
    gradient = TOLERANCE * np.linalg.norm(at_zero)
    least = objective(best[:, :-1], best[:, -1], X, y, C)
    reached = objective(found[:, :-1], found[:, -1], X, y, C)
    # The penalty bounds the curvature of the weights from below, not that of the bias: hence the 4.
    assert reached <= least + 4 * C * gradient**2 + 1e-4 * least
    assert np.linalg.norm(found[:, :-1] - best[:, :-1]) <= 4 * C * gradient + 1e-3


@pytest.mark.parametrize(("n", "d"), [(90, 8), (60, 100)])
def test_strength_is_that_of_leaving_domains_out(n: int, d: int) -> None:
    samples = planted(n, d, 3, 3, seed=5)
    X = standardised(samples)
    values = []
    for C in C_GRID:
        right, likelihood = [], []
        for domain in range(3):
            train = samples.domains != domain
            both = minimum(X[train], samples.labels[train], C, 3)
            outputs, labels = X[~train] @ both[:, :-1].T + both[:, -1], samples.labels[~train]
            probabilities = np.exp(outputs) / np.exp(outputs).sum(axis=1, keepdims=True)
            right.append(np.mean(outputs.argmax(axis=1) == labels))
            likelihood.append(np.mean(np.log(probabilities[np.arange(len(labels)), labels])))
        values.append((float(np.mean(right)), float(np.mean(likelihood))))
    best = max(accuracy for accuracy, _ in values)
    least = best - np.sqrt(best * (1 - best) / n) - 1e-9
    good = {v: s for v, s in zip(values, C_GRID, strict=True) if v[0] >= least}
    chosen = fit_head(samples, 3).C
    assert chosen == good[max(good, key=lambda value: value[1])]


def test_odd_samples() -> None:
    """Constant features, classes without samples, and nothing to choose the penalty by."""
    samples = Samples(np.ones((4, 3), np.float32), np.array([0, 0, 0, 1]), np.arange(4) // 2)
    probabilities = fit_head(samples, 2, C=1.0).probabilities(samples.features)
    np.testing.assert_allclose(probabilities, np.tile([0.75, 0.25], (4, 1)), atol=1e-3)
    samples = planted(40, 5, 2, 2)
    samples.features[:, 2] = 0.1
    head = fit_head(samples, 4)
    probabilities = head.probabilities(samples.features)
    assert not head.weights[:, 2].any()
    assert not probabilities[:, 2:].any()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    alone = Samples(np.eye(3, dtype=np.float32), np.arange(3), np.zeros(3, np.int64))
    assert C_GRID[0] == fit_head(alone, 3).C


def test_folds_of_a_single_domain_keep_groups_whole() -> None:
    """Copies of samples in other folds would make the weakest penalty look best."""
    rng, labels = np.random.default_rng(0), np.tile([0, 1], 20)
    features = (rng.normal(size=(40, 30)) + 0.3 * labels[:, None]).astype(np.float32)
    copies = Samples(*(np.repeat(each, 5, axis=0) for each in (features, labels, 0 * labels)))
    groups = np.repeat(np.arange(40), 5).tolist()
    assert C_GRID[-1] == fit_head(copies, 2).C > fit_head(copies, 2, groups=groups).C


GOOD = planted(20, 3, 3, 2)


@pytest.mark.parametrize(
    ("samples", "n_classes", "options", "message"),
    [
        (GOOD, 2, {}, "labels of 2 classes must be 0 to 1, got 0 to 2"),
        (GOOD, 3, {"C": -1.0}, r"C must be one or more numbers above 0, got \[-1.0\]"),
        (GOOD, 3, {"Cs": ()}, r"C must be one or more numbers above 0, got \[\]"),
        (GOOD._replace(labels=GOOD.labels[1:]), 3, {}, r"shape \(20, 3\), 19 labels, 20 domains"),
        (GOOD._replace(features=np.full((20, 3), 1e300)), 3, {}, "the largest value is"),
        (GOOD._replace(features=np.full((20, 3), 1e-160)), 3, {}, "the largest value is"),
    ],
)
def test_what_cannot_be_fitted(
    samples: Samples, n_classes: int, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        fit_head(samples, n_classes, **options)
