"""The average of weights in the valley of the validation loss, against the authors' code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.oracles import swad as oracle

from oodzoo.tuning.averages import TOLERANCE_RATIO, LossValley, RunningMean

torch = pytest.importorskip("torch")


LENGTH = 10
"""Steps of a segment."""


def path(rng: np.random.Generator, n: int) -> list[tuple[NDArray[np.float64], float]]:
    """Weights and losses of the segments of a training that improves, then overfits."""
    turn = rng.integers(1, n)
    trend = np.abs(np.arange(n) - turn) / n
    losses = 0.3 + trend * rng.uniform(0, 3) + rng.normal(size=n) * 0.05
    weights = rng.normal(size=(n, 5))
    return list(zip(weights, np.abs(losses).tolist(), strict=True))


def add(valley: LossValley, at: int, weights: NDArray[np.float64], loss: float) -> None:
    tensors = {"a": torch.from_numpy(weights[:2]), "b": torch.from_numpy(weights[2:])}
    start = at * LENGTH
    valley.add(RunningMean(tensors, LENGTH, start, start + LENGTH - 1), loss)


def joined(weights: dict[str, Any]) -> NDArray[np.float64]:
    return np.concatenate([weights["a"].numpy(), weights["b"].numpy()])


def test_averages_are_those_of_the_authors() -> None:
    ends = set()
    for seed in range(100):
        rng = np.random.default_rng(seed)
        valley, twin = LossValley(), oracle.LossValley(3, 6, TOLERANCE_RATIO - 1)
        steps = path(rng, int(rng.integers(2, 40)))
        for at, (weights, loss) in enumerate(steps):
            add(valley, at, weights, loss)
            segment = oracle.AveragedModel(weights)
            segment.start_step, segment.end_step = at * LENGTH, at * LENGTH + LENGTH - 1
            twin.update_and_evaluate(segment, loss)
            assert valley.dead == twin.dead_valley
        average = valley.result()
        expected = twin.get_final_model()
        np.testing.assert_allclose(joined(average.weights), expected.module, atol=1e-12)
        # The code has no steps where nothing was averaged, and takes the last step of a segment
        # for its first where the average begins after the training.
        if expected.end_step >= 0:
            assert average.end == expected.end_step
        if expected.start_step % LENGTH == 0:
            assert average.start == expected.start_step
        ends.add((twin.converge_step is None, valley.dead))
    assert (False, False) in ends
    assert ends == {(True, False), (False, False), (False, True)}
