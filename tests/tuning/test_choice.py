"""The choice of a learning rate and of weights by their outputs on left-out domains."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from oodzoo.task import Kind
from oodzoo.tuning.choice import CANDIDATES, choose, str_of

N = len(CANDIDATES)
LABELS = {"a": np.array([0, 1, 1, 0]), "b": np.array([1, 1, 0])}


def of_probabilities(right: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.float64]:
    """Log-probabilities (candidates, n, 2) from probabilities (candidates, n) of the labels."""
    found = np.empty((*right.shape, 2))
    at = np.arange(len(labels))
    found[:, at, labels] = np.log(right)
    found[:, at, 1 - labels] = np.log1p(-right)
    return found


def outputs_with(sure: dict[str, list[float]]) -> dict[str, NDArray[np.float64]]:
    """Outputs in each domain, with the probability of the right class for each candidate."""
    return {
        domain: of_probabilities(np.repeat(np.array(p)[:, None], len(LABELS[domain]), 1), labels)
        for (domain, p), labels in zip(sure.items(), LABELS.values(), strict=True)
    }


def test_quality_decides_and_not_accuracy() -> None:
    """All predictions of the second candidate are right, but one of the first is surer."""
    a = np.full((N, 4), 0.51)
    b = np.full((N, 3), 0.51)
    a[3, 0], a[3, 1:] = 0.49, 0.9  # one is wrong, the others are sure
    found = {
        "a": of_probabilities(a, LABELS["a"]),
        "b": of_probabilities(b, LABELS["b"]),
    }
    choice = choose({1e-4: found}, LABELS, "classification")
    assert choice.candidate == CANDIDATES[3]
    assert choice.metrics[str_of(CANDIDATES[3])] == {"a": 75.0, "b": 100.0}
    assert choice.metrics["linear head"] == {"a": 100.0, "b": 100.0}
    assert list(choice.metrics) == [str_of(each) for each in CANDIDATES]


def test_domains_weigh_alike() -> None:
    """Candidate 1 is better in the smaller domain by more than candidate 2 in the larger one.

    Candidate 3 is the best in the larger domain, and the worst in the smaller one.
    """
    a, b = [0.5] * N, [0.5] * N
    b[1], a[2] = 0.8, 0.75
    a[3], b[3] = 0.99, 0.05
    labels = {"a": np.zeros(100, int), "b": np.zeros(2, int)}
    found = {
        name: of_probabilities(np.repeat(np.array(p)[:, None], len(labels[name]), 1), labels[name])
        for name, p in (("a", a), ("b", b))
    }
    assert choose({1.0: found}, labels, "classification").candidate == CANDIDATES[1]


def test_ties_go_to_the_less_tuned() -> None:
    sure = [0.6] * N
    found = outputs_with({"a": sure, "b": sure})
    choice = choose({1e-3: found, 1e-5: found}, LABELS, "classification")
    assert (choice.candidate, choice.learning_rate) == (CANDIDATES[0], 1e-3)
    sure[4] = sure[7] = 0.9
    found = outputs_with({"a": sure, "b": sure})
    assert choose({1e-3: found}, LABELS, "classification").candidate == CANDIDATES[4]


def test_learning_rates() -> None:
    low, high = [0.6] * N, [0.6] * N
    high[8] = 0.8
    found = {
        1e-5: outputs_with({"a": low, "b": low}),
        1e-4: outputs_with({"a": high, "b": high}),
        1e-3: outputs_with({"a": low, "b": low}),
    }
    choice = choose(found, LABELS, "classification")
    assert (choice.learning_rate, choice.candidate) == (1e-4, CANDIDATES[8])
    assert json.loads(json.dumps(choice.to_dict()))["weights"] == "last"


def test_classes_that_training_lacks() -> None:
    """Labels that no candidate can predict do not count."""
    sure = [0.6] * N
    sure[5] = 0.7
    found = outputs_with({"a": sure, "b": sure})
    found["a"][:, LABELS["a"] == 0, 0] = -np.inf
    choice = choose({1e-4: found}, LABELS, "classification")
    assert choice.candidate == CANDIDATES[5]


@pytest.mark.parametrize("kind", ["classification", "regression", "multilabel"])
def test_diverged_training_is_not_chosen(kind: Kind) -> None:
    """Outputs that are not numbers; all of a learning rate, or those of some candidates."""
    rng = np.random.default_rng(0)
    labels: dict[str, NDArray[Any]] = {
        name: rng.integers(2, size=6) if kind == "classification" else rng.integers(2, size=(6, 2))
        for name in ("a", "b")
    }
    diverged = {name: -np.abs(rng.normal(size=(N, 6, 2))) for name in labels}
    for outputs in diverged.values():
        outputs[1:] = math.nan
    good = {name: outputs[:1] + rng.normal(size=(N, 1, 1)) for name, outputs in diverged.items()}
    for outputs in good.values():
        outputs[4:] = math.nan
    choice = choose({1.0: diverged, 1e-4: good}, labels, kind)
    position = CANDIDATES.index(choice.candidate)
    assert position < (1 if choice.learning_rate == 1.0 else 4)
    alone = choose({1.0: diverged}, labels, kind)
    assert alone.candidate == CANDIDATES[0]
    for table in (choice.metrics, alone.metrics):
        assert "linear head" in table
        json.dumps(table, allow_nan=False)


def test_numbers() -> None:
    rng = np.random.default_rng(1)
    labels = {name: rng.normal(size=(8, 2)) * [1, 100] for name in ("a", "b")}
    found = {name: np.stack([y + np.array([0.5, 50])] * N) for name, y in labels.items()}
    for name, y in labels.items():
        found[name][6] = y + np.array([0.5, 30])  # closer in the second output
        found[name][2] = y + np.array([0.4, 50])  # less so
    choice = choose({1e-4: found}, labels, "regression")
    assert choice.candidate == CANDIDATES[6]
    y = labels["a"]
    errors = ((found["a"][6] - y) ** 2).mean(axis=0) / y.var(axis=0)
    assert choice.metrics[str_of(CANDIDATES[6])]["a"] == pytest.approx(100 * (1 - errors.mean()))


def test_several_labels() -> None:
    labels = {"a": np.array([[1, 0], [0, 1], [1, 1]]), "b": np.array([[0, 1], [1, 0]])}
    signs = {name: 2.0 * y - 1 for name, y in labels.items()}
    found = {name: np.stack([s * (1 + (at == 7)) for at in range(N)]) for name, s in signs.items()}
    choice = choose({1e-4: found}, labels, "multilabel")
    assert choice.candidate == CANDIDATES[7]
    assert choice.metrics["linear head"] == {"a": 100.0, "b": 100.0}
