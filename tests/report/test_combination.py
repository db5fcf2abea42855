"""The section with the evaluation."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.report.example import DOMAINS, evaluation_row
from tests.report.reader import Reader

from oodzoo.evaluation.result import Evaluation
from oodzoo.record import Run
from oodzoo.report import page
from oodzoo.report.blocks import Figure
from oodzoo.report.combination import combination_section, comparison, curves


@pytest.fixture
def evaluation(run: Run) -> Evaluation:
    assert run.evaluation is not None
    return run.evaluation


def test_csv_equals_the_evaluation(evaluation: Evaluation, read: Reader) -> None:
    methods = {"Single": "single", "Ensemble": "ensemble", "Selection": "selection"}
    rows = read.table("accuracy")
    baselines = {"Random features", "Oracle", "Best by logme"}
    assert {row["method"] for row in rows} == {*methods, *baselines}
    for row in rows:
        if row["method"] not in methods:
            continue
        given = evaluation.rows[methods[row["method"]]]
        if row["domain"] == "average":
            assert float(row["accuracy"]) == given.average
        else:
            cell = given.cells[row["domain"]]
            assert float(row["accuracy"]) == cell.accuracy
            assert tuple(row["models"].split(";")) == cell.models
            assert int(row["n_features"]) == cell.n_features
    entries = evaluation.ablation.items()
    for row, (k, each) in zip(read.table("accuracy-over-k"), entries, strict=True):
        assert int(row["top_k"]) == k
        assert float(row["selection"]) == each.selection.average


def test_comparison_has_baselines_on_average_only(evaluation: Evaluation) -> None:
    groups = comparison(evaluation)
    assert list(groups) == ["Average", *DOMAINS]
    assert len(groups["Average"]) == 6
    for domain in DOMAINS:
        assert [lane.method.key for lane in groups[domain]] == ["single", "ensemble", "selection"]
        assert groups[domain][0].value == evaluation.single.cells[domain].accuracy


def test_curves_follow_the_number_of_models(evaluation: Evaluation) -> None:
    ensemble, selection = curves(evaluation)
    assert (ensemble.title, selection.title) == ("Ensemble", "Selection")
    assert ensemble.values == [each.ensemble.average for each in evaluation.ablation.values()]


def test_baselines_keep_one_order(run: Run, evaluation: Evaluation) -> None:
    names = ["best_by_zzz", "oracle", "best_by_lda", "random_features", "best_by_h_score"]
    for order in (names, names[::-1]):
        baselines = {
            key: evaluation_row(dict.fromkeys(DOMAINS, 50.0 + at), ["m"])
            for at, key in enumerate(order)
        }
        text = page(replace(run, evaluation=replace(evaluation, baselines=baselines)))
        methods = list(dict.fromkeys(line["method"] for line in Reader(text).table("accuracy")))
        assert methods[3:] == [
            "Random features", "Oracle", "Best by h_score", "Best by lda", "Best by zzz"
        ]  # fmt: skip


def test_the_text_has_all_findings(evaluation: Evaluation) -> None:
    figure = combination_section(evaluation).blocks[0]
    assert isinstance(figure, Figure)
    assert len(evaluation.findings()) > 1
    for finding in evaluation.findings():
        assert finding in figure.text


@pytest.mark.parametrize(
    ("top_k", "words"),
    [
        (3, "the top 3 models"),
        (1, "the top model"),
        (dict.fromkeys(DOMAINS, 2), "the top 2 models"),
        (dict(zip(DOMAINS, (1, 2, 3, 3), strict=True)), "the top 1–3 models"),
    ],
)
def test_the_number_of_models_in_words(
    evaluation: Evaluation, top_k: int | dict[str, int], words: str
) -> None:
    lead = combination_section(replace(evaluation, top_k=top_k)).lead
    assert f"the features of {words}," in lead


def test_baselines_are_explained_if_present(evaluation: Evaluation) -> None:
    lead = combination_section(evaluation).lead
    assert "Oracle picks" in lead
    assert "“Best by X”: the top model under score X." in lead
    lead = combination_section(replace(evaluation, baselines={})).lead
    assert "Oracle" not in lead
    assert "Best by" not in lead
