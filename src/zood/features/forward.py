"""Running a network over the images of a shard, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from zood.errors import InputError
from zood.features.background import abandon, in_background
from zood.zoo.network import Network, Outputs, Pixels


def run_network(network: Network, pixels: Pixels, batch_size: int) -> Outputs:
    """Features and logits of all images.

    The next batch is prepared in the background and launched before the last one is collected, so
    that neither a GPU nor the cores wait.
    """
    parts: list[Outputs] = []
    launched: Any = None
    for prepared in _prepared(network, pixels, batch_size):
        following = network.launch(prepared)
        if launched is not None:
            parts.append(network.collect(launched))
        launched = following
    if launched is not None:
        parts.append(network.collect(launched))
    outputs = _joined(parts, network)
    _require_shapes(outputs, network, len(pixels))
    return outputs


def run_network_within_memory(
    network: Network, pixels: Pixels, batch_size: int
) -> tuple[Outputs, int]:
    """As :func:`run_network`, with half the batch as often as the device runs out of memory."""
    while True:
        try:
            return run_network(network, pixels, batch_size), batch_size
        except Exception as error:
            if type(error).__name__ != "OutOfMemoryError" or batch_size == 1:
                raise
        batch_size //= 2


def _require_shapes(outputs: Outputs, network: Network, n: int) -> None:
    """Refuse outputs that are not one row of the promised width for each image."""
    info = network.info
    for name, values, width in (
        ("features", outputs.features, info.feature_dim),
        ("logits", outputs.logits, info.n_logits),
    ):
        if values is not None and values.shape != (n, width):
            raise InputError(
                f"network {info.name!r} gives {name} of shape {values.shape} for {n} images; "
                f"expected {(n, width)}"
            )


def require_finite(outputs: Outputs, network: Network, paths: Sequence[str]) -> None:
    """Refuse NaN and infinite values, naming the first image that gave them."""
    for name, values in (("features", outputs.features), ("logits", outputs.logits)):
        if values is not None and not np.isfinite(values).all():
            row = int(np.flatnonzero(~np.isfinite(values).all(axis=1))[0])
            raise InputError(
                f"network {network.info.name!r} gives NaN or infinite {name} for {paths[row]!r}"
            )


def _prepared(network: Network, pixels: Pixels, batch_size: int) -> Iterator[Any]:
    batches = [(pixels[at : at + batch_size],) for at in range(0, len(pixels), batch_size)]
    results = in_background(network.prepare, batches, n_jobs=2, ahead=3)
    try:
        yield from results
    finally:
        abandon(results)


def _joined(parts: list[Outputs], network: Network) -> Outputs:
    info = network.info
    if not parts:
        logits = None if info.n_logits is None else np.empty((0, info.n_logits), np.float32)
        return Outputs(np.empty((0, info.feature_dim), np.float32), logits)
    features = np.concatenate([part.features for part in parts])
    if info.n_logits is None:
        return Outputs(features, None)
    return Outputs(features, np.concatenate([p.logits for p in parts if p.logits is not None]))
