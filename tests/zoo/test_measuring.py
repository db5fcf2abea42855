from __future__ import annotations

import json
import logging
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from oodzoo.zoo import torch_source as measuring
from oodzoo.zoo.spec import ModelSpec
from oodzoo.zoo.torch_source import measure_module, on_meta_device, remembered
from oodzoo.zoo.weights import Measured

SPEC = ModelSpec("net", "timm/net")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OODZOO_CACHE", str(tmp_path))
    return tmp_path / "sizes" / f"numpy-{version('numpy')}.jsonl"


def forget() -> None:
    """As another process, which has not read any file."""
    measuring._read.cache_clear()


def never() -> Measured:
    raise AssertionError("it is known already")


def test_a_size_is_computed_once(file: Path) -> None:
    assert remembered("numpy", SPEC, "a", lambda: Measured(3, 12)) == Measured(3, 12)
    assert remembered("numpy", SPEC, "b", lambda: Measured(4)) == Measured(4)
    assert remembered("numpy", SPEC, "a", never) == Measured(3, 12)
    assert [json.loads(line) for line in file.read_text().splitlines()] == [
        ["a", 3, 12],
        ["b", 4, None],
    ]
    forget()
    assert remembered("numpy", SPEC, "a", never) == Measured(3, 12)
    assert remembered("numpy", SPEC, "b", never) == Measured(4)


def test_models_that_may_change_are_not_remembered(file: Path) -> None:
    for source in ("hf/./folder", "timm/local-dir:x", "timm/hf-hub:me/x"):
        remembered("numpy", ModelSpec("net", source), "a", lambda: Measured(3))
    assert not file.exists()


def test_lines_that_are_not_complete_are_ignored(file: Path) -> None:
    file.parent.mkdir()
    file.write_text('["a", 3, 12]\n["b", "x", 4]\n{}\nnull\n["c", 5, 2')
    assert remembered("numpy", SPEC, "a", never) == Measured(3, 12)
    assert remembered("numpy", SPEC, "b", lambda: Measured(7)) == Measured(7)
    forget()
    assert remembered("numpy", SPEC, "c", lambda: Measured(8)) == Measured(8)


def test_a_folder_that_cannot_be_written(file: Path) -> None:
    file.parent.touch()
    assert remembered("numpy", SPEC, "a", lambda: Measured(3)) == Measured(3)


def test_meta_device(torch: Any, caplog: pytest.LogCaptureFixture) -> None:
    with on_meta_device(SPEC):
        module = torch.nn.Sequential(torch.nn.Linear(1_000_000, 1_000_000), torch.nn.BatchNorm1d(5))
        logging.warning("no weights")
        warnings.warn("no weights", stacklevel=1)
    logging.warning("heard again")
    assert caplog.messages == ["heard again"]
    n = 10**12 + 10**6 + 10
    # BatchNorm also has two float32 buffers and one int64
    assert measure_module(module) == Measured(n, 4 * (n + 10) + 8)
