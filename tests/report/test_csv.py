"""The CSV files of a page have every number of its results."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.evaluation.data import zoo
from tests.report.example import DOMAINS
from tests.report.reader import Reader

import oodzoo
from oodzoo.cli.evaluate import show_evaluation
from oodzoo.cli.terminal import Terminal
from oodzoo.combining.evaluation.result import Evaluation
from oodzoo.ranking.ranking import Ranking
from oodzoo.report import page
from oodzoo.report.record import Run

METHODS = {
    "Single": "single", "Pool": "pool", "Ensemble": "ensemble", "Selection": "selection",
    "Random features": "random_features", "Paper's selection": "paper_selection",
    "Oracle": "oracle", "Best by logme": "best_by_logme",
}  # fmt: skip


@pytest.fixture
def evaluation(run: Run) -> Evaluation:
    assert run.evaluation is not None
    return run.evaluation


@pytest.fixture
def ranking(run: Run) -> Ranking:
    assert run.ranking is not None
    return run.ranking


def numbers(rows: list[dict[str, str]], *names: str) -> list[tuple[float, ...]]:
    """Some columns of a CSV file."""
    return [tuple(float(row[name]) for name in names) for row in rows]


def test_one_number_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    """The page, the table, the record and the command line promise the same accuracy."""
    evaluation = oodzoo.evaluate(*zoo(), baselines=False)
    document = json.loads(json.dumps(Run("oodzoo run", evaluation=evaluation).to_dict()))
    average = document["evaluation"]["recommended"]["average"]
    assert document["recommended"]["average"] == average
    read = Reader(page(Run.from_dict(document)))
    rows = [row for row in read.table("accuracy") if row["method"] == "Recommended"]
    found = {row["domain"]: float(row["accuracy"]) for row in rows}
    assert found == pytest.approx({"average": average} | evaluation.recommended.domains)
    assert f"{average:.1f} % accuracy on unseen domains, measured" in read.text
    with Terminal() as terminal:
        show_evaluation(terminal, evaluation)
    words = f"it classifies {average:.1f} % of the images of unseen domains correctly"
    assert words in capsys.readouterr().out
    assert words in read.text


def test_ranking(ranking: Ranking, read: Reader) -> None:
    names = ("rank", "score", "evidence", "transfer", "milliseconds")
    rows = read.table("ranking")
    assert numbers(rows, *names) == [
        tuple(getattr(row, name) for name in names) for row in ranking.rows
    ]
    assert numbers(rows, "accuracy_low", "accuracy_high") == [
        row.accuracy_interval for row in ranking.rows
    ]
    assert [(r["model"], r["tied"], r["pareto_optimal"], r["licence"]) for r in rows] == [
        (row.model, ";".join(row.tied), str(row.pareto_optimal).lower(), row.licence)
        for row in ranking.rows
    ]


def test_held_out_domains(ranking: Ranking, read: Reader) -> None:
    rows = read.table("held-out-domains")
    means = [mean for (mean,) in numbers(rows, "mean_accuracy")]
    assert means == sorted(means)  # the hardest first
    assert sum(deficit for (deficit,) in numbers(rows, "deficit")) == pytest.approx(0, abs=1e-9)
    values = {
        domain: [f.accuracy for row in ranking.rows for f in row.folds if f.domain == domain]
        for domain in DOMAINS
    }
    found = {row["domain"]: row for row in rows}
    for domain, each in values.items():
        row = {name: float(found[domain][name]) for name in ("mean_accuracy", "lowest", "highest")}
        mean = sum(each) / len(each)
        expected = {"mean_accuracy": mean, "lowest": min(each), "highest": max(each)}
        assert row == pytest.approx(expected)


def test_evaluation(evaluation: Evaluation, read: Reader) -> None:
    rows = [row for row in read.table("accuracy") if row["method"] != "Recommended"]
    assert {row["method"] for row in rows} == {*METHODS}
    for row in rows:
        given = evaluation.rows[METHODS[row["method"]]]
        if row["domain"] == "average":
            assert float(row["accuracy"]) == given.average
            continue
        cell = given.cells[row["domain"]]
        assert row["models"] == ";".join(cell.models)
        names = ("accuracy", "n_features", "milliseconds", "parameters_million")
        assert numbers([row], *names) == [
            (cell.accuracy, cell.n_features, 2.5 * len(cell.models), 3 * len(cell.models))
        ]
    assert numbers(read.table("accuracy-over-k"), "top_k", "ensemble", "paper_selection") == [
        (k, e.ensemble.average, e.selection.average) for k, e in evaluation.ablation.items()
    ]
    assert evaluation.learning_curve is not None
    domains = [f"domain_{domain}" for domain in DOMAINS]
    curve = read.table("learning-curve")
    assert numbers(curve, "images_per_class", "average", *domains) == [
        (point.images_per_class, point.average, *(point.domains[d] for d in DOMAINS))
        for point in evaluation.learning_curve.points
    ]
    choices = read.table("choices")
    assert [row["choice"] for row in choices] == ["Pool", "Pool", "Pool", "Selection"]
    for row in choices:
        n, accuracy = int(row["models"]), evaluation.recommended.domains[row["domain"]]
        found = numbers([row], "accuracy", "milliseconds", "parameters_million")
        assert found == [(accuracy, 2.5 * n, 3 * n)]


@pytest.mark.parametrize(
    ("changes", "milliseconds", "parameters"),
    [
        ({"milliseconds": 50.0, "parameters": 0}, (50 + 3 * 10) / 4, 3 * 12 / 4),
        ({"milliseconds": None}, None, 12),
    ],
)
def test_the_cost_is_averaged_if_it_is_known_everywhere(
    evaluation: Evaluation, changes: Any, milliseconds: float | None, parameters: float
) -> None:
    first, *_ = evaluation.domains
    cells = evaluation.pool.cells
    pool = replace(evaluation.pool, cells=cells | {first: replace(cells[first], **changes)})
    found = Run("oodzoo run", evaluation=replace(evaluation, pool=pool))
    rows = Reader(page(found)).table("accuracy")
    (row,) = (row for row in rows if (row["method"], row["domain"]) == ("Pool", "average"))
    assert row["milliseconds"] == ("" if milliseconds is None else str(milliseconds))
    assert float(row["parameters_million"]) == parameters
