"""The paper's tables from the paper's figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import scipy.stats

import oodzoo
from oodzoo.testbed import compare, paper
from oodzoo.testbed.published import read

Run = Callable[..., Any]

PUBLISHED = {
    "weighted_tau": "weighted_tau_feature_based",
    "weighted_tau_with_head": "weighted_tau_classifier_based",
}


def test_every_published_cell(run: Run) -> None:
    document = run("testbed", "paper", "--json").document
    cells = 0
    for name, table in PUBLISHED.items():
        for row in read(table):
            dataset = row.pop("dataset")
            for score, value in row.items():
                assert f"{document[name][dataset][score]:.2f}" == value, (name, dataset, score)
                cells += 1
    assert cells == 7 * 4 + 7 * 3


def test_both_taus_are_those_of_scipy() -> None:
    for with_head in (False, True):
        for bed in paper(with_head=with_head, resamples=10).values():
            accuracy = list(bed.accuracy.values())
            for judged in bed.scores.values():
                values = list(judged.values.values())
                assert judged.tau == pytest.approx(scipy.stats.kendalltau(values, accuracy)[0])
                weighted = scipy.stats.weightedtau(values, accuracy)[0]
                assert judged.weighted_tau == pytest.approx(weighted, abs=1e-12)


def test_intervals_stand_apart_and_hold_the_value(run: Run) -> None:
    document = run("testbed", "paper", "--json").document
    for name in ("weighted_tau", "tau", "weighted_tau_with_head", "tau_with_head"):
        for dataset, values in document[name].items():
            for score, value in values.items():
                low, high = document["intervals"][name][dataset][score]
                assert -1 <= low <= value <= high <= 1, (name, dataset, score)
    low, high = document["intervals"]["means"]["weighted_tau"]["zood"]
    assert low <= document["means"]["weighted_tau"]["zood"] <= high
    assert ["logme", "zood"] in document["indistinguishable"]["weighted_tau"]["PACS"]
    assert ["h_score", "zood"] not in document["indistinguishable"]["weighted_tau"]["PACS"]


def test_the_same_seed_gives_the_same_intervals() -> None:
    one, two = paper(resamples=100, seed=3), paper(resamples=100, seed=3)
    other = paper(resamples=100, seed=4)
    assert one == two
    assert one["PACS"].scores["zood"].interval != other["PACS"].scores["zood"].interval


def test_the_mean_of_the_paper() -> None:
    together = compare(paper(resamples=100))
    rows = read("weighted_tau_feature_based")
    for score, means in together.means.items():
        printed = sum(float(row[score]) for row in rows) / 7
        assert means.weighted_tau == pytest.approx(printed, abs=0.005)
        assert means.beds == 7
    assert oodzoo.testbed.paper is paper


def test_tables_fit_a_terminal(run: Run) -> None:
    outcome = run("testbed", "paper")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.split() == ["PACS", "0.57", "0.76", "0.88~", "0.91"] for line in lines)
