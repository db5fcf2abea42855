"""Prediction sets: thresholds against their definition, coverage on exchangeable data."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.oracles import prediction_sets as oracle

from oodzoo.predictor.prediction_sets import (
    intervals_of,
    measure_class_sets,
    measure_intervals,
    threshold,
)

Floats = NDArray[np.float64]


# --- against the definition ---------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(7,), (5, 5), (4, 9, 6), (3, 8, 5, 10)])
@pytest.mark.parametrize("level", ["0.5", "0.8", "0.9"])
def test_thresholds_are_those_of_the_definition(sizes: tuple[int, ...], level: str) -> None:
    rng = np.random.default_rng(len(sizes))
    for _ in range(5):
        scores = [rng.normal(rng.normal(), 1, n).round(1) for n in sizes]
        assert threshold(scores, float(level)) == oracle.threshold(scores, level)


ODD = (
    "usual",
    "one sample",
    "two domains",
    "many classes",
    "equal probabilities",
    "tied probabilities",
    "unknown class",
)


def _odd(kind: str) -> tuple[dict[str, Floats], dict[str, NDArray[np.int64]]]:
    """Probabilities and classes of domains that are in some way unusual."""
    rng = np.random.default_rng(0)
    sizes = {"one sample": (1, 9, 12), "two domains": (8, 11)}.get(kind, (9, 12, 7))
    n_classes = 40 if kind == "many classes" else 3
    probabilities, labels = {}, {}
    for at, n in enumerate(sizes):
        name, y = f"d{at}", rng.integers(0, n_classes, n)
        p = rng.dirichlet(np.ones(n_classes), n)
        if kind == "equal probabilities":
            p = np.full((n, n_classes), 1 / n_classes)
        if kind == "tied probabilities":
            p = np.eye(n_classes)[p.argmax(axis=1)] / 2 + 0.5 / n_classes
        if kind == "unknown class" and at == 0:  # of which no other domain has samples
            y[:] = 2
            p[:, 2] = 0
            p /= p.sum(axis=1, keepdims=True)
        probabilities[name], labels[name] = p, y
    return probabilities, labels


@pytest.mark.parametrize("level", ["0.8", "0.9", "0.95"])
@pytest.mark.parametrize("kind", ODD)
def test_sets_of_unusual_domains_are_those_of_the_definition(kind: str, level: str) -> None:
    probabilities, labels = _odd(kind)
    (found,) = measure_class_sets(probabilities, labels, [float(level)])
    coverage, size = oracle.measured(probabilities, labels, level)
    assert found.coverage == pytest.approx(coverage)
    assert found.size == pytest.approx(size)
    scores = [-p[np.arange(len(p)), labels[name]] for name, p in probabilities.items()]
    score = oracle.threshold(scores, level)
    assert found.thresholds == (0.0 if score == np.inf else -score,)


# --- properties ---------------------------------------------------------------------------------


# --- measured -----------------------------------------------------------------------------------


def test_too_few_samples_give_all_classes_and_no_interval() -> None:
    p = {"a": np.array([[0.7, 0.3]]), "b": np.array([[0.6, 0.4]])}
    (measured,) = measure_class_sets(p, {"a": np.array([0]), "b": np.array([1])}, [0.9])
    assert (measured.thresholds, measured.size, measured.average) == ((0.0,), 2.0, 100.0)
    x = {"a": np.array([[1.0]]), "b": np.array([[2.0]])}
    assert measure_intervals(x, x, [0.9]) == ()


def test_intervals_of_several_numbers() -> None:
    rng = np.random.default_rng(0)
    truth = {name: rng.normal(size=(100, 2)) for name in "abc"}
    predicted = {n: y + rng.normal(size=(100, 2)) * [0.1, 10] for n, y in truth.items()}
    (measured,) = measure_intervals(predicted, truth, [0.9])
    small, large = measured.thresholds
    assert small == pytest.approx(0.165, rel=0.2)
    assert large == pytest.approx(16.5, rel=0.2)
    assert measured.average == pytest.approx(90, abs=4)
    assert measured.size is None
    (low, high), _ = intervals_of(np.array([5.0, 0.0]), measured)
    assert (low, high) == (5 - small, 5 + small)
