"""Outputs of layers with a low-rank adapter, from the factors of the weight."""

from __future__ import annotations

from typing import Any


def linear(x: Any, weight: Any, bias: Any, A: Any, B: Any) -> Any:
    """W x + b + B (A x), sample by sample."""
    return x @ weight.T + bias + (x @ A.T) @ B.T


def convolution(x: Any, weight: Any, A: Any, B: Any) -> Any:
    """A convolution without padding, window by window, with the adapter beside the kernels."""
    height, width = weight.shape[2:]
    result = x.new_zeros(len(x), len(weight), x.shape[2] - height + 1, x.shape[3] - width + 1)
    for i in range(result.shape[2]):
        for j in range(result.shape[3]):
            window = x[:, :, i : i + height, j : j + width].flatten(1)
            kernels = weight.flatten(1)
            result[:, :, i, j] = window @ kernels.T + (window @ A.T) @ B.T
    return result
