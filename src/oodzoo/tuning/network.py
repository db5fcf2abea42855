"""A network with a linear head on a device: its weights, outputs and loss."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo._packages import optional_package
from oodzoo.heads.linear import LinearHead
from oodzoo.task import Kind
from oodzoo.zoo.model import Trainable
from oodzoo.zoo.torch_model import torch_device

Tensor = Any  # torch.Tensor; torch is imported when a network is
Weights = dict[str, Tensor]
"""Weights by name: those of the features are `features.NAME`, those of the head `head.NAME`."""

_LOWEST = -1e9
"""Bias of a class without training images; infinite ones cannot be averaged."""


class Network:
    """A trainable network and a linear head.

    Batch normalisation and dropout stay as in inference, as in DomainBed.

    Attributes
    ----------
    parts : torch.nn.ModuleDict
        With the modules `features` and `head`.
    device : torch.device
    """

    def __init__(self, trainable: Trainable, n_outputs: int, device: str) -> None:
        torch = import_torch()
        self.trainable = trainable
        self.device = torch_device(device)
        head = torch.nn.Linear(trainable.feature_dim, n_outputs)
        self.parts = torch.nn.ModuleDict({"features": trainable.module, "head": head})
        self.parts.to(self.device).eval()
        if self.device.type == "cuda":
            self.parts.to(memory_format=torch.channels_last)
        preprocessing = trainable.preprocessing
        self._mean, self._std = (
            torch.tensor(values, device=self.device).view(1, 3, 1, 1)
            for values in (preprocessing.mean, preprocessing.std)
        )
        # bfloat16 has the range of float32, so gradients need no scaling
        self.precision = torch.bfloat16 if self.device.type == "cuda" else torch.float32

    def features(self, batch: Tensor) -> Tensor:
        """Features (n, d) of images (n, 3, height, width) with values from 0 to 1."""
        return self.parts["features"]((batch - self._mean) / self._std)

    def outputs(self, batch: Tensor) -> Tensor:
        """Outputs (n, C) of the head, in float32: in bfloat16, the number 2001 is 2000."""
        import torch

        features = self.features(batch)
        with torch.autocast(self.device.type, enabled=False) if self._is_mixed else nullcontext():
            return self.parts["head"](features.float())

    @property
    def _is_mixed(self) -> bool:
        import torch

        return bool(self.precision != torch.float32)

    def log_probabilities(self, batch: Tensor) -> Tensor:
        """Log-probabilities (n, C) of classes, -inf of those without training images."""
        unseen = self.parts["head"].bias < _LOWEST / 2
        return self.outputs(batch).log_softmax(1).masked_fill(unseen, -np.inf)

    def images(self, pixels: NDArray[np.uint8]) -> Tensor:
        """Move pixels (n, height, width, 3) to the device, as values from 0 to 1."""
        import torch

        tensor = torch.from_numpy(np.require(pixels, requirements=["C", "W"]))
        if self.device.type == "cuda":
            tensor = tensor.pin_memory().to(self.device, non_blocking=True)
            return tensor.permute(0, 3, 1, 2).float().div_(255)
        return tensor.to(self.device).permute(0, 3, 1, 2).contiguous().float().div_(255)

    def weights(self) -> Weights:
        """Copies of all weights."""
        return {name: each.detach().clone() for name, each in self.parts.named_parameters()}

    def trained(self) -> Weights:
        """The weights that are trained, not copied."""
        named = self.parts.named_parameters()
        return {name: each.detach() for name, each in named if each.requires_grad}

    def weight(self, name: str) -> Tensor:
        """A weight by its name, with its adapter."""
        found: Any = self.parts
        for part in name.split("."):
            found = getattr(found, part)
        return found

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Set weights."""
        import torch

        parameters = dict(self.parts.named_parameters())
        with torch.no_grad():
            for name, value in weights.items():
                parameters[name].copy_(value)

    def head(self, kind: Kind = "classification") -> LinearHead:
        """The head as it is now."""
        weight, bias = (
            each.detach().double().cpu().numpy()
            for each in (self.parts["head"].weight, self.parts["head"].bias)
        )
        if kind == "classification":
            bias[bias < _LOWEST / 2] = -np.inf
        return LinearHead(weight, bias, C=1.0, kind=kind)


def head_weights(head: LinearHead) -> Weights:
    """The weights of a fitted head."""
    import torch

    bias = np.where(np.isneginf(head.bias), _LOWEST, head.bias)
    return {
        "head.weight": torch.from_numpy(head.weights.astype(np.float32)),
        "head.bias": torch.from_numpy(bias.astype(np.float32)),
    }


def loss(kind: Kind, outputs: Tensor, labels: Tensor, scale: Tensor | None = None) -> Tensor:
    """Mean loss: cross entropy, that of each label, or the squared error relative to the scale."""
    from torch.nn import functional

    if kind == "classification":
        return functional.cross_entropy(outputs, labels)
    if kind == "multilabel":
        return functional.binary_cross_entropy_with_logits(outputs, labels)
    return functional.mse_loss(outputs / scale, labels / scale)


def import_torch() -> Any:
    """Import PyTorch; an InputError names the extra if it is missing."""
    return optional_package("torch", extra="tune", purpose="fine-tuning")
