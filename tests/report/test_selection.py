"""The section with the selected features."""

from __future__ import annotations

from dataclasses import replace

from tests.report.example import CLASSES
from tests.report.reader import Reader

from oodzoo.record import Run
from oodzoo.report.selection import selection_section


def test_csv_equals_the_selection(run: Run, read: Reader) -> None:
    assert run.selection is not None
    models = run.selection.per_model
    rows = read.table("inclusion-probabilities")
    counts = [features for each in models for features in each.inclusion_histogram]
    assert [int(row["features"]) for row in rows] == counts
    kept = [int(row["n_selected"]) for row in read.table("features-kept")]
    assert kept == [each.n_selected for each in models]
    assert [row["class"] for row in read.table("features-by-class")] == list(CLASSES)


def test_a_selection_that_did_not_converge(run: Run) -> None:
    assert run.selection is not None
    assert "converged" not in selection_section(run.selection).lead
    stopped = selection_section(replace(run.selection, converged=False))
    assert stopped.lead.endswith("The selection did not converge.")
