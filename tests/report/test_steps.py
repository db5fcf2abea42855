"""What to do with a predictor."""

from __future__ import annotations

from oodzoo.record import PredictorSummary, Run
from oodzoo.report.steps import steps


def test_the_commands_name_the_folder_of_the_predictor() -> None:
    run = Run("oodzoo run", predictor=PredictorSummary("my model", ("a",), "digest"))
    assert [step.command for step in steps(run)] == [
        "oodzoo predict 'my model/' IMAGES/ --out predictions.csv",
        "oodzoo test 'my model/' LABELLED/ --out test.html",
        "oodzoo export 'my model/' model.onnx",
    ]


def test_without_a_predictor() -> None:
    assert steps(Run("oodzoo run")) == []
