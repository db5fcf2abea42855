"""Devices: choosing one, its batch size, and the main memory available."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from oodzoo.core.errors import InputError
from oodzoo.core.text import count


def resolve_device(device: str, kind: str) -> str:
    """Return the device for a model of a source; "auto" is the fastest one available."""
    if device != "auto":
        require_device(device)
        return device
    if kind == "onnx":
        import onnxruntime

        has_cuda = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
        return "cuda" if has_cuda else "cpu"
    try:
        import torch
    except ImportError:  # loading the model will report it
        return "cpu"
    if torch.cuda.is_available():
        return "cuda"
    if torch.backends.mps.is_available():
        return "mps"
    return "cpu"


def default_batch_size(device: str) -> int:
    """Return a batch size that fills the device without waiting long for images."""
    return 16 if device == "cpu" else 256


def available_memory() -> int:
    """Return the bytes of main memory that are free or can be reclaimed."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    if sys.platform == "win32":
        return 4 << 30
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def require_device(device: str) -> None:
    """Reject an unknown device name."""
    name, _, number = device.partition(":")
    if device != "auto" and (
        name not in ("cpu", "cuda", "mps") or (number and not number.isdigit())
    ):
        raise InputError(f"unknown device {device!r}; expected one of auto, cpu, cuda, cuda:1, mps")


def require_present(device: str) -> None:
    """Reject a CUDA device that neither PyTorch nor ONNX Runtime finds on this machine."""
    name, _, number = device.partition(":")
    if name != "cuda":
        return
    found = 0
    with suppress(ImportError):
        import torch

        found = torch.cuda.device_count()
    if int(number or 0) < found:
        return
    with suppress(ImportError):
        import onnxruntime

        # It does not count the devices; without PyTorch, loading a model will report it.
        if not found and "CUDAExecutionProvider" in onnxruntime.get_available_providers():
            return
    raise InputError(f"device {device!r} is not available: found {count(found, 'CUDA device')}")
