"""A network with a linear head on a device: weights, low-rank adapters [1]_, loss and memory.

References
----------
.. [1] Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import cache
from importlib import import_module
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodzoo.core.backend import available_memory
from oodzoo.core.errors import InputError
from oodzoo.core.packages import optional_package
from oodzoo.core.text import file_size
from oodzoo.linear.heads.linear import LinearHead
from oodzoo.tasks import CLASSIFICATION, Task
from oodzoo.zoo.model import Module, Trainable
from oodzoo.zoo.torch_model import torch_device

Tensor = Any  # torch.Tensor; torch is imported when a network is
Weights = dict[str, Tensor]
"""Weights by name: those of the features are `features.NAME`, those of the head `head.NAME`."""

_LOWEST = -1e9
"""Bias of a class without training images; infinite ones cannot be averaged."""


class HeadedNetwork:
    """A trainable network and a linear head.

    All layers behave as in inference, until :meth:`train` is called.

    Attributes
    ----------
    parts : torch.nn.ModuleDict
        With the modules `features`, `dropout` and `head`.
    device : torch.device
    """

    def __init__(self, trainable: Trainable, n_outputs: int, device: str) -> None:
        torch = import_torch()
        self.trainable = trainable
        self.device = torch_device(device)
        head = torch.nn.Linear(trainable.feature_dim, n_outputs)
        dropout = torch.nn.Dropout(0.0)
        self.parts = torch.nn.ModuleDict(
            {"features": trainable.module, "dropout": dropout, "head": head}
        )
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
        is_mixed = self.precision != torch.float32
        with torch.autocast(self.device.type, enabled=False) if is_mixed else nullcontext():
            return self.parts["head"](self.parts["dropout"](features.float()))

    def log_probabilities(self, batch: Tensor) -> Tensor:
        """Log-probabilities (n, C) of classes, -inf of those without training images."""
        unseen = self.parts["head"].bias < _LOWEST / 2
        return self.outputs(batch).log_softmax(1).masked_fill(unseen, -np.inf)

    def train(self) -> None:
        """Let layers behave as in training; batch norms stay as in inference, as in DomainBed."""
        import torch

        self.parts.train()
        for layer in self.parts.modules():
            if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm):
                layer.eval()

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
        return attrgetter(name)(self.parts)

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Set weights."""
        import torch

        parameters = dict(self.parts.named_parameters())
        with torch.no_grad():
            for name, value in weights.items():
                parameters[name].copy_(value)

    def random_head(self, seed: int) -> Weights:
        """Weights of a new head."""
        import torch

        head = self.parts["head"]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            fresh = torch.nn.Linear(head.in_features, head.out_features)
        return {f"head.{name}": each for name, each in fresh.named_parameters()}

    def head(self, task: Task = CLASSIFICATION) -> LinearHead:
        """The head as it is now."""
        weight, bias = (
            each.detach().double().cpu().numpy()
            for each in (self.parts["head"].weight, self.parts["head"].bias)
        )
        if task.one_class:
            bias[bias < _LOWEST / 2] = -np.inf
        return LinearHead(weight, bias, C=1.0, task=task)


def head_weights(head: LinearHead) -> Weights:
    """The weights of a fitted head."""
    import torch

    bias = np.where(np.isneginf(head.bias), _LOWEST, head.bias)
    return {
        "head.weight": torch.from_numpy(head.weights.astype(np.float32)),
        "head.bias": torch.from_numpy(bias.astype(np.float32)),
    }


def loss(task: Task, outputs: Tensor, labels: Tensor, scale: Tensor | None = None) -> Tensor:
    """Mean loss: cross entropy, that of each label, or the squared error relative to the scale."""
    from torch.nn import functional

    if scale is not None:
        outputs, labels = outputs / scale, labels / scale
    return getattr(functional, task.loss)(outputs, labels)


def import_torch() -> Any:
    """Import PyTorch; an InputError names the extra if it is missing."""
    return optional_package("torch", extra="tune", purpose="fine-tuning")


# --- adapters -------------------------------------------------------------------------------------


def add_adapters(module: Module, rank: int, *, seed: int) -> None:
    """Add an adapter to every matrix and two-dimensional convolution, and freeze everything else.

    A weight W becomes W + B A [1]_, where B has `rank` columns and A as many rows.
    The kernels of a convolution are flattened to the rows of W. B is zero at the start, so the
    outputs stay the same; A is random. A weight with fewer than `rank` rows or columns gets an
    adapter of that lower rank. Only A and B require gradients afterwards.

    Matrices are the weights of linear layers, and also those of attention layers and of ONNX's
    MatMul, which are no linear layers in PyTorch.

    Parameters
    ----------
    module : torch.nn.Module
        Changed in place.
    rank : int
    seed : int
        Random seed of A.
    """
    torch: Any = import_module("torch")
    parametrize: Any = import_module("torch.nn.utils.parametrize")
    found = [
        (layer, name, weight)
        for layer in module.modules()
        for name, weight in layer.named_parameters(recurse=False)
        if weight.ndim == 2 or (name == "weight" and isinstance(layer, torch.nn.Conv2d))
    ]
    if not found:
        raise InputError(
            "the model has no matrix or convolution that an adapter could be added to; "
            "train all its weights instead"
        )
    module.requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    for layer, name, weight in found:
        adapter = _adapter_class()(weight, rank, generator)
        parametrize.register_parametrization(layer, name, adapter)


def merge_adapters(module: Module) -> None:
    """Replace each weight with an adapter by its current value; all weights require gradients."""
    parametrize: Any = import_module("torch.nn.utils.parametrize")
    for layer in list(module.modules()):
        if parametrize.is_parametrized(layer):
            for name in list(layer.parametrizations):
                parametrize.remove_parametrizations(layer, name, leave_parametrized=True)
    module.requires_grad_(True)


@cache
def _adapter_class() -> Any:
    torch: Any = import_module("torch")

    class Adapter(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, weight: Any, rank: int, generator: Any) -> None:
            super().__init__()
            rows, columns = weight.flatten(1).shape
            rank = min(rank, rows, columns)
            # uniform as the weights of a linear layer of PyTorch, as in the authors' code
            bound = 1 / math.sqrt(columns)
            A = torch.empty(rank, columns).uniform_(-bound, bound, generator=generator)
            self.A = torch.nn.Parameter(A.to(weight))
            self.B = torch.nn.Parameter(weight.new_zeros(rows, rank))

        def forward(self, original: Any) -> Any:
            return original + (self.B @ self.A).view(original.shape)

    return Adapter


# --- memory ---------------------------------------------------------------------------------------

RESERVE = 0.5
"""Share of the free main memory for what a pass needs beside the tensors saved for its backward
part: their gradients, and buffers of the operators."""

Step = Callable[[int], None]
"""Runs a forward and a backward pass for this number of images."""


def find_batch_size(step: Step, wanted: int, device: Any) -> int:
    """Return the largest number of images per pass that fits: `wanted`, its half, its quarter, ….

    On CUDA, passes are tried. Elsewhere, the bytes that autograd saves for each image are measured
    and compared with the free main memory, since a process that takes more may be killed.

    Parameters
    ----------
    step : callable
        Runs a forward and a backward pass for a number of images.
    wanted : int
    device : str or torch.device
        The device on which `step` computes.

    Raises
    ------
    InputError
        If not even one image fits.
    """
    torch: Any = import_module("torch")
    device = torch.device(device)
    on_cuda = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_cuda else []):
        if not on_cuda:
            one = _saved_bytes(step, 1)
            # Weights and what else does not depend on the number of images cancel out.
            each = _saved_bytes(step, 2) - one if wanted > 1 else one
        size = wanted
        while True:
            if on_cuda:
                lack = _lack_on_cuda(step, size, device)
            else:
                lack = _lack_in_main_memory(one + (size - 1) * each)
            if lack is None:
                return size
            if size == 1:
                raise InputError(f"training does not fit {lack}")
            size //= 2


def _lack_on_cuda(step: Step, size: int, device: Any) -> str | None:
    """Try a pass; why it does not fit, or None if it does."""
    torch: Any = import_module("torch")
    torch.cuda.reset_peak_memory_stats(device)
    try:
        step(size)
        torch.cuda.synchronize(device)
        return None
    except torch.cuda.OutOfMemoryError:
        pass
    # after the exception, whose traceback keeps the tensors of the pass
    used = torch.cuda.max_memory_allocated(device)
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    return (
        f"on {device} even with one image at a time: it needs more than {file_size(used)}, "
        f"{file_size(free)} of {file_size(total)} are free; use a smaller model, adapters of low "
        "rank, or another device"
    )


def _lack_in_main_memory(needed: int) -> str | None:
    """Why a pass does not fit that saves so many bytes, or None if it does."""
    free = available_memory()
    if needed <= (1 - RESERVE) * free:
        return None
    return (
        "into main memory even with one image at a time: it needs about "
        f"{file_size(int(needed / (1 - RESERVE)))}, {file_size(free)} are free; use a smaller "
        "model, adapters of low rank, or a GPU"
    )


def _saved_bytes(step: Step, size: int) -> int:
    """Bytes of all tensors that autograd saves in a pass."""
    graph: Any = import_module("torch.autograd.graph")
    storages: dict[int, int] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        step(size)
    return sum(storages.values())
