"""Settings of fine-tuning: what is refused, and the learning rate of each step."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from oodzoo.errors import InputError
from oodzoo.tuning.settings import TuneSettings


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
