"""The section that compares scores."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from tests.report.reader import Reader

from oodzoo.record import Run
from oodzoo.report.blocks import Figure
from oodzoo.report.scores import by_weighted_tau, scores_section
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
        assert float(row["probe_accuracy"]) == bed.accuracy[row["model"]]


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


def test_scores_without_a_tau_come_last(bed: testbed.TestBed) -> None:
    undefined = replace(bed.scores["zood"], weighted_tau=None)
    negative = replace(bed.scores["lda"], weighted_tau=-0.5)
    order = by_weighted_tau(replace(bed, scores=bed.scores | {"zood": undefined, "lda": negative}))
    assert order[-2:] == ["lda", "zood"]
