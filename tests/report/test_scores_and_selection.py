"""The sections that compare scores and that show the selected features."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from tests.report.example import CLASSES, consistent_selection
from tests.report.reader import Reader

from oodzoo.report import page
from oodzoo.report.record import Run
from oodzoo.testbed import TestBed


@pytest.fixture
def bed(run: Run) -> TestBed:
    assert run.testbed is not None
    return run.testbed


def text(bed: TestBed) -> str:
    return Reader(page(Run("oodzoo run", testbed=bed))).text


def test_csv_equals_the_test_bed(bed: TestBed, read: Reader) -> None:
    taus = [result.weighted_tau or 0 for result in bed.scores.values()]
    found = [float(row["weighted_tau"]) for row in read.table("scores")]
    assert found == sorted(taus, reverse=True)
    for row in read.table("score-values"):
        for name, result in bed.scores.items():
            given = result.values[row["model"]]
            assert row[name] == ("" if given is None else repr(given))
        assert float(row["head_accuracy"]) == bed.accuracy[row["model"]]


def test_what_is_said_of_scores(bed: TestBed) -> None:
    assert "It is statistically tied with Expected accuracy (accuracy) and LDA." in text(bed)
    assert "tied" not in text(replace(bed, indistinguishable=()))
    pairs = tuple(itertools.combinations(bed.scores, 2))
    every = replace(bed, indistinguishable=pairs)
    assert "All scores are statistically tied here. ZooD has the highest" in text(every)
    best = replace(bed, indistinguishable=tuple(pair for pair in pairs if "zood" in pair))
    assert "All scores are statistically tied with the best one here." in text(best)
    leep = replace(bed.scores["leep"], weighted_tau=0.99)  # which few models have
    few = replace(bed, scores=bed.scores | {"leep": leep})
    assert "ZooD orders these 27 models best" in text(few)
    assert "computed on the other domains only" in text(bed)
    seen = replace(bed, data=bed.data | {"protocol": "all"})
    assert "so they have seen the test domain" in text(seen)


def test_csv_equals_the_selection(run: Run, read: Reader) -> None:
    assert run.selection is not None
    models = run.selection.per_model
    rows = read.table("inclusion-probabilities")
    counts = [features for each in models for features in each.histogram]
    assert [int(row["features"]) for row in rows] == counts
    kept = [int(row["n_selected"]) for row in read.table("features-kept")]
    assert kept == [each.n_selected for each in models]
    assert [row["class"] for row in read.table("features-by-class")] == list(CLASSES)
    words = "The selection did not converge."
    assert words not in read.text
    stopped = Run("oodzoo run", selection=replace(run.selection, converged=False))
    assert words in Reader(page(stopped)).text


def test_consistent_features() -> None:
    models = [f"m{at}" for at in range(9)]
    summary = consistent_selection(models, CLASSES)
    shown = page(Run("oodzoo run", selection=summary))
    read = Reader(shown)
    assert "contribute most to the prediction of left-out domains" in read.text
    assert "Shown are the 6 models with the most features kept" in read.text
    tried = [tuple(row.values()) for row in read.table("number-of-features")]
    assert tried == [("2", "-1.5"), ("180", "-0.25"), ("99", "")]
    counts = [features for each in summary.per_model for features in each.histogram]
    assert [int(row["features"]) for row in read.table("feature-ranks")] == counts
    classes = read.table("features-by-class")
    assert list(classes[0]) == ["class", "n_selected", *models[1:]]  # nothing is kept of the first
    assert classes[0]["m8"] == "40"
    assert [name for name in models if f"Rank of the features: {name}" in shown] == models[3:]


def test_numbers_of_features_are_compared_by_the_error_of_numbers() -> None:
    summary = replace(consistent_selection(["a", "b"], ["age"]), task="regression")
    read = Reader(page(Run("oodzoo run", selection=summary)))
    assert read.table("number-of-features")[1]["negative_squared_error"] == "-0.25"
    assert "The error is relative to the variance of the labels." in read.text
    assert "counts for the output that it contributes most to" in read.text
    assert read.table("features-by-output")[0]["output"] == "age"
