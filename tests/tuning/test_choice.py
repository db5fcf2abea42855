"""Settings, and the choice of a learning rate and of weights on left-out domains."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from oodzoo.core.errors import InputError
from oodzoo.tasks import Kind
from oodzoo.tuning.choice import CANDIDATES, choose, str_of
from oodzoo.tuning.settings import TuneSettings

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


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learning_rates": ()}, "learning rates must be positive numbers, got []"),
        ({"learning_rates": (1e-4, 0.0)}, "must be positive numbers, got [0.0001, 0.0]"),
        ({"learning_rates": (-1e-4,)}, "must be positive numbers, got [-0.0001]"),
        ({"learning_rates": (math.nan,)}, "must be positive numbers, got [nan]"),
        ({"learning_rates": (math.inf,)}, "must be positive numbers, got [inf]"),
        ({"learning_rates": (1e-4, 1e-4)}, "learning rates must differ, got [0.0001, 0.0001]"),
        ({"steps": 0}, "steps must be 1 or more, got 0"),
        ({"steps": 2.5}, "steps must be a whole number, got 2.5"),
        ({"batch_size": 0}, "batch_size must be 1 or more, got 0"),
        ({"batch_size": "8"}, "batch_size must be a whole number, got '8'"),
        ({"seed": -1}, "seed must be 0 or more, got -1"),
        ({"lora": 0}, "the rank of LoRA adapters must be 1 or more, got 0"),
        ({"lora": 1.5}, "the rank of LoRA adapters must be a whole number, got 1.5"),
        ({"weight_decay": -0.1}, "weight_decay must be 0 or more, got -0.1"),
        ({"weight_decay": math.nan}, "weight_decay must be 0 or more, got nan"),
        ({"weight_decay": math.inf}, "weight_decay must be 0 or more, got inf"),
        ({"schedule": "linear"}, "schedule must be one of cosine, constant, got 'linear'"),
        ({"start": "zero"}, "start must be one of probe, random, got 'zero'"),
        ({"choose_by": "x"}, "choose_by must be one of leave-one-domain-out, training-domain, got"),
    ],
)
def test_bad_values(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        TuneSettings(**settings)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_integers_of_numpy() -> None:
    settings = TuneSettings(steps=np.int64(7), lora=np.int64(2))  # type: ignore[arg-type]
    assert json.loads(json.dumps(settings.to_dict()))["steps"] == 7


@pytest.mark.parametrize("steps", [2, 5, 10, 25, 100, 301])
def test_cosine_rate(steps: int) -> None:
    settings = TuneSettings(steps=steps)
    rates = np.array([settings.rate(2.0, step) for step in range(steps)])
    warm = math.ceil(steps / 10)
    np.testing.assert_allclose(rates[:warm], 2.0 * np.arange(1, warm + 1) / warm)
    angles = math.pi * np.arange(steps - warm) / (steps - warm)
    np.testing.assert_allclose(rates[warm:], 1 + np.cos(angles))
    assert rates.min() > 0
    assert rates.max() == 2.0
    assert (np.diff(rates[warm:]) < 0).all()
