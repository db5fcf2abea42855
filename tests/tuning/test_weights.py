"""Means and mixtures of weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oodzoo.tuning.averages import RunningMean, mixed

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
