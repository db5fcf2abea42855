"""Test beds of the paper against its tables."""

from __future__ import annotations

import pytest
import scipy.stats

from oodzoo.evaluation.published import read_table
from oodzoo.testbed import compare, paper


@pytest.mark.parametrize(
    ("with_head", "table", "cells"),
    [(False, "weighted_tau_feature_based", 7 * 4), (True, "weighted_tau_classifier_based", 7 * 3)],
)
def test_every_published_cell(with_head: bool, table: str, cells: int) -> None:
    beds = paper(with_head=with_head, resamples=10)
    for row in read_table(table):
        dataset = row.pop("dataset")
        for score, value in row.items():
            assert f"{beds[dataset].scores[score].weighted_tau:.2f}" == value, (dataset, score)
            cells -= 1
    assert cells == 0


def test_both_taus_are_those_of_scipy() -> None:
    for with_head in (False, True):
        for bed in paper(with_head=with_head, resamples=10).values():
            accuracy = list(bed.accuracy.values())
            for result in bed.scores.values():
                values = list(result.values.values())
                assert result.tau == pytest.approx(scipy.stats.kendalltau(values, accuracy)[0])
                weighted = scipy.stats.weightedtau(values, accuracy)[0]
                assert result.weighted_tau == pytest.approx(weighted, abs=1e-12)


def test_the_same_seed_gives_the_same_intervals() -> None:
    one, two = paper(resamples=100, seed=3), paper(resamples=100, seed=3)
    other = paper(resamples=100, seed=4)
    assert one == two
    assert one["PACS"].scores["zood"].interval != other["PACS"].scores["zood"].interval


def test_the_mean_of_the_paper() -> None:
    together = compare(paper(resamples=100))
    rows = read_table("weighted_tau_feature_based")
    for score, means in together.means.items():
        printed = sum(float(row[score]) for row in rows) / 7
        assert means.weighted_tau == pytest.approx(printed, abs=0.005)
        assert means.beds == 7
