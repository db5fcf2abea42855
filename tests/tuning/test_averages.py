"""Averages of weights: mixtures, running means, and the valley of the validation loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.oracles import swad as oracle

from oodzoo.tuning.averages import TOLERANCE_RATIO, LossValley, RunningMean, mixed

torch = pytest.importorskip("torch")


def weights(seed: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "a.weight": torch.randn(3, 4, generator=generator),
        "b": torch.randn(5, generator=generator),
        "counted": torch.tensor(seed),
    }


def test_mean_of_a_path() -> None:
    path = [weights(seed) for seed in range(50)]
    mean = RunningMean()
    for step in path:
        mean.add(step)
    assert mean.count == 50
    for name in ("a.weight", "b"):
        expected = np.mean([step[name].double().numpy() for step in path], axis=0)
        np.testing.assert_allclose(mean.weights[name].numpy(), expected, atol=1e-6)
    assert mean.weights["counted"] == 49


def test_mean_keeps_no_reference() -> None:
    layer = torch.nn.Linear(2, 2)
    before = layer.weight.detach().clone()
    mean = RunningMean()
    mean.add(dict(layer.named_parameters()))
    copy = mean.copy()
    with torch.no_grad():
        layer.weight.zero_()
    mean.add(dict(layer.named_parameters()))
    torch.testing.assert_close(mean.weights["weight"], before / 2)
    torch.testing.assert_close(copy.weights["weight"], before)
    assert not mean.weights["weight"].requires_grad


@pytest.mark.parametrize("mixing", [0.0, 0.25, 0.5, 0.75, 1.0])
def test_mixture(mixing: float) -> None:
    start, end = weights(1), weights(2)
    result = mixed(start, end, mixing)
    for name in ("a.weight", "b"):
        expected = (1 - mixing) * start[name].double() + mixing * end[name].double()
        torch.testing.assert_close(result[name].double(), expected, rtol=0, atol=1e-6)
    assert result["counted"] == 2
    if mixing in (0, 1):
        torch.testing.assert_close(result["b"], (start, end)[int(mixing)]["b"], rtol=0, atol=0)


def test_differing_names() -> None:
    with pytest.raises(ValueError, match="counted"):
        mixed({"b": torch.ones(5)}, {"b": torch.ones(5), "counted": torch.tensor(1)}, 0.5)
    mean = RunningMean()
    mean.add({"b": torch.ones(5)})
    with pytest.raises(ValueError, match="c"):
        mean.add({"b": torch.ones(5), "c": torch.ones(5)})


# --- SWAD, against a transcription of the authors' code -------------------------------------------


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
    valley.add(tensors, loss, at * LENGTH, at * LENGTH + LENGTH - 1)


def joined(weights: dict[str, Any]) -> NDArray[np.float64]:
    return np.concatenate([weights["a"].numpy(), weights["b"].numpy()])


def test_authors_code() -> None:
    ends = set()
    for seed in range(200):
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


def test_nan_is_no_valley() -> None:
    valley = LossValley()
    for at in range(8):
        add(valley, at, np.full(5, at, float), float("nan"))
    assert valley.result()[1:] == (70, 79)


def test_resumes_from_a_file(tmp_path: Path) -> None:
    files = pytest.importorskip("safetensors.torch")
    for seed in range(10):
        steps = path(np.random.default_rng(seed), 30)
        whole, resumed = LossValley(), LossValley()
        for at, (weights, loss) in enumerate(steps):
            add(whole, at, weights, loss)
            add(resumed, at, weights, loss)
            files.save_file(resumed.state(), tmp_path / "valley")
            resumed = LossValley()
            resumed.restore(files.load_file(tmp_path / "valley"))
            assert resumed.dead == whole.dead
        (a, *a_steps), (b, *b_steps) = whole.result(), resumed.result()
        np.testing.assert_array_equal(joined(a), joined(b))
        assert a_steps == b_steps


def test_without_segments() -> None:
    with pytest.raises(ValueError, match="before the first segment"):
        LossValley().result()


def test_state_is_exact() -> None:
    """Numbers of steps that float32 cannot represent."""
    valley, restored = LossValley(), LossValley()
    weights = {"a": torch.zeros(2), "b": torch.zeros(3)}
    valley.add(weights, 0.1, 2**24 + 1, 2**24 + 3)
    restored.restore(valley.state())
    assert restored.result()[1:] == (2**24 + 1, 2**24 + 3)
