"""Fine-tuning as a plain loop of PyTorch, without passes, checkpoints or prefetching."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from tests.oracles.swad import AveragedModel, LossValley

torch: Any = import_module("torch")
F: Any = torch.nn.functional


class Path(NamedTuple):
    """Weights after each step, the loss of each step, and the validation loss of each segment."""

    weights: list[dict[str, Any]]
    losses: list[float]
    validation: list[float]


def rate(schedule: str, learning_rate: float, step: int, steps: int) -> float:
    """Of a step, counted from 0."""
    if schedule == "constant":
        return learning_rate
    warm = math.ceil(steps / 10)
    if step < warm:
        return learning_rate * (step + 1) / warm
    return learning_rate * 0.5 * (1 + math.cos(math.pi * (step - warm) / (steps - warm)))


def loss(kind: str, outputs: Any, labels: Any, scale: Any) -> Any:
    if kind == "classification":
        return F.cross_entropy(outputs, labels)
    if kind == "multilabel":
        return F.binary_cross_entropy_with_logits(outputs, labels.float())
    return (((outputs - labels) / scale) ** 2).mean()


def train(
    network: Any,
    batches: Callable[[int], tuple[Any, Any]],
    held_out: tuple[Any, Any],
    *,
    kind: str,
    learning_rate: float,
    steps: int,
    schedule: str,
    weight_decay: float,
    scale: Any = None,
) -> Path:
    """Train a network that takes normalised images; every step is validated."""
    network.eval()
    optimizer = torch.optim.AdamW(network.parameters(), lr=learning_rate, weight_decay=weight_decay)
    path = Path([], [], [])
    for step in range(steps):
        x, y = batches(step)
        optimizer.param_groups[0]["lr"] = rate(schedule, learning_rate, step, steps)
        value = loss(kind, network(x), y, scale)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        path.losses.append(value.item())
        path.weights.append({n: p.detach().clone() for n, p in network.named_parameters()})
        with torch.no_grad():
            path.validation.append(float(loss(kind, network(held_out[0]), held_out[1], scale)))
    return path


def swad(path: Path, segment: int) -> tuple[dict[str, Any], tuple[int, int]]:
    """SWAD's average of a path with segments of this length, and its first and last step."""
    names = {name: each.shape for name, each in path.weights[0].items()}
    valley = LossValley(n_converge=3, n_tolerance=6, tolerance_ratio=0.3)
    for start, end in _segments(len(path.losses), segment):
        average = AveragedModel(_flat(path.weights[start]))
        for step in range(start, end):
            average.update_parameters(_flat(path.weights[step]), step=step)
        valley.update_and_evaluate(average, path.validation[end - 1])
    final = valley.get_final_model()
    parts = np.split(final.module, np.cumsum([math.prod(shape) for shape in names.values()])[:-1])
    weights = {
        name: torch.from_numpy(part).float().view(shape)
        for (name, shape), part in zip(names.items(), parts, strict=True)
    }
    return weights, (final.start_step, final.end_step)


def _segments(steps: int, segment: int) -> Sequence[tuple[int, int]]:
    return [(start, min(start + segment, steps)) for start in range(0, steps, segment)]


def _flat(weights: dict[str, Any]) -> Any:
    return np.concatenate([each.double().reshape(-1).numpy() for each in weights.values()])
