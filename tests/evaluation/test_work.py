"""Test domains that other processes judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.evaluation.data import stored, zoo

import oodzoo
from oodzoo.core.errors import InputError
from oodzoo.events import Listener


class _Messages(Listener):
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.steps: list[tuple[int, int]] = []

    def progress(self, stage: str, done: int, total: int, **facts: Any) -> None:
        self.lines.append(facts.get("message", ""))
        self.steps.append((done, total))


def test_an_evaluation_in_processes_is_that_of_one(tmp_path: Path) -> None:
    data = zoo(n=21, n_domains=4)
    options: dict[str, Any] = {"top_k": (1, 2), "with_target": True, "baselines": ["logme"]}
    here = oodzoo.evaluate(stored(tmp_path / "here", *data), **options)
    heard = _Messages()
    source = stored(tmp_path / "elsewhere", *data)
    there = oodzoo.evaluate(source, **options, device="cpu,cpu", listener=heard)
    assert there == here
    # This process judged nothing itself, and progress never went back.
    assert not any(line.startswith("test domain") for line in heard.lines)
    assert any("on 2 workers (processes)" in line for line in heard.lines)
    done = [step[0] for step in heard.steps]
    assert done == sorted(done)
    assert done[-1] == heard.steps[-1][1]


def test_arrays_in_memory_stay_in_this_process() -> None:
    with pytest.raises(InputError, match="needs a feature store, not arrays in memory"):
        oodzoo.evaluate(*zoo(n=9), device="cpu,cpu")


def test_a_pool_is_fitted_with_heads_of_other_processes(tmp_path: Path) -> None:
    data = zoo(n=12, n_domains=2)
    source = stored(tmp_path, *data)
    with pytest.raises(InputError, match="unknown engine 'dask'; expected one of local, ray"):
        oodzoo.fit(source.store, choose="pool", engine="dask")
