"""Means and mixtures of the weights of a network.

Weights are dicts from names to tensors on any device. Integers among them, such as the number of
batches that a batch norm has counted, are not averaged: the newer value is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

Tensor = Any  # torch.Tensor; torch is imported only when weights are computed
Weights = Mapping[str, Tensor]


def mixed(start: Weights, end: Weights, mixing: float) -> dict[str, Tensor]:
    """Interpolate between two sets of weights: (1 - mixing) start + mixing end.

    WiSE-FT [1]_ interpolates between the weights before and after fine-tuning.

    References
    ----------
    .. [1] Wortsman et al., "Robust fine-tuning of zero-shot models", CVPR 2022.
    """
    torch: Any = import_module("torch")
    _require_same_names(start, end)
    return {
        name: torch.lerp(start[name], value, mixing) if value.is_floating_point() else value
        for name, value in end.items()
    }


class RunningMean:
    """Mean of the weights added so far, of the same type and on the same device as these.

    Parameters
    ----------
    weights, count
        Mean of an earlier object and number of weights in it, to continue from; `weights` is
        changed in place.
    """

    def __init__(self, weights: dict[str, Tensor] | None = None, count: int = 0) -> None:
        self.weights: dict[str, Tensor] = {} if weights is None else weights
        """The mean; empty before the first weights are added."""
        self.count = count

    def add(self, weights: Weights) -> None:
        """Add weights, which are not kept."""
        torch: Any = import_module("torch")
        self.count += 1
        with torch.no_grad():
            if self.count == 1:
                self.weights = {name: value.detach().clone() for name, value in weights.items()}
                return
            _require_same_names(self.weights, weights)
            means, values = [], []
            for name, mean in self.weights.items():
                if mean.is_floating_point():
                    means.append(mean)
                    values.append(weights[name].detach())
                else:
                    mean.copy_(weights[name])
            # one call for all tensors: hundreds of small operations would delay each step
            torch._foreach_lerp_(means, values, 1 / self.count)

    def copy(self) -> RunningMean:
        """Return an independent copy."""
        weights = {name: value.clone() for name, value in self.weights.items()}
        return RunningMean(weights, self.count)


def _require_same_names(first: Weights, second: Weights) -> None:
    if first.keys() != second.keys():
        differing = sorted(first.keys() ^ second.keys())
        raise ValueError(f"weights have differing names: {', '.join(differing)}")
