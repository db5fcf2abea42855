"""Options and outcome of an extraction."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oodzoo.errors import InputError
from oodzoo.features.config import Extraction, ExtractionConfig


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"dtype": "float64"}, "unknown dtype 'float64'; expected one of float32, float16"),
        ({"precision": "int8"}, "unknown precision 'int8'; expected one of "),
        ({"on_error": "ignore"}, "unknown on_error 'ignore'; expected one of skip, fail"),
        ({"batch_size": 0}, "batch_size must be an integer of at least 1, got 0"),
        ({"batch_size": "8"}, "batch_size must be an integer of at least 1, got '8'"),
        ({"device": "gpu"}, "unknown device 'gpu'"),
        ({"device": "cuda:0,tpu"}, "unknown device 'tpu'"),
        ({"device": "cpu,"}, "unknown device ''"),
    ],
)
def test_unknown_options(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        ExtractionConfig(**options)


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ExtractionConfig("cpu, cpu").device == "cpu,cpu"
    torch = SimpleNamespace(cuda=SimpleNamespace(device_count=lambda: 2))
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert ExtractionConfig("all").device == "cuda:0,cuda:1"
    with pytest.raises(InputError, match="device 'cuda:2' is not available: found 2 CUDA devices"):
        ExtractionConfig("cuda:0,cuda:2")


def test_one_gpu_is_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model can be loaded on it: "all" is no device."""
    torch = SimpleNamespace(cuda=SimpleNamespace(device_count=lambda: 1))
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert ExtractionConfig("all").device == "cuda:0"


def test_the_bottleneck_is_the_longer_step() -> None:
    assert Extraction(Path("s"), waiting=2.0, running=1.0).bottleneck == "decoding"
    assert Extraction(Path("s"), waiting=1.0, running=2.0).bottleneck == "inference"


def test_warnings_name_the_models_that_are_left_out() -> None:
    assert Extraction(Path("s")).warnings() == []
    failed, outdated = Extraction(
        Path("s"), failed={"a": "no such file"}, outdated=["b", "c"]
    ).warnings()
    assert failed == "model 'a' is left out: no such file"
    assert outdated.startswith("b, c: left out")
