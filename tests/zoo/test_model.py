from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oodzoo.errors import InputError
from oodzoo.zoo.model import Model, ModelInfo, Outputs, Pixels
from oodzoo.zoo.preprocessing import square

INFO = ModelInfo("net", square(8, (0, 0, 0), (1, 1, 1)), 0, None, None, "fingerprint")


def _outputs(dim: int, n_logits: int | None = None) -> Outputs:
    logits = None if n_logits is None else np.zeros((2, n_logits), np.float32)
    return Outputs(np.zeros((2, dim), np.float32), logits)


def test_dimensions_are_measured() -> None:
    info = INFO.measured(_outputs(5, 3), 5)
    assert (info.feature_dim, info.n_logits) == (5, 3)
    assert INFO.measured(_outputs(5)).n_logits is None
    assert (info.name, info.fingerprint, info.outputs) == ("net", "fingerprint", ())


def test_a_stated_dimension_must_agree() -> None:
    expected = "model 'net' returns 5 features, but its zoo file sets feature_dim = 4"
    with pytest.raises(InputError, match=expected):
        INFO.measured(_outputs(5), 4)


def test_calling_a_model_runs_its_three_steps_in_order() -> None:
    steps: list[str] = []

    class Recorder(Model):
        def prepare(self, pixels: Pixels) -> Any:
            steps.append("prepare")
            return pixels.sum()

        def launch(self, prepared: Any) -> Any:
            steps.append("launch")
            return prepared + 1

        def collect(self, launched: Any) -> Outputs:
            steps.append("collect")
            return Outputs(np.full((1, 1), launched, np.float32), None)

    outputs = Recorder()(np.ones((1, 2, 2, 3), np.uint8))
    assert outputs.features.item() == 13
    assert steps == ["prepare", "launch", "collect"]
