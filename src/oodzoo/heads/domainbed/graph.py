"""A training step as a CUDA graph: some forty small kernels, started as one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Protocol

from oodzoo.backend import Array


class Steps(Protocol):
    """What a graph is made of: arrays that stay where they are, and arithmetic on them."""

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
    """A function that does what ``block.advance`` does, by replaying a graph.

    Where the device refuses to record one, it is ``block.advance`` itself.
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
        aside = cuda.Stream()
        aside.wait_stream(cuda.current_stream())
        with cuda.stream(aside):  # libraries allocate on their first calls, which no graph may do
            for _ in range(3):
                block.update(rows, size, floor, bits)
        cuda.current_stream().wait_stream(aside)
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
            block.noise.drawn()  # into the array that the graph reads
        graph.replay()

    return advance
