"""Models of PyTorch libraries as modules that return their features, ready to train."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from oodzoo._text import one_line
from oodzoo.errors import InputError
from oodzoo.zoo.layers_torch import Tap, find_taps, run_tapped
from oodzoo.zoo.model_spec import ModelSpec
from oodzoo.zoo.preprocessing import Preprocessing
from oodzoo.zoo.torch_model import Built, Module, Tensor
from oodzoo.zoo.torch_to_onnx import write_features
from oodzoo.zoo.trainable_model import Trainable


def trainable(built: Built, spec: ModelSpec, preprocessing: Preprocessing) -> Trainable:
    """The module of one model, in float32 and in eval mode."""
    network, (dim,) = _network(built, [spec], single=True)
    crop = preprocessing.geometry.crop

    def write(file: Path) -> None:
        write_features(network, crop, file, name=spec.name)

    return Trainable(spec.name, network, preprocessing, dim, write)


def trainable_network(built: Built, specs: Sequence[ModelSpec]) -> Module:
    """The module of models that are layers of one network; it returns a tuple of features."""
    network, _ = _network(built, specs, single=False)
    return network


def _network(built: Built, specs: Sequence[ModelSpec], *, single: bool) -> tuple[Module, list[int]]:
    """A module that returns features, and the dimension of those of each model."""
    torch: Any = import_module("torch")

    class Features(torch.nn.Module):  # type: ignore[misc]
        """Features of a network or of its layers."""

        def __init__(self, taps: Sequence[Tap | None]) -> None:
            super().__init__()
            self.network = built.module
            self.taps = tuple(taps)

        def forward(self, batch: Tensor) -> Tensor | tuple[Tensor, ...]:
            tapped = [tap for tap in self.taps if tap is not None]
            # export and tracing cannot stop in the middle of a forward pass
            recorded = torch.compiler.is_compiling() or torch.jit.is_tracing()
            outputs, pooled, _ = run_tapped(
                lambda: built.forward(self.network, batch),
                tapped,
                whole=recorded or len(tapped) < len(self.taps),
            )
            layers = iter(pooled)
            features = tuple(
                outputs[0].float() if tap is None and outputs is not None else next(layers)
                for tap in self.taps
            )
            return features[0] if single else features

    built.module.float().eval().requires_grad_(True)
    batch = torch.zeros((2, 3, *built.preprocessing.geometry.crop))
    try:
        network = Features(_taps(built, specs, batch)).eval()
        features = network(batch)
        outputs = [features] if single else list(features)
        _freeze_unused(network, outputs)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"model {specs[0].name!r} cannot be trained: {one_line(error)}") from error
    return network, [output.shape[1] for output in outputs]


def _taps(built: Built, specs: Sequence[ModelSpec], batch: Tensor) -> list[Tap | None]:
    """The layer of each model; None for the features of the network."""
    import torch

    layers = [(spec.layer, spec.pooling) for spec in specs if spec.layer is not None]
    with torch.no_grad():
        found = iter(
            find_taps(
                built.module,
                lambda: built.forward(built.module, batch),
                layers,
                len(batch),
                built.preprocessing.geometry.crop,
            )
            if layers
            else []
        )
    taps: list[Tap | None] = []
    for spec in specs:
        tap = next(found) if spec.layer is not None else None
        if isinstance(tap, InputError):
            raise InputError(f"model {spec.name!r}: {tap}")
        taps.append(tap)
    return taps


def _freeze_unused(module: Module, outputs: Sequence[Tensor]) -> None:
    """Freeze weights that the features do not depend on, such as those of a classifier."""
    import torch

    weights = list(module.parameters())
    total = sum(output.sum() for output in outputs)
    gradients = torch.autograd.grad(total, weights, allow_unused=True)
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.requires_grad_(gradient is not None)
