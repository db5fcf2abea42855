"""Parts of the work, devices, and the engine for them."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oodzoo.core.errors import InputError
from oodzoo.core.options import Compute, parse_devices
from oodzoo.extraction.engines import Processes, WorkPart, open_engine, parse_part


@given(st.integers(1, 10**9 - 1), st.data())
def test_parts_are_read_as_they_are_written(of: int, data: st.DataObject) -> None:
    part = WorkPart(data.draw(st.integers(1, of)), of)
    assert parse_part(str(part)) == part


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((text, "must be I/N, such as 3/8, got ") for text in ("", "3", "/8", "-1/8", "1/8/8")),
        *((text, "must be I/N, such as 3/8, got ") for text in ("1.0/8", " 1/8", "1/8\n", "¹/8")),
        *((text, "does not exist: I/N counts from 1/8 to 8/8$") for text in ("9/8", "0/8")),
        ("1/0", "does not exist: I/N counts from 1/1 to 1/1$"),
    ],
)
def test_a_part_is_two_numbers(text: str, message: str) -> None:
    with pytest.raises(InputError, match=f"^the shard .*{message}"):
        parse_part(text)


def gpus(monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    torch = SimpleNamespace(cuda=SimpleNamespace(device_count=lambda: n))
    monkeypatch.setitem(sys.modules, "torch", torch)


def test_devices_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_devices("auto") == ["auto"]
    assert parse_devices("cuda:0, cuda:1,cpu") == ["cuda:0", "cuda:1", "cpu"]
    gpus(monkeypatch, 3)
    assert parse_devices("all") == ["cuda:0", "cuda:1", "cuda:2"]
    for torch in (SimpleNamespace(cuda=SimpleNamespace(device_count=lambda: 0)), None):
        monkeypatch.setitem(sys.modules, "torch", torch)
        with pytest.raises(InputError, match="PyTorch finds no GPU here; use cpu or auto"):
            parse_devices("all")


def test_one_device_is_this_process_and_several_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_engine(Compute("cpu")) as engine:
        assert engine is None
    with open_engine(Compute("cpu"), WorkPart(3, 8)) as engine:
        assert engine is None
    with open_engine(Compute("cpu,cuda:1")) as engine:
        assert isinstance(engine, Processes)
        assert engine.devices == ["cpu", "cuda:1"]
    gpus(monkeypatch, 1)
    with open_engine(Compute("all")) as engine:
        assert engine is None


@pytest.mark.parametrize(
    ("compute", "message"),
    [
        (
            Compute(engine="ray"),
            "shard 1/8 and the engine ray both spread the work; use one of them",
        ),
        (
            Compute("cpu,cpu"),
            "shard 1/8 and the devices cpu,cpu both spread the work; use one of them",
        ),
    ],
)
def test_choices_that_do_not_go_together(compute: Compute, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}$"), open_engine(compute, WorkPart(1, 8)):
        pass


def test_arrays_are_on_one_device() -> None:
    assert Compute(None).arrays is None
    assert Compute("cuda:1").arrays == "cuda:1"
    assert Compute("cuda:1,cuda:0").arrays == "cuda:1"
    assert Compute("cpu,cpu").arrays is None
    assert Compute("cuda", "ray").arrays is None
