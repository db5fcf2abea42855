"""What to do with the predictor of a run."""

from __future__ import annotations

import shlex

from oodzoo.record import Run
from oodzoo.report.blocks import Step

NOTE = "Run these in the folder of this report, with your own files for the names in capitals."


def steps(run: Run) -> list[Step]:
    """Commands to use, check and deploy the predictor; none if there is no predictor."""
    if run.predictor is None:
        return []
    model = shlex.quote(f"{run.predictor.folder}/")
    return [
        Step("Predict new images", f"oodzoo predict {model} IMAGES/ --out predictions.csv"),
        Step("Check it on labelled images", f"oodzoo test {model} LABELLED/ --out test.html"),
        Step("Deploy it as one ONNX file", f"oodzoo export {model} model.onnx"),
    ]
