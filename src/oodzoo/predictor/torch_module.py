"""A predictor as one PyTorch module, from pixels to logits, ready to train.

The input is what :meth:`Predictor.preprocess <oodzoo.Predictor.preprocess>` returns, as tensors: a
dict with a batch (n, height, width, 3) for each image size of the models, uint8, or floats from 0
to 255, in the order and with the names of
:meth:`Predictor.export_inputs <oodzoo.Predictor.export_inputs>`. If all sizes are the same, the
tensor itself will do. The module normalises the pixels, runs each network once, also if several of
its layers are in use, takes the selected columns and applies the head.

The output, float32 (n, outputs), are logits of the classes, whose softmax are the probabilities of
the predictor; log-odds of labels, before the sigmoid; or numbers. A class without training samples
has the logit -inf.

The weights of the networks (`networks`) and of the head (`head`, a linear layer) are parameters,
in float32; selected columns, means and standard deviations are buffers. Weights on which the
output does not depend, such as the classifier of a network, require no gradients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from oodzoo.core.errors import InputError
from oodzoo.core.packages import optional_package
from oodzoo.predictor.export import features_of, input_names, noise
from oodzoo.predictor.models import PredictorModel, in_one_pass, load_models
from oodzoo.predictor.parts import PredictorParts
from oodzoo.zoo import Preprocessing
from oodzoo.zoo.onnx_to_torch import computes_in_half
from oodzoo.zoo.sources import load_trainable_network

Module = Any  # torch.nn.Module; torch is imported only when it is needed
Tensor = Any  # torch.Tensor

TOLERANCE = 1e-4
"""Largest difference of logits from the predictor's, relative to the largest logit above 1."""
_HALF_TOLERANCE = 0.02
"""The same, if an ONNX file computes in float16."""


def predictor_module(parts: PredictorParts) -> Module:
    """Make a module of a predictor, after comparing its logits with the predictor's.

    It is on the CPU and in eval mode. `train()` affects dropout and the like, but not batch norms:
    these keep the statistics of pre-training, as in DomainBed.
    """
    module = _module(parts)
    _require_equal(module, parts)
    return module


def _module(parts: PredictorParts) -> Module:
    models = parts.loadable_models
    for model in models:
        if model.modality != "image":
            raise InputError(
                f"model {model.name!r} takes {model.modality}s; only models of images can be "
                "converted to PyTorch"
            )
    optional_package("torch", extra="tune", purpose="a predictor as a PyTorch module")
    torch: Any = import_module("torch")
    groups = in_one_pass(models)
    inputs = {geometry: name for name, geometry in input_names(models).items()}
    order = [model.name for group in groups for model in group]

    class PredictorModule(torch.nn.Module):  # type: ignore[misc]
        """Pixels to logits; see :mod:`oodzoo.predictor.torch_module`."""

        def __init__(self) -> None:
            super().__init__()
            self.networks = torch.nn.ModuleList(map(_network, groups))
            self.columns = torch.nn.ModuleList(_columns(parts, model.name) for model in models)
            self.head = _head(parts)
            self.register_buffer("centre", _float32(parts.gaussian.mean))

        def forward(self, pixels: Tensor | Mapping[str, Tensor]) -> Tensor:
            given = pixels if isinstance(pixels, Mapping) else {"pixels": pixels}
            _require_inputs(given, inputs.values())
            features: list[Tensor] = []
            for network, group in zip(self.networks, groups, strict=True):
                features += network(given[inputs[group[0].preprocessing.geometry]])
            found = dict(zip(order, features, strict=True))
            kept = [
                columns(found[model.name])
                for columns, model in zip(self.columns, models, strict=True)
            ]
            return self.head(torch.cat(kept, 1) - self.centre)

        def train(self, mode: bool = True) -> Module:
            super().train(mode)
            for part in self.modules():
                if isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
                    part.eval()
            return self

    return PredictorModule().eval()


def _require_equal(module: Module, parts: PredictorParts) -> None:
    """Raise InputError if the module and the predictor, in float32, differ on images of noise."""
    import torch

    models = parts.loadable_models
    pixels = noise(models, 2)
    with torch.inference_mode():
        found = module({name: torch.from_numpy(each) for name, each in pixels.items()}).numpy()
    loaded = load_models([replace(model, precision="float32") for model in models], "cpu")
    expected = parts.head.logits(features_of(parts, loaded, pixels))
    finite = np.isfinite(expected)
    scale = max(1.0, float(np.abs(expected[finite]).max()))
    difference = float(np.abs(found[finite] - expected[finite]).max()) / scale
    half = any(each.spec.kind == "onnx" and computes_in_half(each.spec.file) for each in models)
    tolerance = _HALF_TOLERANCE if half else TOLERANCE
    if not difference <= tolerance:
        raise InputError(
            f"the logits of the PyTorch module differ by {difference:.1g} from the predictor's, "
            f"more than {tolerance:.0e}"
        )


def _network(models: Sequence[PredictorModel]) -> Module:
    """From pixels to a tuple of features, one for each model of a network."""
    torch: Any = import_module("torch")
    for model in models:
        model.require_unchanged()
    preprocessing: Preprocessing = models[0].preprocessing

    class Network(torch.nn.Module):  # type: ignore[misc]
        """Normalisation, and the network up to the features of its models."""

        def __init__(self) -> None:
            super().__init__()
            self.network = load_trainable_network([each.spec for each in models], preprocessing)
            std, mean = np.array(preprocessing.std), np.array(preprocessing.mean)
            # the same constants and order as in Preprocessing.normalise
            self.register_buffer("factor", _float32(1 / (255 * std)).view(1, 3, 1, 1))
            self.register_buffer("offset", _float32(mean / std).view(1, 3, 1, 1))

        def forward(self, pixels: Tensor) -> tuple[Tensor, ...]:
            planes = pixels.permute(0, 3, 1, 2).to(self.factor.dtype)
            features: tuple[Tensor, ...] = self.network(planes * self.factor - self.offset)
            return features

    return Network()


def _columns(parts: PredictorParts, model: str) -> Module:
    """The selected columns of the features of a model."""
    torch: Any = import_module("torch")
    normalised = model in parts.columns.normalised
    least = float(np.finfo(np.float32).tiny)

    class Columns(torch.nn.Module):  # type: ignore[misc]
        """Selected columns; of features divided by their norm, if those are in use."""

        def __init__(self) -> None:
            super().__init__()
            columns = torch.from_numpy(np.array(parts.columns.by_model[model]))
            self.register_buffer("columns", columns)

        def forward(self, features: Tensor) -> Tensor:
            if normalised:
                features = torch.nn.functional.normalize(features, eps=least)
            return features.index_select(1, self.columns)

    return Columns()


def _head(parts: PredictorParts) -> Module:
    """A linear layer of centred features: the product of a large mean and a weight is rounded."""
    torch: Any = import_module("torch")
    head, mean = parts.head, parts.gaussian.mean.astype(np.float32)
    n_outputs, n_features = head.weights.shape
    layer = torch.nn.Linear(n_features, n_outputs)
    with torch.no_grad():
        layer.weight.copy_(_float32(head.weights))
        layer.bias.copy_(_float32(head.bias + head.weights @ mean))
    return layer


def _require_inputs(given: Mapping[str, Tensor], names: Any) -> None:
    if set(given) != set(names):
        raise InputError(
            f"the module takes a dict of {', '.join(names)}, as Predictor.preprocess returns it; "
            f"got {', '.join(given)}"
        )
    torch: Any = import_module("torch")
    if torch.jit.is_tracing():  # which warns of comparisons of shapes
        return
    for name, batch in given.items():
        if not isinstance(batch, torch.Tensor):
            raise InputError(
                f"{name} must be a tensor, such as torch.from_numpy of what Predictor.preprocess "
                f"returns; got {type(batch).__name__}"
            )
        if batch.ndim != 4 or batch.shape[3] != 3:
            raise InputError(
                f"{name} must be (n, height, width, 3), as Predictor.preprocess returns it; got "
                f"{tuple(batch.shape)}"
            )


def _float32(array: Any) -> Tensor:
    import torch

    return torch.from_numpy(np.asarray(array).astype(np.float32))
