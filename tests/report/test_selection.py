"""The section with the selected features."""

from __future__ import annotations

from dataclasses import replace

from tests.report.example import CLASSES, consistent_selection
from tests.report.reader import Reader

from oodzoo.record import Run
from oodzoo.report.page import page
from oodzoo.report.selection import selection_section


def test_csv_equals_the_selection(run: Run, read: Reader) -> None:
    assert run.selection is not None
    models = run.selection.per_model
    rows = read.table("inclusion-probabilities")
    counts = [features for each in models for features in each.histogram]
    assert [int(row["features"]) for row in rows] == counts
    kept = [int(row["n_selected"]) for row in read.table("features-kept")]
    assert kept == [each.n_selected for each in models]
    assert [row["class"] for row in read.table("features-by-class")] == list(CLASSES)


def test_a_selection_that_did_not_converge(run: Run) -> None:
    assert run.selection is not None
    assert "converged" not in selection_section(run.selection).lead
    stopped = selection_section(replace(run.selection, converged=False))
    assert stopped.lead.endswith("The selection did not converge.")


def test_consistent_features(run: Run) -> None:
    models = [f"m{at}" for at in range(9)]
    summary = consistent_selection(models, CLASSES)
    read = Reader(page(replace(run, selection=summary)))
    assert "contribute most to the prediction of left-out domains" in read.text
    assert "Shown are the 6 models with the most features kept" in read.text
    tried = [tuple(row.values()) for row in read.table("number-of-features")]
    assert tried == [("2", "-1.5"), ("180", "-0.25"), ("99", "")]
    rows = read.table("feature-ranks")
    counts = [features for each in summary.per_model for features in each.histogram]
    assert [int(row["features"]) for row in rows] == counts
    classes = read.table("features-by-class")
    assert list(classes[0]) == ["class", "n_selected", *models[1:]]  # nothing is kept of the first
    assert classes[0]["m8"] == "40"
    section = selection_section(summary)
    panels = "".join(panel for block in section.blocks for panel in getattr(block, "panels", ()))
    assert [name for name in models if f"Rank of the features: {name}" in panels] == models[3:]


def test_numbers_of_features_are_compared_by_the_error_of_numbers() -> None:
    summary = replace(consistent_selection(["a", "b"], ["age"]), task="regression")
    read = Reader(page(Run("oodzoo run", selection=summary)))
    assert read.table("number-of-features")[1]["negative_squared_error"] == "-0.25"
    assert "The error is relative to the variance of the labels." in read.text
    assert "counts for the output that it contributes most to" in read.text
    assert read.table("features-by-output")[0]["output"] == "age"
