"""The section that compares scores."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from tests.report.reader import Reader

from oodzoo.record import Run
from oodzoo.report.blocks import Figure
from oodzoo.report.scores import scores_section
from oodzoo.testbed import Column, judge
from oodzoo.testbed import bed as testbed


@pytest.fixture
def bed(run: Run) -> testbed.TestBed:
    assert run.testbed is not None
    return run.testbed


def text(bed: testbed.TestBed) -> str:
    figure = scores_section(bed).blocks[0]
    assert isinstance(figure, Figure)
    return figure.text


def test_csv_equals_the_test_bed(bed: testbed.TestBed, read: Reader) -> None:
    taus = [result.weighted_tau or 0 for result in bed.scores.values()]
    assert [float(row["weighted_tau"]) for row in read.table("scores")] == sorted(
        taus, reverse=True
    )
    for row in read.table("score-values"):
        for name, result in bed.scores.items():
            given = result.values[row["model"]]
            assert row[name] == ("" if given is None else repr(given))
        assert float(row["head_accuracy"]) == bed.accuracy[row["model"]]


def test_ties_are_named(bed: testbed.TestBed) -> None:
    assert "It is statistically tied with Expected accuracy (accuracy) and LDA." in text(bed)
    assert "tied" not in text(replace(bed, indistinguishable=()))
    pairs = tuple(itertools.combinations(bed.scores, 2))
    assert "All scores are statistically tied here. ZooD has the highest" in text(
        replace(bed, indistinguishable=pairs)
    )
    pairs = tuple(pair for pair in pairs if "zood" in pair)
    assert "All scores are statistically tied with the best one here." in text(
        replace(bed, indistinguishable=pairs)
    )


def test_a_score_of_few_models_is_not_called_the_best(bed: testbed.TestBed) -> None:
    leep = replace(bed.scores["leep"], weighted_tau=0.99)
    few = replace(bed, scores=bed.scores | {"leep": leep})
    assert "ZooD orders these 27 models best" in text(few)


def test_the_lead_says_what_the_scores_have_seen(bed: testbed.TestBed) -> None:
    assert "computed on the other domains only" in str(scores_section(bed).lead)
    seen = replace(bed, data=bed.data | {"protocol": "all"})
    assert "so they have seen the test domain" in str(scores_section(seen).lead)


def test_test_domains_have_a_table() -> None:
    accuracy = {"a": 50.0, "b": 60.0, "c": 70.0}
    by_domain = {"x": accuracy, "y": {"a": 70.0, "b": 60.0, "c": 50.0}}
    columns = {"s": Column({"a": 1.0, "b": 2.0, "c": 3.0})}
    mean = dict.fromkeys(accuracy, 60.0)
    bed = judge({"name": "toy"}, mean, columns, by_domain=by_domain, resamples=9)
    figure = scores_section(bed).blocks[-1]
    assert isinstance(figure, Figure)
    assert figure.table is not None
    assert [list(row)[:3] for row in figure.table.rows] == [["s", "x", 0.0], ["s", "y", 20.0]]
