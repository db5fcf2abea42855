"""The results among published accuracies in the report."""

from __future__ import annotations

from dataclasses import replace

from tests.report.example import example_run
from tests.report.reader import Reader

from oodzoo.evaluation.published import published
from oodzoo.report import page
from oodzoo.report.published import published_figure


def test_the_table_is_shown_if_a_data_set_was_named() -> None:
    run = example_run()
    assert run.evaluation is not None
    assert "Beside published results" not in Reader(page(run)).text
    named = replace(run, evaluation=replace(run.evaluation, published="PACS"))
    read = Reader(page(named))
    assert "Beside published results on PACS" in read.text
    rows = read.table("published")
    values = [float(row["accuracy"]) for row in rows]
    assert values == sorted(values, reverse=True)
    assert [row["method"] for row in rows if row["from"] == "yours"][:1] != []
    assert {"method": "SWAD", "from": "SWAD", "accuracy": "88.1"} in rows


def test_the_best_rows_are_named() -> None:
    hours = {"extraction": 0.5, "fine_tuned": None}
    figure = published_figure(published("PACS", {"Pool": 97.04, "Single": 50.0}, 4, hours))
    assert figure.text.startswith(
        "Your best row, Pool: 97.0 %; the best published one, F. Selection of ZooD: 96.3 %."
    )
    assert "0.50 hours" in figure.text
