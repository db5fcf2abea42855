from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from oodzoo.errors import InputError
from oodzoo.zoo.device import (
    available_memory,
    default_batch_size,
    require_device,
    require_present,
    resolve_device,
)


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda", "cuda:1", "mps"])
def test_known_devices(device: str) -> None:
    require_device(device)
    if device != "auto":
        assert resolve_device(device, "timm") == device


@pytest.mark.parametrize("device", ["", "gpu", "cuda:x", "cuda:-1", "CPU", "auto:1"])
def test_unknown_devices(device: str) -> None:
    with pytest.raises(InputError, match=f"unknown device {device!r}; expected one of auto, cpu"):
        require_device(device)
    with pytest.raises(InputError, match="unknown device"):
        resolve_device(device, "onnx")


@pytest.mark.parametrize(
    ("cuda", "mps", "expected"),
    [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")],
)
def test_auto_is_the_fastest_device_of_torch(
    monkeypatch: pytest.MonkeyPatch, cuda: bool, mps: bool, expected: str
) -> None:
    def available(answer: bool) -> Any:
        return SimpleNamespace(is_available=lambda: answer)

    torch = SimpleNamespace(cuda=available(cuda), backends=SimpleNamespace(mps=available(mps)))
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert resolve_device("auto", "timm") == expected


def test_auto_without_torch_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert resolve_device("auto", "hf") == "cpu"


@pytest.mark.parametrize(
    ("providers", "expected"),
    [
        (["CUDAExecutionProvider", "CPUExecutionProvider"], "cuda"),
        (["CPUExecutionProvider"], "cpu"),
    ],
)
def test_auto_for_onnx_follows_onnxruntime(
    monkeypatch: pytest.MonkeyPatch, providers: list[str], expected: str
) -> None:
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: providers)
    assert resolve_device("auto", "onnx") == expected


def test_batches_are_larger_on_an_accelerator() -> None:
    assert default_batch_size("cpu") < default_batch_size("cuda:1") == default_batch_size("mps")


def test_available_memory_is_plausible() -> None:
    assert 1 << 20 < available_memory() < 1 << 50


@pytest.mark.parametrize(
    ("gpus", "providers", "missing"),
    [
        (2, [], ["cuda:2"]),
        (2, ["CUDAExecutionProvider"], ["cuda:2"]),
        (0, [], ["cuda", "cuda:0", "cuda:2"]),
        (0, ["CUDAExecutionProvider"], []),  # it does not count its devices
        (None, ["CUDAExecutionProvider"], []),
        (None, [], ["cuda", "cuda:0", "cuda:2"]),
    ],
)
def test_devices_that_are_not_there(
    monkeypatch: pytest.MonkeyPatch, gpus: int | None, providers: list[str], missing: list[str]
) -> None:
    torch = SimpleNamespace(cuda=SimpleNamespace(device_count=lambda: gpus))
    monkeypatch.setitem(sys.modules, "torch", None if gpus is None else torch)
    onnxruntime = SimpleNamespace(get_available_providers=lambda: providers)
    monkeypatch.setitem(sys.modules, "onnxruntime", onnxruntime)
    for device in ("auto", "cpu", "mps", "cuda", "cuda:0", "cuda:2"):
        if device not in missing:
            require_present(device)
            continue
        with pytest.raises(InputError, match=f"device '{device}' is not available: found "):
            require_present(device)
