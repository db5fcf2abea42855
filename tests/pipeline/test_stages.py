"""Stages and their record where a whole run cannot reach them: before a start, on a bad disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.events.heard import Heard

from oodzoo.core.errors import InputError
from oodzoo.events import Events, Listener, Stage
from oodzoo.pipeline.stages import Recorder, Stages
from oodzoo.report.record import NAME, PredictorSummary, read_run


def test_stages_that_fail_or_are_skipped_say_why_and_are_not_recorded(tmp_path: Path) -> None:
    heard, recorder = Heard(), Recorder(tmp_path, "oodzoo run", {"seed": 3})
    stages = Stages(recorder.earlier, Events([recorder, heard]))

    def refuse(listener: Listener) -> Any:
        raise ValueError("no images")

    def fail(listener: Listener) -> Any:
        with Stage(listener, "selection"):
            raise RuntimeError("stopped\nhere")

    with pytest.raises(ValueError, match="no images"):  # before it starts: it does not end
        stages.stage("selection", 2, refuse)
    assert heard.events == []
    with pytest.raises(RuntimeError):
        stages.stage("selection", 2, fail)
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


def test_a_record_that_cannot_be_written_is_an_input_error(tmp_path: Path) -> None:
    """Not a warning: a run without a record cannot be resumed."""
    recorder = Recorder(tmp_path / "run", "oodzoo run", {})
    (tmp_path / "run").write_text("a file")
    made = PredictorSummary("model", ("net",), "digest")
    with pytest.raises(InputError, match="cannot write"):
        Events([recorder]).end("predictor", status="done", seconds=2.5, result=made, inputs="k")


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
