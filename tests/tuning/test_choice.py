"""The choice of a learning rate and of weights on held-out domains."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from oodzoo.tasks import CLASSIFICATION, Kind, task_of
from oodzoo.tuning.tuner import CANDIDATES, choose_weights

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


def sure(**changed: float) -> list[float]:
    """Probabilities of 0.6, but for some candidates."""
    return [changed.get(f"c{at}", 0.6) for at in range(N)]


@pytest.mark.parametrize(
    ("by_rate", "rate", "candidate"),
    [
        ({1e-3: (sure(), sure()), 1e-5: (sure(), sure())}, 1e-3, 0),  # ties go to the less tuned
        ({1e-3: (sure(c4=0.9, c7=0.9), sure(c4=0.9, c7=0.9))}, 1e-3, 4),
        # domains weigh alike: 1 is better in the smaller one by more than 2 in the larger one
        ({1.0: (sure(c2=0.75, c3=0.99), sure(c1=0.8, c3=0.05))}, 1.0, 1),
        ({1e-5: (sure(), sure()), 1e-4: (sure(c8=0.8), sure(c8=0.8)), 1e-3: (sure(), sure())},
         1e-4, 8),
    ],
)  # fmt: skip
def test_choices(by_rate: dict[float, Any], rate: float, candidate: int) -> None:
    found = {r: outputs_with({"a": a, "b": b}) for r, (a, b) in by_rate.items()}
    chosen = choose_weights(found, LABELS, CLASSIFICATION)
    assert chosen[:2] == (rate, CANDIDATES[candidate])


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
    rate, candidate, metrics = choose_weights({1.0: diverged, 1e-4: good}, labels, task_of(kind))
    position = CANDIDATES.index(candidate)
    assert position < (1 if rate == 1.0 else 4)
    _, alone, others = choose_weights({1.0: diverged}, labels, task_of(kind))
    assert alone == CANDIDATES[0]
    for table in (metrics, others):
        assert "linear head" in table
        json.dumps(table, allow_nan=False)
