"""What is recommended, what it costs and how it was chosen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.report.example import DOMAINS, evaluation_row
from tests.report.reader import Reader

from oodzoo.evaluation.result import Evaluation
from oodzoo.record import Run
from oodzoo.report import page
from oodzoo.report.recommendation import (
    Cost,
    cost_of,
    decision_figure,
    pools_figure,
)


@pytest.fixture
def evaluation(run: Run) -> Evaluation:
    assert run.evaluation is not None
    return run.evaluation


def with_recommended(evaluation: Evaluation, **changes: Any) -> Evaluation:
    return replace(evaluation, recommended=replace(evaluation.recommended, **changes))


def with_pools(evaluation: Evaluation, *pools: tuple[str, ...]) -> Evaluation:
    """The evaluation with other models in the pool of each domain."""
    row = evaluation_row(dict.fromkeys(DOMAINS, 50.0), ["?"])
    for cell, models in zip(list(row.cells), pools, strict=True):
        row.cells[cell] = replace(row.cells[cell], models=models)
    return replace(evaluation, pool=row)


def test_the_cost_is_the_sum_over_the_models(run: Run) -> None:
    assert run.ranking is not None
    first, second, *others = run.ranking.rows
    assert first.milliseconds is not None
    assert second.milliseconds is not None
    both = [second.model, first.model]
    found = cost_of(both, run.ranking)
    assert found.milliseconds == pytest.approx(first.milliseconds + second.milliseconds)
    assert found.parameters == 2_974_377 + 2_974_378
    rows = (replace(first, parameters=None), second, *others)
    less = replace(run.ranking, rows=rows)
    assert cost_of(both, less).parameters is None
    assert cost_of(both, less).milliseconds is not None
    assert cost_of([*both, "not ranked"], run.ranking) == Cost(None, None)
    assert cost_of(both, None) == Cost(None, None)


def test_the_row_has_the_choice_of_each_domain(evaluation: Evaluation) -> None:
    row = evaluation.recommended_row
    *most, last = DOMAINS
    assert [row.cells[domain] for domain in most] == [
        evaluation.pool.cells[domain] for domain in most
    ]
    assert row.cells[last] == evaluation.selection.cells[last]
    assert row.average == pytest.approx(evaluation.recommended.average)


def test_why_it_was_chosen(evaluation: Evaluation) -> None:
    text = decision_figure(evaluation).text
    assert "Single 71.0 %, Pool 78.2 %, Ensemble 76.0 %, Selection 77.5 %; chosen: Pool." in text
    assert (
        "For the test domains: Pool without art_painting, cartoon and photo; "
        "Selection without sketch." in text
    )
    average = evaluation.recommended.average
    assert text.endswith(f"the accuracy to expect is the measured {average:.1f} %.")
    assert "limits" not in text


def test_one_choice_for_all_domains(evaluation: Evaluation) -> None:
    same = with_recommended(evaluation, choices=dict.fromkeys(DOMAINS, "ensemble"))
    text = decision_figure(same).text
    assert "chosen: Pool. Without each test domain, the choice is Ensemble." in text


def test_the_same_choice_for_all_domains(evaluation: Evaluation) -> None:
    same = with_recommended(evaluation, choices=dict.fromkeys(DOMAINS, "pool"))
    assert "chosen: Pool. Without each test domain, the choice is the same." in (
        decision_figure(same).text
    )


@pytest.mark.parametrize(
    ("estimates", "words"),
    [
        ({"single": 1.0, "pool": 2.0}, "Ensemble and Selection exceed the limits"),
        ({"single": 1.0, "pool": 2.0, "ensemble": 3.0}, "Selection exceeds the limits"),
    ],
)
def test_ways_beyond_the_limits(
    evaluation: Evaluation, estimates: dict[str, float], words: str
) -> None:
    text = decision_figure(with_recommended(evaluation, estimates=estimates)).text
    assert f"{words} on models or time." in text
    assert "On all domains (left-out domains): Single 1.0 %, Pool 2.0 %" in text


def test_the_rule_is_that_of_the_verdict(evaluation: Evaluation) -> None:
    text = decision_figure(evaluation).text
    assert "tried on the training domains: leaving each of them out, and by cross-" in text
    assert "A pool is chosen, unless another way is better on left-out domains by more than" in text
    assert "the single model, if the pool is much worse somewhere; a cheaper way, if it is" in text


def test_both_kinds_of_estimates(evaluation: Evaluation) -> None:
    both = with_recommended(evaluation, within={"single": 80.0, "pool": 85.5, "ensemble": 84.0})
    assert (
        "On all domains (left-out domains and within the domains): Single 71.0 and 80.0 %, "
        "Pool 78.2 and 85.5 %, Ensemble 76.0 and 84.0 %, Selection 77.5 %; chosen: Pool."
    ) in decision_figure(both).text


def test_choices_of_the_test_domains(evaluation: Evaluation, read: Reader) -> None:
    rows = read.table("choices")
    assert [(row["domain"], row["choice"]) for row in rows] == list(
        zip(DOMAINS, ["Pool", "Pool", "Pool", "Selection"], strict=True)
    )
    for row in rows:
        assert float(row["accuracy"]) == evaluation.recommended.domains[row["domain"]]
    assert [int(row["models"]) for row in rows] == [4, 4, 4, 27]
    assert [float(row["milliseconds"]) for row in rows] == [10.0, 10.0, 10.0, 67.5]
    assert [float(row["parameters_million"]) for row in rows] == [12.0, 12.0, 12.0, 81.0]


def test_models_of_the_pools(run: Run, evaluation: Evaluation) -> None:
    pools = ("b", "a"), ("a",), ("a", "c"), ("b", "a")
    changed = with_recommended(with_pools(evaluation, *pools), models=("a", "d"))
    rows = Reader(page(replace(run, evaluation=changed))).table("pools")
    assert [list(row.values()) for row in rows] == [
        ["a", "4", "1", "2", "1", "1", "2"],
        ["b", "2", "", "1", "", "", "1"],
        ["c", "1", "", "", "", "2", ""],
        ["d", "0", "2", "", "", "", ""],
    ]
    assert list(rows[0]) == ["model", "pools", "all_domains", *DOMAINS]
    assert "have 1–2 models each" in pools_figure(changed).text
    other = with_recommended(changed, choice="ensemble")
    assert [column.key for column in pools_figure(other).table.columns] == [
        "model", "pools", *DOMAINS
    ]  # fmt: skip
    assert "d" not in [row[0] for row in pools_figure(other).table.rows]


def test_pools_of_one_size(evaluation: Evaluation) -> None:
    assert "have 4 models each" in pools_figure(evaluation).text
    alone = with_pools(evaluation, *[("a",)] * 4)
    assert "Every pool is a single model" in pools_figure(alone).text
    best = replace(alone.recommended, choice="pool", models=("a",))
    best = replace(best, choices=dict.fromkeys(DOMAINS, "pool"))
    shown = decision_figure(replace(alone, recommended=best))
    assert "chosen: Pool, a single model." in shown.text
    assert {row[1] for row in shown.table.rows} == {"Pool, a single model"}
