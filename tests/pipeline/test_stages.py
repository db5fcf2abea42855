"""The record of a run: stages that are reused, computed again or not reached; their events."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.events.heard import Heard

from oodzoo.core.errors import InputError
from oodzoo.events import Events, Listener, Stage
from oodzoo.pipeline.stages import Recorder, Stages
from oodzoo.report import record
from oodzoo.report.record import NAME, DataSummary, PredictorSummary, read_run

MADE = PredictorSummary("model", ("net",), "digest")


def counted(calls: list[str], name: str) -> Callable[[Listener], PredictorSummary]:
    def compute(listener: Listener) -> PredictorSummary:
        calls.append(name)
        with Stage(listener, name, models=["net"]) as stage:
            stage.progress(1, 2)
            with Stage(stage.events, "ranking") as inner:
                inner.progress(1, 1)
                inner.finish(None, {"net/score": 0.5})
            stage.finish(MADE, {"accuracy": 90.0})
        return MADE

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
    """Run two stages with these inputs; say which were reused."""
    recorder, stages = started(folder, *listeners)
    for name, given in zip(("predictor", "selection"), inputs, strict=False):
        stages.stage(name, given, counted(calls, name))
    return [stage.reused for stage in recorder.finish().stages]


@pytest.fixture(autouse=True)
def plain_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two stages with the same simple type, so that no data are needed."""
    monkeypatch.setitem(record.PARTS, "selection", record.PARTS["predictor"])


def test_a_stage_with_the_same_inputs_is_reused(tmp_path: Path) -> None:
    calls: list[str] = []
    assert run(tmp_path, calls, [1, {"a": 2}]) == [False, False]
    assert run(tmp_path, calls, [1, {"a": 2}]) == [True, True]
    assert calls == ["predictor", "selection"]
    assert run(tmp_path, calls, [1, {"a": 3}]) == [True, False]
    found = read_run(tmp_path)
    assert found.predictor == MADE
    assert [stage.reused for stage in found.stages] == [True, False]
    assert all(stage.seconds >= 0 for stage in found.stages)
    # later stages stay when an early one changes and the run stops
    _, stages = started(tmp_path)
    stages.stage("predictor", "other", counted(calls, "predictor"))
    assert run(tmp_path, calls, ["other", {"a": 3}]) == [True, True]
    # files that are gone
    recorder, stages = started(tmp_path)
    stages.stage("predictor", "other", counted([], "predictor"), valid=lambda result: False)
    assert not recorder.finish().stages[0].reused
    # a finished run drops stages of earlier runs
    run(tmp_path, calls, [1])
    document = json.loads((tmp_path / NAME).read_text())
    assert [stage["name"] for stage in document["stages"]] == ["predictor"]
    assert "selection" not in document


def test_a_run_that_was_stopped_is_resumed(tmp_path: Path) -> None:
    calls: list[str] = []
    _, stages = started(tmp_path)
    stages.stage("predictor", 1, counted(calls, "predictor"))
    with pytest.raises(RuntimeError):
        stages.stage("selection", 2, failing)
    assert run(tmp_path, calls, [1, 2]) == [True, False]
    assert calls == ["predictor", "selection"]


def test_events_of_a_stage(tmp_path: Path) -> None:
    heard, again = Heard(), Heard()
    _, stages = started(tmp_path, heard)
    result = stages.stage("predictor", 1, counted([], "predictor"), artifact=tmp_path / "model")
    assert {stage for _, stage, _ in heard.events} == {"predictor"}
    kinds = [kind for kind, _, _ in heard.events]
    assert kinds == ["start", "progress", "metric", "artifact", "end"]
    assert heard.of("start") == [("predictor", {"models": ["net"]})]
    [(_, end)] = heard.of("end")
    first = read_run(tmp_path).stages[0]
    assert (end["status"], end["result"], end["inputs"]) == ("done", result, first.inputs)
    run(tmp_path, [], [1], again)
    assert again.outline() == [("predictor", "start"), ("predictor", "reused")]
    [(_, end)] = again.of("end")
    assert end["seconds"] == read_run(tmp_path).stages[0].seconds == first.seconds > 0
    assert end["result"] == MADE


def test_stages_that_fail_or_are_skipped_say_why_and_are_not_recorded(tmp_path: Path) -> None:
    heard = Heard()
    recorder, stages = started(tmp_path, heard)

    def refuse(listener: Listener) -> Any:
        raise ValueError("no images")

    with pytest.raises(ValueError, match="no images"):  # before it starts: it does not end
        stages.stage("selection", 2, refuse)
    assert heard.events == []
    with pytest.raises(RuntimeError):
        stages.stage("selection", 2, failing)
    stages.skip("testbed", "two models")
    assert heard.outline() == [
        *(("selection", "start"), ("selection", "failed")),
        ("testbed", "skipped"),
    ]
    failed, skipped = (facts for _, facts in heard.of("end"))
    assert (failed["error"], skipped["reason"]) == ("stopped here", "two models")
    recorder.end("run", status="done", seconds=3.0, result=None)
    assert not (tmp_path / NAME).exists()
    assert recorder.finish().stages == ()


def test_the_record_is_written_when_a_stage_ends(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "oodzoo run", {"seed": 3})
    recorder.add("data", DataSummary("photos", "f", 2, ("a",), {"x": {"a": 2}}))
    recorder.end("predictor", status="done", seconds=2.5, result=MADE, inputs="key")
    found = read_run(tmp_path)
    assert found.predictor == MADE
    assert found.data
    assert found.data.path == "photos"
    assert found.stages == (record.Stage("predictor", 2.5, False, "key"),)
    assert found.settings == {"seed": 3}
    assert found.versions["oodzoo"]


def test_a_record_that_cannot_be_written_is_an_input_error(tmp_path: Path) -> None:
    """Not a warning: a run without a record cannot be resumed."""
    recorder = Recorder(tmp_path / "run", "oodzoo run", {})
    (tmp_path / "run").write_text("a file")
    events = Events([recorder])
    with pytest.raises(InputError, match="cannot write"):
        events.end("predictor", status="done", seconds=2.5, result=MADE, inputs="key")


@pytest.mark.parametrize("content", ['{"schema": 1, "stages": []}', "{", "[]", "digit"])
def test_a_record_that_is_damaged_or_of_another_schema_is_started_anew(
    tmp_path: Path, content: str
) -> None:
    if content == "digit":
        Recorder(tmp_path, "oodzoo run", {"seed": 5}).finish()
        content = (tmp_path / NAME).read_text().replace('"seed": 5', '"seed": 7')
    (tmp_path / NAME).write_text(content)
    recorder = Recorder(tmp_path, "oodzoo run", {})
    assert recorder.earlier == {}
    recorder.finish()
    assert read_run(tmp_path).command == "oodzoo run"
