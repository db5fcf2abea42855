"""The record of a run is written when a stage ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from oodzoo.core.errors import InputError
from oodzoo.events import Events
from oodzoo.pipeline.stages import Recorder
from oodzoo.report.record import NAME, DataSummary, PredictorSummary, Stage, read_run

MADE = PredictorSummary("model", ("net",), "digest")


def test_a_stage_is_recorded_when_it_ends(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "oodzoo run", {"seed": 3})
    recorder.add("data", DataSummary("photos", "f", 2, ("a",), {"x": {"a": 2}}))
    recorder.end("predictor", status="done", seconds=2.5, result=MADE, inputs="key")
    found = read_run(tmp_path)
    assert found.predictor == MADE
    assert found.data
    assert found.data.path == "photos"
    assert found.stages == (Stage("predictor", 2.5, False, "key"),)
    assert found.settings == {"seed": 3}
    assert found.versions["oodzoo"]
    again = Recorder(tmp_path, "oodzoo run", {})
    assert again.earlier["stages"][0]["inputs"] == "key"
    again.end("predictor", status="reused", seconds=2.5, result=MADE, inputs="key")
    assert read_run(tmp_path).stages == (Stage("predictor", 2.5, True, "key"),)


def test_only_stages_with_a_result_are_recorded(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "oodzoo run", {})
    recorder.start("predictor", models=["net"])
    recorder.end("predictor", status="failed", seconds=1.0, error="disk full")
    recorder.end("testbed", status="skipped", seconds=0.0, reason="two models")
    recorder.end("run", status="done", seconds=3.0, result=None)
    assert not (tmp_path / NAME).exists()
    assert recorder.finish().stages == ()


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
