"""A loaded model: what every source must give."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodzoo.zoo.preprocessing import Preprocessing

Pixels = NDArray[np.uint8]
"""A batch of images (n, height, width, 3), resized and cut as a model's geometry asks."""


class Outputs(NamedTuple):
    """What one forward pass gives: pooled features (n, d), and the logits (n, C) of a head."""

    features: NDArray[np.float32]
    logits: NDArray[np.float32] | None


@dataclass(frozen=True)
class ModelInfo:
    """What is known of a model once it is loaded.

    `fingerprint` identifies what decides about the features (weights, which outputs are taken),
    not where the model lies or on which device it runs.
    """

    name: str
    preprocessing: Preprocessing
    feature_dim: int
    n_logits: int | None
    parameters: int | None
    fingerprint: str
    pretraining: str | None = None
    licence: str | None = None
    outputs: tuple[str, ...] = ()
    """Names of the outputs in use, for an ONNX model: (features,) or (features, logits)."""


class Model(ABC):
    """A feature extractor with its own preprocessing.

    A batch goes through three steps, so that a caller can overlap them: `prepare` (any thread;
    normalises, or copies towards a device), `launch` (starts the forward pass) and `collect`
    (waits for it). Calling the model does all three.
    """

    info: ModelInfo
    on_cpu: bool = False
    """Whether it computes on the cores that decode images: working ahead then makes both slower."""

    @abstractmethod
    def prepare(self, pixels: Pixels) -> Any: ...

    @abstractmethod
    def launch(self, prepared: Any) -> Any: ...

    @abstractmethod
    def collect(self, launched: Any) -> Outputs: ...

    def __call__(self, pixels: Pixels) -> Outputs:
        return self.collect(self.launch(self.prepare(pixels)))
