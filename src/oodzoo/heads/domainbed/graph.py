"""A training step as a CUDA graph, which launches its forty small kernels at once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Protocol

from oodzoo.backend import Array


class Steps(Protocol):
    """Training state in fixed arrays, and the update of a step."""

    parameters: Array
    first: Array
    second: Array
    sizes: Array
    floors: Array
    noise: Any

    @property
    def rows(self) -> int: ...

    def advance(self, rows: Array, step: int) -> None: ...

    def update(self, rows: Array, size: Array, floor: Array, noise: Array | None) -> None: ...


def captured(block: Steps) -> Callable[[Array, int], None]:
    """Return a replacement for ``block.advance`` that replays a CUDA graph.

    If the device cannot record a graph, return ``block.advance`` itself.
    """
    import torch

    cuda: Any = torch.cuda
    state = (block.parameters, block.first, block.second)
    saved = [array.clone() for array in state]
    rows = torch.zeros(block.rows, dtype=torch.int64, device=block.parameters.device)
    size, floor = block.sizes[0].clone(), block.floors[0].clone()
    bits = None if block.noise is None else block.noise.drawn()
    graph: Any = None
    with cuda.device(rows.device), contextlib.suppress(RuntimeError):
        warm_up = cuda.Stream()
        warm_up.wait_stream(cuda.current_stream())
        with cuda.stream(warm_up):  # warm up: first calls allocate, which a graph must not do
            for _ in range(3):
                block.update(rows, size, floor, bits)
        cuda.current_stream().wait_stream(warm_up)
        recorded = cuda.CUDAGraph()
        with cuda.graph(recorded):
            block.update(rows, size, floor, bits)
        graph = recorded
    for array, before in zip(state, saved, strict=True):
        array.copy_(before)
    if graph is None:
        return block.advance

    def advance(batch: Array, step: int) -> None:
        rows.copy_(batch)
        size.copy_(block.sizes[step])
        floor.copy_(block.floors[step])
        if block.noise is not None:
            block.noise.drawn()  # refills the array that the graph reads
        graph.replay()

    return advance
