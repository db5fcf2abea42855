"""What to do with the predictor of a run."""

from __future__ import annotations

from oodzoo._packages import install_hint
from oodzoo._text import typed
from oodzoo.record import Run
from oodzoo.report.blocks import Step

NOTE = "Run these in the folder of this report, with your own files for the names in capitals."

STORE, SINGLE = "store", "single"
"""Folders in that of the report: the features, and a predictor of the top model."""


def steps(run: Run) -> list[Step]:
    """Commands to use, check and deploy the predictor; none if there is no predictor.

    Without an evaluation, the top model is what the page says to use. If the predictor is another
    one, the first command makes a predictor of this model.
    """
    if run.predictor is None:
        return []
    model, first = typed(f"{run.predictor.folder}/"), []
    if run.evaluation is None and run.ranking is not None:
        named = run.ranking.best
        if run.predictor.models != (named,):
            fit = f"oodzoo fit {STORE} --models {typed(named)} --out {SINGLE}"
            model, first = f"{SINGLE}/", [Step(f"Make a predictor of {named}", fit)]
    hint = install_hint("onnx")
    needed = f" ({hint})" if hint else ""
    return [
        *first,
        Step("Predict new images", f"oodzoo predict {model} IMAGES/ --out predictions.csv"),
        Step("Check it on labelled images", f"oodzoo test {model} LABELLED/ --out test.html"),
        Step(f"Deploy it as one ONNX file{needed}", f"oodzoo export {model} model.onnx"),
    ]
