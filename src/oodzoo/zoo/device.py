"""Which device a model runs on, and what it can hold."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from oodzoo.errors import InputError


def resolve_device(device: str, kind: str) -> str:
    """The device for a model of a source: "auto" is the fastest there is."""
    if device != "auto":
        require_device(device)
        return device
    if kind == "onnx":
        import onnxruntime

        has_cuda = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
        return "cuda" if has_cuda else "cpu"
    try:
        import torch
    except ImportError:  # the source itself says what to install
        return "cpu"
    if torch.cuda.is_available():
        return "cuda"
    if torch.backends.mps.is_available():
        return "mps"
    return "cpu"


def default_batch_size(device: str) -> int:
    """A batch that fills the device without waiting long for its images."""
    return 16 if device == "cpu" else 256


def available_memory() -> int:
    """Bytes of main memory that are free or can be freed."""
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
    """Refuse the name of a device that nobody knows."""
    name, _, number = device.partition(":")
    if device != "auto" and (
        name not in ("cpu", "cuda", "mps") or (number and not number.isdigit())
    ):
        raise InputError(f"device {device!r} is not known; give auto, cpu, cuda, cuda:1 or mps")
