"""Stages that are reused, computed again, or were never reached."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from oodzoo.errors import InputError
from oodzoo.events import Observer
from oodzoo.pipeline.recorder import Recorder
from oodzoo.record import NAME, PredictorSummary, read_run


def counted(calls: list[str], name: str) -> Callable[[], PredictorSummary]:
    def compute() -> PredictorSummary:
        calls.append(name)
        return PredictorSummary("model", ("net",), "digest")

    return compute


def run(folder: Path, calls: list[str], inputs: Sequence[object]) -> list[bool]:
    recorder = Recorder(folder, "oodzoo run", {"seed": 3})
    for name, given in zip(("predictor", "selection"), inputs, strict=False):
        recorder.stage(name, given, counted(calls, name))
    return [stage.reused for stage in recorder.finish().stages]


@pytest.fixture(autouse=True)
def plain_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two stages with the same simple type, so that no data are needed."""
    from oodzoo import record

    monkeypatch.setitem(record.PARTS, "selection", record.PARTS["predictor"])


def test_a_stage_with_the_same_inputs_is_reused(tmp_path: Path) -> None:
    calls: list[str] = []
    assert run(tmp_path, calls, [1, {"a": 2}]) == [False, False]
    assert run(tmp_path, calls, [1, {"a": 2}]) == [True, True]
    assert calls == ["predictor", "selection"]
    assert run(tmp_path, calls, [1, {"a": 3}]) == [True, False]
    found = read_run(tmp_path)
    assert found.predictor == PredictorSummary("model", ("net",), "digest")
    assert [stage.reused for stage in found.stages] == [True, False]
    assert all(stage.seconds >= 0 for stage in found.stages)
    assert found.settings == {"seed": 3}
    assert found.versions["oodzoo"]


def test_a_run_that_was_stopped_is_resumed(tmp_path: Path) -> None:
    calls: list[str] = []
    recorder = Recorder(tmp_path, "oodzoo run", {})
    recorder.stage("predictor", 1, counted(calls, "predictor"))

    def fails() -> PredictorSummary:
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError):
        recorder.stage("selection", 2, fails)
    assert run(tmp_path, calls, [1, 2]) == [True, False]
    assert calls == ["predictor", "selection"]


def test_later_stages_stay_when_an_early_one_changes_and_the_run_stops(tmp_path: Path) -> None:
    calls: list[str] = []
    run(tmp_path, calls, [1, 2])
    recorder = Recorder(tmp_path, "oodzoo run", {})
    recorder.stage("predictor", "other", counted(calls, "predictor"))
    assert run(tmp_path, calls, ["other", 2]) == [True, True]


def test_a_finished_run_drops_stages_of_earlier_runs(tmp_path: Path) -> None:
    calls: list[str] = []
    run(tmp_path, calls, [1, 2])
    run(tmp_path, calls, [1])
    document = json.loads((tmp_path / NAME).read_text())
    assert [stage["name"] for stage in document["stages"]] == ["predictor"]
    assert "selection" not in document


def test_a_stage_whose_files_are_gone_is_computed_again(tmp_path: Path) -> None:
    calls: list[str] = []
    run(tmp_path, calls, [1, 2])
    recorder = Recorder(tmp_path, "oodzoo run", {})
    recorder.stage("predictor", 1, counted(calls, "predictor"), valid=lambda result: False)
    assert calls == ["predictor", "selection", "predictor"]
    assert not recorder.finish().stages[0].reused


def test_a_record_of_another_schema_is_started_anew(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text('{"schema": 1, "stages": [], "seed": 0}')
    assert run(tmp_path, [], [1, 2]) == [False, False]
    assert read_run(tmp_path).command == "oodzoo run"


@pytest.mark.parametrize("content", ["{", "[]"])
def test_a_damaged_record_is_rejected(tmp_path: Path, content: str) -> None:
    (tmp_path / NAME).write_text(content)
    with pytest.raises(InputError, match=r"run\.json"):
        Recorder(tmp_path, "oodzoo run", {})


def test_an_observer_follows_the_stages(tmp_path: Path) -> None:
    events: list[object] = []

    class Listener(Observer):
        def begin(self, stage: str) -> None:
            events.append(stage)

        def end(self, stage: str, result: object, *, reused: bool) -> None:
            events.append((stage, result, reused))

    recorder = Recorder(tmp_path, "oodzoo run", {}, Listener())
    result = recorder.stage("predictor", 1, counted([], "predictor"))
    assert events == ["predictor", ("predictor", result, False)]
