"""What to do with a predictor."""

from __future__ import annotations

from dataclasses import replace

from tests.report.example import example_run

from oodzoo.record import PredictorSummary, Run
from oodzoo.report.steps import steps


def test_the_commands_name_the_folder_of_the_predictor() -> None:
    run = Run("oodzoo run", predictor=PredictorSummary("my model", ("a",), "digest"))
    assert [step.command for step in steps(run)] == [
        "oodzoo predict 'my model/' IMAGES/ --out predictions.csv",
        "oodzoo test 'my model/' LABELLED/ --out test.html",
        "oodzoo export 'my model/' model.onnx",
    ]


def test_without_an_evaluation_the_commands_use_the_model_of_the_headline() -> None:
    whole = example_run()
    assert whole.ranking is not None
    best = whole.ranking.best
    pool = PredictorSummary("model", ("a", "b"), "digest", "pool")
    run = replace(whole, evaluation=None, predictor=pool)
    fit, predict, *_ = [step.command for step in steps(run)]
    assert fit == f"oodzoo fit store --models {best} --out single"
    assert predict.startswith("oodzoo predict single/ ")
    for other in (
        replace(whole, predictor=pool),  # its measured number is that of the recommendation
        replace(run, predictor=PredictorSummary("model", (best,), "digest")),
    ):
        assert steps(other)[0].command.startswith("oodzoo predict model/ ")


def test_without_a_predictor() -> None:
    assert steps(Run("oodzoo run")) == []
