"""The number of images that fit into memory in one forward and backward pass."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from oodzoo.core.errors import InputError
from oodzoo.core.text import file_size
from oodzoo.zoo.device import available_memory

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
        fits = _fits_on_cuda(step, device) if on_cuda else _fits_in_main_memory(step, wanted)
        size = wanted
        while not fits(size):
            size = max(1, size // 2)
        return size


def _fits_on_cuda(step: Step, device: Any) -> Callable[[int], bool]:
    torch: Any = import_module("torch")

    def fits(size: int) -> bool:
        torch.cuda.reset_peak_memory_stats(device)
        try:
            step(size)
            torch.cuda.synchronize(device)
            return True
        except torch.cuda.OutOfMemoryError:
            pass
        # after the exception, whose traceback keeps the tensors of the pass
        used = torch.cuda.max_memory_allocated(device)
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info(device)
        if size == 1:
            raise InputError(
                f"training does not fit on {device} even with one image at a time: it needs more "
                f"than {file_size(used)}, {file_size(free)} of {file_size(total)} are free; use a "
                "smaller model, adapters of low rank, or another device"
            )
        return False

    return fits


def _fits_in_main_memory(step: Step, wanted: int) -> Callable[[int], bool]:
    one = _saved_bytes(step, 1)
    # Weights and what else does not depend on the number of images cancel out.
    each = _saved_bytes(step, 2) - one if wanted > 1 else one
    free = available_memory()

    def fits(size: int) -> bool:
        needed = one + (size - 1) * each
        if needed <= (1 - RESERVE) * free:
            return True
        if size == 1:
            raise InputError(
                f"training does not fit into main memory even with one image at a time: it needs "
                f"about {file_size(int(needed / (1 - RESERVE)))}, {file_size(free)} are free; use "
                "a smaller model, adapters of low rank, or a GPU"
            )
        return False

    return fits


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
