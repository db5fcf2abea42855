"""The adaptive head of a predictor as tensors and scalars, as it is saved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.errors import InputError
from oodzoo.heads.adaptive import AdaptiveHead, Confusion
from oodzoo.heads.linear import LinearHead

_HEADS = ("plain", "standardised", "base")

Tensors = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class AdaptiveScalars:
    """The scalars of an adaptive head, for JSON."""

    C: dict[str, float]
    """C of each of its heads."""
    noise: float

    def __post_init__(self) -> None:
        if set(self.C) != set(_HEADS) or not 0 <= self.noise < np.inf:
            raise InputError(
                f"an adaptive head must have a C for each of {', '.join(_HEADS)}, and a noise of 0 "
                f"or more, got {self.C} and {self.noise}"
            )

    @classmethod
    def of(cls, adaptive: AdaptiveHead) -> AdaptiveScalars:
        """Scalars of an adaptive head."""
        C = {name: getattr(adaptive, name).C for name in _HEADS}
        return cls(C, adaptive.confusion.noise)


def adaptive_tensors(adaptive: AdaptiveHead) -> Tensors:
    """The arrays of an adaptive head, by name; all names begin with `adaptive.`."""
    confusion = adaptive.confusion
    tensors = {"adaptive.rates": confusion.rates, "adaptive.reference": confusion.reference}
    for name in _HEADS:
        head: LinearHead = getattr(adaptive, name)
        tensors |= {f"adaptive.{name}.weights": head.weights, f"adaptive.{name}.bias": head.bias}
    return tensors


def adaptive_shapes(n_classes: int, n_features: int) -> dict[str, tuple[int, ...]]:
    """The shapes that the tensors must have."""
    shapes: dict[str, tuple[int, ...]] = {
        "adaptive.rates": (n_classes, n_classes),
        "adaptive.reference": (n_classes,),
    }
    for name in _HEADS:
        shapes[f"adaptive.{name}.weights"] = (n_classes, n_features)
        shapes[f"adaptive.{name}.bias"] = (n_classes,)
    return shapes


def adaptive_head(tensors: Tensors, scalars: AdaptiveScalars) -> AdaptiveHead:
    """Inverse of :func:`adaptive_tensors` and :meth:`AdaptiveScalars.of`."""
    heads = {
        name: LinearHead(
            tensors[f"adaptive.{name}.weights"], tensors[f"adaptive.{name}.bias"], scalars.C[name]
        )
        for name in _HEADS
    }
    rates, reference = tensors["adaptive.rates"], tensors["adaptive.reference"]
    return AdaptiveHead(**heads, confusion=Confusion(rates, reference, scalars.noise))
