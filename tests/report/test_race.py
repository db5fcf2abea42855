"""The section with the models that a race has dropped."""

from __future__ import annotations

from dataclasses import replace

from tests.report.example import example_run
from tests.report.reader import Reader

from oodzoo.racing import Dropped
from oodzoo.record import ExtractionSummary, Run
from oodzoo.report import page

EARLY = Dropped(1, 140, 20, (11, 27), 31.25, "clearly worse than 10 models")
LATE = Dropped(2, 280, 9, None, 61.0, "rank too low for the budget of 30 min")


def _page(run: Run, dropped: dict[str, Dropped]) -> Reader:
    summary = ExtractionSummary(("a",), {}, (), 1400, {}, "0" * 64, dropped)
    return Reader(page(replace(run, extraction=summary)))


def test_models_are_listed_with_round_and_reason(run: Run) -> None:
    read = _page(run, {"slow <model>": EARLY, "other": LATE})
    rows = read.table("race")
    assert [row["model"] for row in rows] == ["other", "slow <model>"]  # the last round first
    assert rows[1]["reason"] == EARLY.reason
    assert (rows[1]["rank_interval_low"], rows[1]["rank_interval_high"]) == ("11", "27")
    assert rows[0]["rank_interval_low"] == ""
    assert float(rows[1]["expected_accuracy"]) == 31.25
    assert "look at a sample of the images: 2 models." in read.text


def test_the_metric_is_that_of_the_task() -> None:
    dropped = replace(EARLY, expected_accuracy=-31.25, metric="explained_variance")
    read = _page(example_run(3, task="regression"), {"bad": dropped})
    assert float(read.table("race")[0]["expected_explained_variance"]) == -31.25
    assert "accurac" not in read.text.lower()


def test_without_a_race_there_is_no_section(run: Run) -> None:
    assert "look at a sample" not in _page(run, {}).text
