"""Low-rank adapters: training of few weights in place of all.

References
----------
.. [1] Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022.
"""

from __future__ import annotations

import math
from functools import cache
from importlib import import_module
from typing import Any

from oodzoo.errors import InputError

Module = Any  # torch.nn.Module; torch is imported only when adapters are added
Parameter = Any  # torch.nn.Parameter


def add_adapters(
    module: Module, rank: int, alpha: float | None = None, *, seed: int = 0
) -> list[Parameter]:
    """Add an adapter to every matrix and two-dimensional convolution, and freeze everything else.

    A weight W becomes W + (alpha / rank) B A [1]_, where B has `rank` columns and A as many rows.
    The kernels of a convolution are flattened to the rows of W. B is zero at the start, so the
    outputs stay the same; A is random. A weight with fewer than `rank` rows or columns gets an
    adapter of that lower rank.

    Matrices are the weights of linear layers, and also those of attention layers and of ONNX's
    MatMul, which are no linear layers in PyTorch.

    Parameters
    ----------
    module : torch.nn.Module
        Changed in place.
    rank : int
    alpha : float, optional
        Equal to `rank` by default.
    seed : int
        Random seed of A.

    Returns
    -------
    list of torch.nn.Parameter
        A and B of each weight, the only parameters that require gradients afterwards.

    References
    ----------
    .. [1] Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022.
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
    scale = (rank if alpha is None else alpha) / rank
    adapters = []
    for layer, name, weight in found:
        adapter = _adapter_class()(weight, rank, scale, generator)
        parametrize.register_parametrization(layer, name, adapter)
        adapters += [adapter.A, adapter.B]
    return adapters


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
        def __init__(self, weight: Any, rank: int, scale: float, generator: Any) -> None:
            super().__init__()
            rows, columns = weight.flatten(1).shape
            rank = min(rank, rows, columns)
            # uniform as the weights of a linear layer of PyTorch, as in the authors' code
            bound = 1 / math.sqrt(columns)
            A = torch.empty(rank, columns).uniform_(-bound, bound, generator=generator)
            self.A = torch.nn.Parameter(A.to(weight))
            self.B = torch.nn.Parameter(weight.new_zeros(rows, rank))
            self.scale = scale

        def forward(self, original: Any) -> Any:
            return original + self.scale * (self.B @ self.A).view(original.shape)

    return Adapter
