"""What fine-tuning says to settings and data that cannot be used, in one line."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.tuning import small

from oodzoo import InputError
from oodzoo.tuning.domainbed import ErmSettings, ErmTuner
from oodzoo.tuning.problem import TuneSettings


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (TuneSettings, {"learning_rates": ()}, "learning rates must be positive numbers, got []"),
        (TuneSettings, {"learning_rates": (1e-4, 0.0)}, "positive numbers, got [0.0001, 0.0]"),
        (TuneSettings, {"learning_rates": (math.inf,)}, "must be positive numbers, got [inf]"),
        (TuneSettings, {"learning_rates": (1e-4, 1e-4)}, "must differ, got [0.0001, 0.0001]"),
        (TuneSettings, {"steps": 0}, "steps must be 1 or more, got 0"),
        (TuneSettings, {"steps": 2.5}, "steps must be a whole number, got 2.5"),
        (TuneSettings, {"batch_size": 0}, "batch_size must be 1 or more, got 0"),
        (TuneSettings, {"seed": -1}, "seed must be 0 or more, got -1"),
        (TuneSettings, {"lora": 0}, "the rank of LoRA adapters must be 1 or more, got 0"),
        (TuneSettings, {"weight_decay": -0.1}, "weight_decay must be 0 or more, got -0.1"),
        (TuneSettings, {"schedule": "linear"}, "one of cosine, constant, got 'linear'"),
        (TuneSettings, {"start": "zero"}, "start must be one of probe, random, got 'zero'"),
        (TuneSettings, {"choose_by": "x"}, "one of leave-one-domain-out, training-domain, got"),
        (ErmSettings, {"draws": 0}, "draws must be 1 or more, got 0"),
        (ErmSettings, {"steps": 2.5}, "steps must be a whole number, got 2.5"),
        (ErmSettings, {"choose_by": "oracle"}, "choose_by must be one of"),
        (ErmSettings, {"search_space": "PACS"}, "unknown search space 'PACS'"),
    ],
)
def test_settings(kind: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        kind(**settings)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    steps: Any = np.int64(7)  # integers of NumPy are whole numbers
    assert type(TuneSettings(steps=steps).to_dict()["steps"]) is int


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ({"kind": "regression"}, "is for classes"),
        ({"domains": ("art",)}, "at least two domains, got 1 domain: art"),
    ],
)
def test_what_the_protocol_cannot_tune(tmp_path: Path, what: dict[str, Any], message: str) -> None:
    pytest.importorskip("torch")
    with small.problem(tmp_path, **what) as problem, pytest.raises(InputError, match=message):
        ErmTuner(small.trainable, problem, ErmSettings(draws=2, steps=5), device="cpu")
