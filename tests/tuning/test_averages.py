"""Averages of weights: mixtures, running means, and the valley of the validation loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.oracles import swad as oracle

from oodzoo.tuning.averages import TOLERANCE_RATIO, LossValley, RunningMean

torch = pytest.importorskip("torch")


def weights(seed: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "a.weight": torch.randn(3, 4, generator=generator),
        "b": torch.randn(5, generator=generator),
        "counted": torch.tensor(seed),
    }


def test_mean_of_a_path() -> None:
    """It keeps no reference to the weights that are added."""
    path, mean = [weights(seed) for seed in range(50)], RunningMean()
    expected = {
        name: np.mean([step[name].double().numpy() for step in path], axis=0)
        for name in ("a.weight", "b")
    }
    for step in path[:49]:
        mean.add(step)
        step["b"].zero_()
    copy = mean.copy()
    mean.add(
        {name: each.requires_grad_(each.is_floating_point()) for name, each in path[49].items()}
    )
    assert (copy.count, mean.count) == (49, 50)
    assert not mean.weights["b"].requires_grad
    for name in ("a.weight", "b"):
        np.testing.assert_allclose(mean.weights[name].numpy(), expected[name], atol=1e-6)
        assert not torch.equal(copy.weights[name], mean.weights[name])
    assert mean.weights["counted"] == 49


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
    valley.add(tensors, loss, at * LENGTH, at * LENGTH + LENGTH - 1)


def joined(weights: dict[str, Any]) -> NDArray[np.float64]:
    return np.concatenate([weights["a"].numpy(), weights["b"].numpy()])


def test_authors_code() -> None:
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
        average, start, end = valley.result()
        expected = twin.get_final_model()
        np.testing.assert_allclose(joined(average), expected.module, atol=1e-12)
        # The code has no steps where nothing was averaged, and takes the last step of a segment
        # for its first where the average begins after the training.
        if expected.end_step >= 0:
            assert end == expected.end_step
        if expected.start_step % LENGTH == 0:
            assert start == expected.start_step
        ends.add((twin.converge_step is None, valley.dead))
    assert (False, False) in ends
    assert ends == {(True, False), (False, False), (False, True)}
