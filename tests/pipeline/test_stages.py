"""Stages that are reused, computed again, or were never reached, and their events."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.events.heard import Heard

from oodzoo.events import Events, Listener, Stage
from oodzoo.pipeline.stages import Recorder, Stages
from oodzoo.report.record import NAME, PredictorSummary, read_run


def counted(calls: list[str], name: str) -> Callable[[Listener], PredictorSummary]:
    def compute(listener: Listener) -> PredictorSummary:
        calls.append(name)
        with Stage(listener, name, models=["net"]) as stage:
            stage.progress(1, 2)
            with Stage(stage.events, "ranking") as inner:
                inner.progress(1, 1)
                inner.finish(None, {"net/score": 0.5})
            made = PredictorSummary("model", ("net",), "digest")
            stage.finish(made, {"accuracy": 90.0})
        return made

    return compute


def failing(listener: Listener) -> PredictorSummary:
    with Stage(listener, "selection"):
        raise RuntimeError("stopped\nhere")


def started(folder: Path, *listeners: Listener) -> tuple[Recorder, Stages]:
    recorder = Recorder(folder, "oodzoo run", {"seed": 3})
    return recorder, Stages(recorder.earlier, Events([recorder, *listeners]))


def run(
    folder: Path, calls: list[str], inputs: Sequence[object], *listeners: Listener
) -> list[bool]:
    recorder, stages = started(folder, *listeners)
    for name, given in zip(("predictor", "selection"), inputs, strict=False):
        stages.stage(name, given, counted(calls, name))
    return [stage.reused for stage in recorder.finish().stages]


@pytest.fixture(autouse=True)
def plain_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two stages with the same simple type, so that no data are needed."""
    from oodzoo.report import record

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


def test_a_run_that_was_stopped_is_resumed(tmp_path: Path) -> None:
    calls: list[str] = []
    _, stages = started(tmp_path)
    stages.stage("predictor", 1, counted(calls, "predictor"))
    with pytest.raises(RuntimeError):
        stages.stage("selection", 2, failing)
    assert run(tmp_path, calls, [1, 2]) == [True, False]
    assert calls == ["predictor", "selection"]


def test_later_stages_stay_when_an_early_one_changes_and_the_run_stops(tmp_path: Path) -> None:
    calls: list[str] = []
    run(tmp_path, calls, [1, 2])
    _, stages = started(tmp_path)
    stages.stage("predictor", "other", counted(calls, "predictor"))
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
    recorder, stages = started(tmp_path)
    stages.stage("predictor", 1, counted(calls, "predictor"), valid=lambda result: False)
    assert calls == ["predictor", "selection", "predictor"]
    assert not recorder.finish().stages[0].reused


def test_a_stage_that_is_computed_emits_its_own_events_but_one_end(tmp_path: Path) -> None:
    heard = Heard()
    _, stages = started(tmp_path, heard)
    result = stages.stage("predictor", 1, counted([], "predictor"), artifact=tmp_path / "model")
    assert {stage for _, stage, _ in heard.events} == {"predictor"}
    kinds = [kind for kind, _, _ in heard.events]
    assert kinds == ["start", "progress", "metric", "artifact", "end"]
    assert heard.of("start") == [("predictor", {"models": ["net"]})]
    [(_, end)] = heard.of("end")
    assert (end["status"], end["result"]) == ("done", result)
    assert end["inputs"] == read_run(tmp_path).stages[0].inputs


def test_a_reused_stage_says_so_with_the_seconds_of_the_first_time(tmp_path: Path) -> None:
    run(tmp_path, [], [1])
    first = read_run(tmp_path).stages[0].seconds
    heard = Heard()
    run(tmp_path, [], [1], heard)
    assert heard.outline() == [("predictor", "start"), ("predictor", "reused")]
    [(_, end)] = heard.of("end")
    assert end["seconds"] == read_run(tmp_path).stages[0].seconds == first > 0
    assert end["result"] == PredictorSummary("model", ("net",), "digest")


def test_a_stage_that_fails_says_why_and_is_not_recorded(tmp_path: Path) -> None:
    heard = Heard()
    _, stages = started(tmp_path, heard)
    with pytest.raises(RuntimeError):
        stages.stage("selection", 2, failing)
    assert heard.outline() == [("selection", "start"), ("selection", "failed")]
    assert heard.of("end")[0][1]["error"] == "stopped here"
    assert not (tmp_path / NAME).exists()


def test_a_stage_that_fails_before_it_starts_does_not_end(tmp_path: Path) -> None:
    heard = Heard()
    _, stages = started(tmp_path, heard)

    def refuse(listener: Listener) -> Any:
        raise ValueError("no images")

    with pytest.raises(ValueError, match="no images"):
        stages.stage("selection", 2, refuse)
    assert heard.events == []


def test_a_skipped_stage_ends_with_the_reason(tmp_path: Path) -> None:
    heard = Heard()
    recorder, stages = started(tmp_path, heard)
    stages.skip("testbed", "two models")
    assert heard.outline() == [("testbed", "skipped")]
    assert heard.of("end")[0][1]["reason"] == "two models"
    assert recorder.finish().stages == ()
