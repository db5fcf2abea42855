"""The CSV files of a page have every number of its results."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.evaluation.data import zoo
from tests.report.assessment_example import example_test
from tests.report.example import CLASSES, DOMAINS, example_run
from tests.report.reader import Reader

import oodzoo
from oodzoo.cli.evaluate import show_evaluation
from oodzoo.cli.terminal import Terminal
from oodzoo.combining.evaluation.result import Evaluation
from oodzoo.ranking.result import Ranking
from oodzoo.report import page
from oodzoo.report.assessment_page import assessment_page
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


def of(**parts: Any) -> Reader:
    return Reader(page(Run("oodzoo run", **parts)))


def numbers(rows: list[dict[str, str]], *names: str) -> list[tuple[float, ...]]:
    """Some columns of a CSV file."""
    return [tuple(float(row[name]) for name in names) for row in rows]


def test_one_number_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    """The page, the table, the record and the command line promise the same accuracy."""
    evaluation = oodzoo.evaluate(*zoo())
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


@pytest.mark.parametrize(
    ("score", "target", "terms"),
    [
        ("unseen", False, ("transfer", "accuracy")),
        ("zood", False, ("discriminability", "stability")),
        ("knn", False, ("transfer", "accuracy")),
        ("unseen", True, ("transfer", "accuracy")),
    ],
)
def test_terms_of_each_domain(score: str, target: bool, terms: tuple[str, ...]) -> None:
    found = example_run(3, score=score, target=target).ranking
    assert found is not None
    read = of(ranking=found)
    if target:
        assert numbers(read.table("ranking"), "agreement") == [(r.agreement,) for r in found.rows]
    for term in terms:
        rows = read.table(f"{term}-by-domain")
        assert [row["model"] for row in rows] == [row.model for row in found.rows]
        assert numbers(rows, *DOMAINS) == [
            tuple(getattr(fold, term) for fold in row.folds) for row in found.rows
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
    rows = of(evaluation=replace(evaluation, pool=pool)).table("accuracy")
    (row,) = (row for row in rows if (row["method"], row["domain"]) == ("Pool", "average"))
    assert row["milliseconds"] == ("" if milliseconds is None else str(milliseconds))
    assert float(row["parameters_million"]) == parameters


def test_mistakes(evaluation: Evaluation, read: Reader) -> None:
    order = sorted(DOMAINS, key=evaluation.recommended.domains.__getitem__)
    predicted = [f"predicted_{label}" for label in CLASSES]
    for at, domain in enumerate(order):  # the hardest first
        rows = numbers(read.table(f"confusion-{at + 1}"), *predicted)
        assert tuple(rows) == evaluation.diagnosis[domain].confusion
    images = sum(each.images for each in evaluation.diagnosis.values())
    for table in ("confusion", "reliability"):
        assert sum(n for (n,) in numbers(read.table(table), "images")) == images
    recall = numbers(read.table("classes"), "recall")
    assert recall == sorted(recall)


def test_scores_and_selection(run: Run, read: Reader) -> None:
    assert run.testbed is not None
    assert run.selection is not None
    taus = [(result.weighted_tau,) for result in run.testbed.scores.values()]
    assert numbers(read.table("scores"), "weighted_tau") == sorted(taus, reverse=True)
    for row in read.table("score-values"):
        model = row.pop("model")
        assert float(row.pop("head_accuracy")) == run.testbed.accuracy[model]
        values = {name: result.values[model] for name, result in run.testbed.scores.items()}
        assert row == {name: "" if v is None else repr(v) for name, v in values.items()}
    models = run.selection.per_model
    assert numbers(read.table("inclusion-probabilities"), "features") == [
        (features,) for each in models for features in each.histogram
    ]
    kept = [(each.n_selected,) for each in models]
    assert numbers(read.table("features-kept"), "n_selected") == kept
    assert [row["class"] for row in read.table("features-by-class")] == list(CLASSES)


def values(rows: list[dict[str, str]], name: str) -> list[float]:
    return [value for (value,) in numbers(rows, name)]


@pytest.mark.parametrize(
    ("test", "table", "column", "last"),
    [
        (example_test, "domains", "accuracy", "value"),
        (lambda: example_test("regression", ["age"]), "domains", "second", "second"),
        (lambda: example_test("multilabel"), "labels", "average_precision", None),
    ],
)
def test_the_worst_of_a_test_comes_first_and_all_last(
    test: Callable[[], Any], table: str, column: str, last: str | None
) -> None:
    result = test()
    rows = Reader(assessment_page(result)).table(table)
    found = values(rows, column)
    if last is not None:
        assert (rows[-1]["domain"], found.pop()) == ("all", getattr(result, last))
    if column != "second":
        assert found == sorted(found)
